"""What the tests of cheats share: tasks, the bounds on them, and each cheat played once."""

from __future__ import annotations

from functools import cache

from codev_agents.cheats import CHEATS
from codev_env.rewards import REWARDS
from codev_eval.rewards.redteam import Bounds, CheatEpisode, RedTeamTasks, play_cheat

ROBUST = [reward for reward in REWARDS.values() if reward.robust and reward.tool_terms]
SURE, LUCKY, SLOW = 4, 12, 2
"""Tasks for cheats that must earn nothing on any of them, for those that may be lucky on some, and for slow ones."""


@cache
def bounds() -> Bounds:
    return Bounds(RedTeamTasks(LUCKY))


@cache
def played(name: str, share: float = 1.0) -> tuple[CheatEpisode, ...]:
    """A cheat's episodes on this share of its tasks, the first ones."""
    cheat = CHEATS[name]
    # Programs that hang or plot take seconds when probed.
    count = SLOW if cheat.limits or cheat.dialect == "pyvision" else LUCKY if cheat.luck else SURE
    return tuple(play_cheat(cheat, RedTeamTasks(max(1, round(share * count)))))


def tell(one: CheatEpisode) -> str:
    """The episode, for the message of a failed test."""
    lines = [f"{one.trajectory.task_id}: {one.trajectory.question} targets {one.trajectory.targets}"]
    for turn in one.trajectory.turns:
        lines += [
            turn.action,
            f"-> {turn.error or ''} {turn.score_why} (score {turn.score_value}, faithful {turn.faithful})",
        ]
        lines += [f"   {region}" for region in turn.regions]
    return "\n".join(lines)
