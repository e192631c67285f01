"""The files of a model: whether they are on this machine, and whether the hub has them. Needs no torch."""

from __future__ import annotations

import json
from pathlib import Path

from codev_agents.engines.folders import CONFIG
from codev_env.errors import ConfigError

DOWNLOAD_ADVICE = "download it first, or give a folder"
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_LOOK_S = 10.0  # longest wait for the hub


def missing_file(name: str) -> str:
    """Return the first file that a model folder, or the cache of the hub, lacks of a model; empty if it is complete."""
    if _find(name, CONFIG) is None:
        return CONFIG
    for weights in _WEIGHTS:
        if _find(name, weights):
            return ""
        if index := _find(name, f"{weights}.index.json"):
            parts = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
            return next((part for part in parts if _find(name, part) is None), "")
    return _WEIGHTS[0]


def hub_problem(name: str) -> str:
    """Return why a model cannot be downloaded, in a sentence without a full stop; empty if the hub has it."""
    from huggingface_hub import HfApi, constants

    if constants.HF_HUB_OFFLINE:
        return "it is not on this machine, and HF_HUB_OFFLINE forbids downloading it"
    try:
        HfApi().model_info(name, timeout=_LOOK_S)
    except Exception as error:  # of whichever HTTP library this version of the client uses
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        return f"it is not on this machine, and the hub does not offer it: {reason[:200]}"
    return ""


def check_available(name: str, what: str) -> None:
    """Raise `ConfigError` for a name that is neither a folder nor a model that was, or can be, downloaded.

    Args:
        name: The folder or the name on the hub.
        what: Begins the message, such as `"--model NAME"`.
    """
    if not Path(name).exists() and missing_file(name) and (problem := hub_problem(name)):
        raise ConfigError(f"{what}: {problem}; {DOWNLOAD_ADVICE}.")


def _find(name: str, file: str) -> Path | None:
    if (folder := Path(name)).is_dir():
        return folder / file if (folder / file).is_file() else None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, file)
    except HFValidationError:  # not a name of the hub
        return None
    return Path(found) if isinstance(found, str) else None
