"""Which groups of a batch are played and kept: tasks in the order they are drawn, until enough groups are wanted."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from codev_agents.rollout.player import Group, Rollout
from codev_agents.rollout.requests import Requests
from codev_agents.rollout.unplayable import PromptTooLong, SkippedTask, UnreadableTask


@dataclass(frozen=True)
class PlayedGroup:
    """The outcome of one task.

    Attributes:
        index: Of the task in its set.
        right: Episodes with a right answer.
        episodes: Episodes; 0 if the task was skipped.
    """

    index: int
    right: int
    episodes: int


def any_group(rollouts: list[Rollout]) -> bool:
    """Keep every group."""
    return True


class GroupSource(Protocol):
    """The groups that a runner plays: it draws them, and says how they ended."""

    @property
    def most(self) -> int:
        """Most groups under way."""
        ...

    @property
    def held(self) -> bool:
        """No episode may begin now."""
        ...

    @property
    def enough(self) -> bool:
        """No further group is wanted."""
        ...

    @property
    def under_way(self) -> bool:
        """Groups are drawn that have not ended."""
        ...

    def draw(self) -> Group | None:
        """Return another group to play; `None` if there is none now."""
        ...

    async def more(self, requests: Requests) -> bool:
        """Wait while there may be another group later; false if there will be none."""
        ...

    def playing(self, group: Group) -> AbstractContextManager[None]:
        """An episode of the group is under way inside."""
        ...

    def skip(self, group: Group, error: PromptTooLong | UnreadableTask) -> None:
        """Note that a task cannot be played."""
        ...

    async def save(self, group: Group, rollouts: list[Rollout]) -> None:
        """Keep the rollouts of a group that has ended, so that a kill does not cost them; `end` is called next."""
        ...

    def end(self, group: Group, rollouts: list[Rollout]) -> None:
        """Note the rollouts of a group that has ended."""
        ...


class Selection:
    """Draws groups, and decides which are kept.

    The first `count` groups in draw order for which `keep` holds are kept. A group that ended is not decided on before
    all groups drawn earlier have ended: otherwise groups of short episodes would be kept more often, and the choice
    would depend on timing. A task that is skipped gives way to the next one.

    Args:
        tasks: Indices of tasks in draw order; more of them are taken only when they are needed.
        count: Groups wanted.
        most: Most groups that are played.
        keep: Whether the rollouts of a group are wanted.
    """

    held = False  # its episodes may begin at any time

    def __init__(
        self, tasks: Iterable[int], count: int, most: int, keep: Callable[[list[Rollout]], bool] = any_group
    ) -> None:
        self.count, self.most = count, most
        self._tasks, self._keep = iter(tasks), keep
        self._groups: list[Group] = []
        self._ended: dict[int, list[Rollout] | SkippedTask] = {}
        self._decided = 0  # groups, in draw order
        self._kept: list[int] = []
        self._passed = 0  # groups whose task was skipped

    def draw(self) -> Group | None:
        """Return another group to play; `None` if there is none."""
        full = len(self._groups) - self._passed >= self.most
        index = None if self.enough or full else next(self._tasks, None)
        if index is None:
            return None
        self._groups.append(Group(len(self._groups), index))
        return self._groups[-1]

    async def more(self, requests: Requests) -> bool:
        """Wait while there may be one in place of a task that is skipped; false if there will be none."""
        if unchecked := self.unchecked:
            await unchecked[0].checked.wait()
        return bool(unchecked)

    def playing(self, group: Group) -> AbstractContextManager[None]:
        """An episode of the group is under way inside."""
        return nullcontext()

    def skip(self, group: Group, error: PromptTooLong | UnreadableTask) -> None:
        """Note that a task cannot be played."""
        self._passed += group.number not in self._ended
        self._ended[group.number] = SkippedTask.of(group.index, error)
        self._decide()

    async def save(self, group: Group, rollouts: list[Rollout]) -> None:
        """Do nothing: a batch that is killed is played again."""

    def end(self, group: Group, rollouts: list[Rollout]) -> None:
        """Note the rollouts of a group that has ended."""
        self._ended[group.number] = rollouts
        self._decide()

    def _decide(self) -> None:
        while not self.enough and (outcome := self._ended.get(self._decided)) is not None:
            if isinstance(outcome, list) and self._keep(outcome):
                self._kept.append(self._decided)
            self._decided += 1

    @property
    def enough(self) -> bool:
        """As many groups are kept as are wanted."""
        return len(self._kept) >= self.count

    @property
    def unchecked(self) -> list[Group]:
        """The groups drawn so far of which it is not known yet whether their task is skipped."""
        return [group for group in self._groups if not group.checked.is_set()]

    @property
    def under_way(self) -> bool:
        """Groups are drawn that have not ended."""
        return len(self._ended) < len(self._groups)

    @property
    def rollouts(self) -> list[Rollout]:
        """The rollouts of the kept groups, numbered from 0; if these are too few, the first of the others fill up."""
        played = [number for number in range(self._decided) if isinstance(self._ended[number], list)]
        kept = set(self._kept)
        others = [number for number in played if number not in kept]
        chosen = sorted([*self._kept, *others[: self.count - len(self._kept)]])
        return [
            dataclasses.replace(rollout, group=place)
            for place, number in enumerate(chosen)
            for rollout in self._list(number)
        ]

    @property
    def played(self) -> list[PlayedGroup]:
        """The groups that were decided on, with those that were skipped or not kept."""
        return [
            PlayedGroup(
                self._groups[number].index,
                sum(rollout.trajectory.is_correct for rollout in self._list(number)),
                len(self._list(number)),
            )
            for number in range(self._decided)
        ]

    @property
    def skipped(self) -> list[SkippedTask]:
        """The skipped tasks among those that were decided on."""
        outcomes = (self._ended[number] for number in range(self._decided))
        return [outcome for outcome in outcomes if isinstance(outcome, SkippedTask)]

    def _list(self, number: int) -> list[Rollout]:
        outcome = self._ended[number]
        return outcome if isinstance(outcome, list) else []
