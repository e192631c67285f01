"""Requests and tokens of an evaluation: of the model, of the judge and of the scorer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from codev_env.trajectory import Trajectory
from codev_env.usage import Usage

COUNTS = ("requests", "prompt_tokens", "completion_tokens", "truncated_turns")
"""Counts in an agent's `meta`."""


def usage(episodes: Sequence[Trajectory]) -> dict[str, int]:
    """Sum what the agents counted: requests, tokens of prompts and completions, turns cut off by the token limit."""
    agents = [t.meta.get("agent") for t in episodes]
    return {name: sum(int(a.get(name, 0)) for a in agents if isinstance(a, Mapping)) for name in COUNTS}


def judge_usage(episodes: Sequence[Trajectory]) -> Usage:
    """Sum what a judge behind a server was asked and took; verdicts of a cache took nothing."""
    return sum((turn.score.usage for t in episodes for turn in t.turns if turn.score), Usage())


def scorer_usage(episodes: Sequence[Trajectory]) -> Usage:
    """Sum what a scorer asked a model and took; remembered verdicts took nothing."""
    return sum((Usage(**t.meta["scorer"]) for t in episodes if "scorer" in t.meta), Usage())
