"""Folders that hold a saved model, looked at without torch."""

from __future__ import annotations

from pathlib import Path

CONFIG = "config.json"


def model_advice(folder: Path) -> str:
    """Return what to give in place of a folder without a model: the one in it, where it is that of a training run."""
    below = folder / "model"
    return f"give {below}" if (below / CONFIG).is_file() else "give the folder of a saved model"
