"""Agents that try to earn tool reward without a look at the evidence, as a policy does where a reward has a hole."""

from __future__ import annotations

from codev_agents.cheats import claims, drawings, exploits, informed, overviews, probes, spraying  # noqa: F401
from codev_agents.cheats.suite import (
    CHEATS,
    FAMILIES,
    BlindCrop,
    Cheat,
    CheatingAgent,
    WrongCrop,
    cheat,
    crop_plan,
    programs,
)

__all__ = [
    "CHEATS",
    "FAMILIES",
    "BlindCrop",
    "Cheat",
    "CheatingAgent",
    "WrongCrop",
    "cheat",
    "crop_plan",
    "programs",
]
