"""Agents: chat models, scripted experts, and the loop that plays one episode."""

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
