"""The terms that compare the rollouts of a task: pure functions of the finished episodes of a group."""

from __future__ import annotations

from collections.abc import Sequence

from codev_env.rewards import codevision
from codev_env.rewards.terms import has_seen
from codev_env.types import Episode

TARGET_RATE = 0.3
"""H of `curiosity`: the share of a group that should look."""
SURE = 2
"""Rollouts that are right without a look, from which on `necessity` pays nothing."""


def curiosity(episodes: Sequence[Episode]) -> list[float]:
    """max(H - RaPR, 0) for a rollout that looked, else 0; RaPR is the share of the group that looked, H = 0.3.

    A rollout looked if some call returned a view of the original.

    Source: r_curiosity of Pixel-Reasoner (arXiv 2505.15966), where RaPR is the rate of pixel-space reasoning.
    """
    looked = [has_seen(episode) for episode in episodes]
    rate = sum(looked) / len(looked) if looked else 0.0
    return [max(TARGET_RATE - rate, 0.0) * seen for seen in looked]


def curiosity_released(episodes: Sequence[Episode]) -> list[float]:
    """max(H - RaPR, 0) / RaPR for a rollout that looked, else 0; RaPR and H as for `curiosity`.

    Source: curiosity_driven_rl/openrlhf/trainer/ppo_utils/experience_maker.py of the released Pixel-Reasoner, which
    counts calls, and multiplies this by 0.25 / 2 for images.
    """
    looked = [has_seen(episode) for episode in episodes]
    rate = sum(looked) / len(looked) if looked else 0.0
    return [max(TARGET_RATE - rate, 0.0) / rate if seen else 0.0 for seen in looked]


def necessity(episodes: Sequence[Episode]) -> list[float]:
    """r_nec = max(0, acc(those that looked) - acc(those that did not)) for a right rollout that looked, else 0.

    0 for all where nobody did not look, or where two or more were right without; 0 for a rollout that missed the crop
    that the task needs (`codevision.gated`).

    Source: `_compute_tool_reward_group_stats` and `_compute_tool_reward_for_sample` of
    verl/experimental/agent_loop/agent_loop.py in the released CodeVision, which weighs it with 0 in its run and with
    0.2 by default.
    """
    looked = [has_seen(episode) for episode in episodes]
    used = [e.is_correct for e, seen in zip(episodes, looked, strict=True) if seen]
    unused = [e.is_correct for e, seen in zip(episodes, looked, strict=True) if not seen]
    if not used or not unused or sum(unused) >= SURE:
        return [0.0] * len(looked)
    worth = max(0.0, sum(used) / len(used) - sum(unused) / len(unused))
    paid = [seen and e.is_correct and not codevision.gated(e) for e, seen in zip(episodes, looked, strict=True)]
    return [worth * right for right in paid]
