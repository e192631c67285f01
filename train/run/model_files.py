"""The files of a model: whether they are on this machine, and whether the hub has them."""

from __future__ import annotations

from pathlib import Path

from codev_agents.engines.model_files import hub_problem, missing_file

__all__ = ["cache_folder", "folder_problem", "hub_problem", "is_here", "missing_file"]


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


def cache_folder() -> Path:
    """Return the folder that downloads go to."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)
