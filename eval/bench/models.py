"""The values of `--model`: a scripted agent, a model behind an OpenAI-compatible server, or a saved model's folder."""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from codev_agents import SCRIPTED, Agent, ChatAgent
from codev_env.chat_model import split_address
from codev_env.errors import ConfigError, unknown

AGENTS = f"scripted:{'|'.join(SCRIPTED)}, URL#NAME such as http://localhost:8000/v1#my-model"
FORMS = f"{AGENTS}, or the folder of a saved model"
_WEIGHTS = (".safetensors", ".bin")
_SAMPLES, _BLOCK = 64, 1 << 16


def is_folder(spec: str) -> bool:
    """Whether `spec` names a folder on this machine, whose model one of the engines samples from."""
    return bool(spec) and not spec.startswith(("scripted:", "http:", "https:")) and Path(spec).is_dir()


def weights_of(folder: Path) -> str:
    """Return a digest of samples of a saved model's weights, another one after training has gone on.

    Args:
        folder: The model's folder. Of each file of weights the size and 64 blocks of 64 KiB are read, evenly spread.
    """
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(path for path in folder.iterdir() if path.suffix in _WEIGHTS):
        size = path.stat().st_size
        digest.update(os.fsencode(path.name) + size.to_bytes(8, "big"))
        with path.open("rb") as file:
            for place in range(_SAMPLES):
                file.seek(max(0, size - _BLOCK) * place // (_SAMPLES - 1))
                digest.update(file.read(_BLOCK))
    return digest.hexdigest()


def parse_model(
    spec: str, *, seed: int = 0, temperature: float = 0.0, max_tokens: int = 2048, option: str = "--model"
) -> Callable[[], Agent]:
    """Return a function that makes the agent `spec` names; each thread plays with an agent of its own.

    Args:
        spec: `"scripted:NAME"` or `"URL#NAME"` (the API key is read from `OPENAI_API_KEY`).
        seed: Seeds a scripted agent's guesses and a server's sampling.
        temperature: Sampling temperature of a server's model.
        max_tokens: Tokens per turn of a server's model.
        option: The option that has it, for messages; one other than `--model` takes no folder.

    Raises:
        ConfigError: If `spec` is neither, or names no agent.
    """
    kind, _, name = spec.partition(":")
    if kind == "scripted":
        if name not in SCRIPTED:
            raise unknown(f"scripted agent in {option}", name, SCRIPTED)
        agent = SCRIPTED[name]
        options: dict[str, Any] = {"seed": seed} if "seed" in inspect.signature(agent).parameters else {}
        return lambda: agent(**options)
    if kind in ("http", "https"):
        url, model = split_address(spec, option)
        return lambda: ChatAgent(model, url, temperature=temperature, max_tokens=max_tokens, seed=seed)
    raise ConfigError(f"{option} {spec!r} is none of: {FORMS if option == '--model' else AGENTS}.")
