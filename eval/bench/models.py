"""The values of `--model`: a scripted agent, a model behind an OpenAI-compatible server, or a saved model's folder."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from codev_agents import SCRIPTED, Agent, ChatAgent
from codev_env.chat_model import split_address
from codev_env.errors import ConfigError, unknown

AGENTS = f"scripted:{'|'.join(SCRIPTED)}, URL#NAME such as http://localhost:8000/v1#my-model"
FORMS = f"{AGENTS}, or the folder of a saved model"


def is_folder(spec: str) -> bool:
    """Whether `spec` names a folder on this machine, whose model one of the engines samples from."""
    return bool(spec) and not spec.startswith(("scripted:", "http:", "https:")) and Path(spec).is_dir()


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
