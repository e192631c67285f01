"""Choice of rollouts: other tasks in place of groups without signal, and those of a group whose rewards vary most."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import torch

from codev_agents.rollout.player import Rollout
from codev_agents.rollout.selection import Selection, any_group

SPARE = 32
"""Tasks, beyond as many as are wanted, that are drawn at most in place of those that are skipped."""


def draw_groups(
    choose: Callable[[int], Sequence[int]], spare: Callable[[int], Sequence[int]], count: int, times: int
) -> Selection:
    """Select `count` groups for an update, if possible such that not all outcomes of a group are equal.

    The outcome decides, not the reward: otherwise a group in which all answers are wrong would be kept for the reward
    of its tool calls, and the policy would learn to call tools without ever being right.

    Source: dynamic sampling of DAPO, arXiv 2503.14476, section 3.2, with a bound and without rounds.

    Args:
        choose: Gives the indices of this many tasks.
        spare: The same, called only if tasks are skipped because their first prompt is too long.
        count: Groups wanted.
        times: Most groups played in place of others, as a multiple of `count`; 0 keeps all groups.
    """
    tasks = [task for _ in range(times + 1) for task in choose(count)]
    others = itertools.islice(_endless(spare, count), count + SPARE)
    return Selection(itertools.chain(tasks, others), count, len(tasks), has_signal if times else any_group)


def _endless(choose: Callable[[int], Sequence[int]], count: int) -> Iterator[int]:
    while True:
        yield from choose(count)


def with_signal(rollouts: Sequence[Rollout]) -> torch.Tensor:
    """Return for each rollout whether the outcomes of its group differ, bool `[trajectories]`."""
    groups: dict[int, list[Rollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.group, []).append(rollout)
    return torch.tensor([has_signal(groups[rollout.group]) for rollout in rollouts])


def has_signal(group: Sequence[Rollout]) -> bool:
    """Whether the outcomes of the rollouts that can be trained on differ."""
    return len({rollout.trajectory.is_correct for rollout in group if not rollout.judge_failed}) > 1


def most_varied(rewards: torch.Tensor, groups: torch.Tensor, kept: torch.Tensor, count: int) -> torch.Tensor:
    """Choose at most `count` rollouts of each group, those whose rewards have the greatest variance.

    They are some of the highest rewards and some of the lowest; of rollouts with equal rewards, the first.

    Source: max-variance down-sampling of PODS, arXiv 2504.13818, section 3.

    Args:
        rewards: Reward of each trajectory, `[trajectories]`.
        groups: Trajectories of the same task share a number, `[trajectories]`.
        kept: Which trajectories can be chosen, bool `[trajectories]`.
        count: How many of each group, at least 2.

    Returns:
        Which are chosen, bool `[trajectories]`.
    """
    chosen = torch.zeros_like(kept)
    for group in groups.unique():
        rows = (kept & (groups == group)).nonzero()[:, 0]
        order = rows[rewards[rows].argsort(stable=True)]
        least = min(count, len(order))
        subsets = [torch.cat([order[: least - high], order[len(order) - high :]]) for high in range(least + 1)]
        if least:
            chosen[max(subsets, key=lambda subset: float(rewards[subset].var(correction=0)))] = True
    return chosen
