"""Agents: chat models, scripted experts, and the loop that plays one episode."""

import warnings

from codev_agents.agent import Agent, AgentError
from codev_agents.chat import ChatAgent
from codev_agents.episode import EpisodeRecorder, run_episode
from codev_agents.scripted import (
    SCRIPTED,
    DecorativeCrop,
    LazyCrop,
    NoTool,
    Oracle,
    RandomCrop,
    expand_box,
)
from codev_agents.writing import answer_turn, crop_turn

__all__ = [
    "SCRIPTED",
    "Agent",
    "AgentError",
    "ChatAgent",
    "DecorativeCrop",
    "LazyCrop",
    "NoTool",
    "Oracle",
    "RandomCrop",
    "answer_turn",
    "crop_turn",
    "expand_box",
    "EpisodeRecorder",
    "run_episode",
]

_RENAMED = {
    "DecorativeCropAgent": "DecorativeCrop",
    "LazyCropAgent": "LazyCrop",
    "NoToolAgent": "NoTool",
    "OracleAgent": "Oracle",
    "RandomCropAgent": "RandomCrop",
}
_REMOVED_IN = "0.3.0"


def __getattr__(name: str) -> object:
    """Return a class under its earlier name, with a warning."""
    if name not in _RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    new = _RENAMED[name]
    text = f"{__name__}.{name} is now {__name__}.{new}; the old name goes away in {_REMOVED_IN}."
    warnings.warn(text, DeprecationWarning, stacklevel=2)
    return globals()[new]
