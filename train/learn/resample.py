"""Dynamic sampling: groups whose outcomes are all equal carry no signal, so other tasks are sampled in their place."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from codev_agents.rollout.player import Rollout


@dataclass(frozen=True, eq=False)
class Sampled:
    """The rollouts of one update.

    Attributes:
        rollouts: Rollouts to train on, those of one task next to each other, `group` numbering their tasks from 0.
        played: For every group that was played, the discarded ones included: `(index, right, episodes)`.
    """

    rollouts: list[Rollout]
    played: list[tuple[int, int, int]]


def play_with_signal(
    play: Callable[[Sequence[int]], list[Rollout]],
    choose: Callable[[int], Sequence[int]],
    count: int,
    rounds: int,
) -> Sampled:
    """Play `count` tasks, then up to `rounds` times others in place of those whose outcomes are all equal.

    The outcome decides, not the reward: otherwise a group in which all answers are wrong would be kept for the reward
    of its tool calls, and the policy would learn to call tools without ever being right.

    Source: dynamic sampling of DAPO, arXiv 2503.14476, section 3.2, with a bound.

    Args:
        play: Plays groups of episodes of the tasks with these indices.
        choose: Gives the indices of this many tasks.
        count: Groups wanted.
        rounds: Most times that groups are replaced; 0 keeps all.
    """
    groups: dict[int, list[Rollout]] = {}
    played: list[tuple[int, int, int]] = []
    wanted = list(range(count))
    for _ in range(rounds + 1):
        tasks = choose(len(wanted))
        found: dict[int, list[Rollout]] = {place: [] for place in wanted}
        for rollout in play(tasks):
            place = wanted[rollout.group]
            found[place].append(dataclasses.replace(rollout, group=place))
        played += [
            (index, sum(r.trajectory.is_correct for r in group), len(group))
            for index, group in zip(tasks, found.values(), strict=True)
        ]
        groups |= found
        wanted = [place for place in wanted if not _has_signal(groups[place])]
        if not wanted:
            break
    return Sampled([rollout for place in range(count) for rollout in groups[place]], played)


def with_signal(rollouts: Sequence[Rollout]) -> torch.Tensor:
    """Return for each rollout whether the outcomes of its group differ, bool `[trajectories]`."""
    groups: dict[int, list[Rollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.group, []).append(rollout)
    return torch.tensor([_has_signal(groups[rollout.group]) for rollout in rollouts])


def _has_signal(group: Sequence[Rollout]) -> bool:
    """Whether the outcomes of the rollouts that can be trained on differ."""
    return len({rollout.trajectory.is_correct for rollout in group if not rollout.judge_failed}) > 1
