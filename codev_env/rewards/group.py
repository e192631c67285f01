"""The terms that compare the rollouts of a task: pure functions of the finished episodes of a group."""

from __future__ import annotations

from collections.abc import Sequence

from codev_env.rewards.terms import has_seen
from codev_env.types import Episode

TARGET_RATE = 0.3
"""H of `curiosity`: the share of a group that should look."""


def curiosity(episodes: Sequence[Episode]) -> list[float]:
    """max(H - RaPR, 0) for a rollout that looked, else 0; RaPR is the share of the group that looked, H = 0.3.

    A rollout looked if some call returned a view of the original.

    Source: r_curiosity of Pixel-Reasoner (arXiv 2505.15966), where RaPR is the rate of pixel-space reasoning.
    """
    looked = [has_seen(episode) for episode in episodes]
    rate = sum(looked) / len(looked) if looked else 0.0
    return [max(TARGET_RATE - rate, 0.0) * seen for seen in looked]


def necessity(episodes: Sequence[Episode]) -> list[float]:
    """r_nec = max(0, acc(those that looked) - acc(those that did not)) for a rollout that looked, else 0.

    0 for all where either part of the group is empty.

    Source: CodeVision (arXiv 2512.03746), over the K rollouts of a task. It is paid to the rollouts that looked only:
    a reward that all of a group get gives no advantage.
    """
    looked = [has_seen(episode) for episode in episodes]
    used = [e.is_correct for e, seen in zip(episodes, looked, strict=True) if seen]
    unused = [e.is_correct for e, seen in zip(episodes, looked, strict=True) if not seen]
    if not used or not unused:
        return [0.0] * len(looked)
    worth = max(0.0, sum(used) / len(used) - sum(unused) / len(unused))
    return [worth * seen for seen in looked]
