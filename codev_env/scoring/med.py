"""The effect of a tool on the answers, after MED (arXiv 2602.01334)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from codev_env.trajectory import Trajectory


class Scored(Protocol):
    """An answer to a task, such as an episode."""

    @property
    def task_id(self) -> str:
        """The id of the task."""

    @property
    def is_correct(self) -> bool:
        """Whether the answer is right."""


S = TypeVar("S", bound=Scored)
TERMS = ("call_gain", "schema_gain", "call_harm", "schema_harm")


def by_task(episodes: Sequence[S]) -> dict[str, list[S]]:
    """Group episodes by the id of their task, in the order in which they occur."""
    groups: dict[str, list[S]] = {}
    for episode in episodes:
        groups.setdefault(episode.task_id, []).append(episode)
    return groups


def tool_effect(with_tool: Sequence[Trajectory], without: Sequence[Scored]) -> dict[str, float]:
    """Return accuracy without the tool, what the tool gains, and the four terms of that; empty without common tasks.

    With p the share of right answers to a task without the tool, an episode with the tool that is right gains 1 - p,
    and one that is wrong loses p. The difference is attributed to the call if the episode ran a program (`call_gain`,
    `call_harm`), otherwise to the mere offer of a tool (`schema_gain`, `schema_harm`). All are means over tasks, so
    tool_gain = call_gain + schema_gain - call_harm - schema_harm = accuracy with - accuracy without.

    Args:
        with_tool: Episodes in which code may run.
        without: Episodes or answers of the same tasks without; other tasks count in neither.
    """
    free, tooled = by_task(without), by_task(with_tool)
    names = [name for name in tooled if name in free]
    if not names:
        return {}
    terms, base = dict.fromkeys(TERMS, 0.0), 0.0
    for name in names:
        p, played = sum(t.is_correct for t in free[name]) / len(free[name]), tooled[name]
        base += p / len(names)
        for episode in played:
            cause = "call" if any(turn.kind == "code" for turn in episode.turns) else "schema"
            change, kind = (1 - p, "gain") if episode.is_correct else (p, "harm")
            terms[f"{cause}_{kind}"] += change / len(played) / len(names)
    gain = terms["call_gain"] + terms["schema_gain"] - terms["call_harm"] - terms["schema_harm"]
    return {"accuracy_without": base, "tool_gain": gain, **terms}
