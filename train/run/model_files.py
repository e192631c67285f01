"""The files of a model: whether they are on this machine, and whether the hub has them."""

from __future__ import annotations

import json
from pathlib import Path

_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_LOOK_S = 10.0  # longest wait for the hub


def missing_file(name: str) -> str:
    """Return the first file that a model folder, or the cache of the hub, lacks of a model; empty if it is complete."""
    if _find(name, "config.json") is None:
        return "config.json"
    for weights in _WEIGHTS:
        if _find(name, weights):
            return ""
        if index := _find(name, f"{weights}.index.json"):
            parts = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
            return next((part for part in parts if _find(name, part) is None), "")
    return _WEIGHTS[0]


def is_here(name: str) -> bool:
    """Return whether a model is a folder or was downloaded before, with all its weights."""
    return not missing_file(name)


def folder_problem(name: str) -> str:
    """Return a sentence about a name that must be meant as a folder but is none; empty otherwise: a hub may have it."""
    path = Path(name)
    if not name or path.exists():
        return ""
    if path.is_absolute() or name.startswith((".", "~")):
        return f"--model {name}: there is no such folder."
    if len(path.parts) > 1 and Path(path.parts[0]).is_dir() and not is_here(name):
        return (
            f"--model {name}: the folder {path.parts[0]} holds no {Path(*path.parts[1:])}. If a model of the hub is "
            "meant, start it from another folder."
        )
    return ""


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


def cache_folder() -> Path:
    """Return the folder that downloads go to."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


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
