"""Requests and tokens of an evaluation: of the model, of the judge and of the scorer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from codev_env.trajectory import Trajectory
from codev_env.usage import COUNTS, EpisodeUsage, Usage


def usage(episodes: Sequence[Trajectory]) -> dict[str, int]:
    """Sum what the agents counted: requests, tokens of prompts and completions, turns cut off by the token limit."""
    agents = [t.meta.get("agent") for t in episodes]
    return {name: sum(int(a.get(name, 0)) for a in agents if isinstance(a, Mapping)) for name in COUNTS}


def judge_usage(episodes: Sequence[Trajectory]) -> Usage:
    """Sum what a judge behind a server was asked and took, in lost starts too; verdicts of a cache took nothing."""
    lost = sum((Usage(**t.meta["judge_lost"]) for t in episodes if "judge_lost" in t.meta), Usage())
    return sum((turn.score.usage for t in episodes for turn in t.turns if turn.score), lost)


def scorer_usage(episodes: Sequence[Trajectory]) -> Usage:
    """Sum what a scorer asked a model and took; remembered verdicts took nothing."""
    return sum((Usage(**t.meta["scorer"]) for t in episodes if "scorer" in t.meta), Usage())


def taken(episodes: Sequence[Trajectory]) -> EpisodeUsage:
    """Sum what model, judge and scorer took for finished episodes."""
    return EpisodeUsage(usage(episodes), judge_usage(episodes), scorer_usage(episodes))


def rows_of(failed: Mapping[tuple[str, str], EpisodeUsage]) -> list[dict[str, Any]]:
    """Return as JSON what failed episodes took, by condition and benchmark."""
    return [{"condition": condition, "bench": bench, **asdict(used)} for (condition, bench), used in failed.items()]


def usage_of(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], EpisodeUsage]:
    """Read the rows of `rows_of`."""
    return {
        (row["condition"], row["bench"]): EpisodeUsage(row["agent"], Usage(**row["judge"]), Usage(**row["scorer"]))
        for row in rows
    }
