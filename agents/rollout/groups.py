"""Options and results of a stream of rollouts: groups that have ended, and the groups of an update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from codev_agents.rollout.player import Rollout
from codev_agents.rollout.selection import PlayedGroup
from codev_agents.rollout.unplayable import SkippedTask


@dataclass(frozen=True)
class StreamOptions:
    """How a stream plays.

    Attributes:
        count: Groups per update.
        group: Episodes per group.
        staleness: Most updates between the weights that sampled a token and those that are trained on it.
        first: Updates done when the stream begins.
        last: Updates of the run; nothing is played for later ones.
        in_flight: Weights may change while an episode is played. Otherwise no episode begins before an update of the
            weights, which waits for those under way.
        spare: Groups per update that are played in place of others that `keep` does not want, as a multiple of `count`;
            further ones are used although it does not want them.
    """

    count: int
    group: int
    staleness: int
    first: int = 0
    last: int = 2**62
    in_flight: bool = True
    spare: int = 0


@dataclass(frozen=True, eq=False)
class TakenGroups:
    """The groups of one update.

    Attributes:
        rollouts: Those to train on, the groups numbered from 0.
        played: The outcomes of these groups, of those that `keep` did not want or that were too old, and of the tasks
            that were skipped, since the update before.
        skipped: The skipped tasks among them.
        numbers: The numbers of all of them, in the order in which tasks are drawn.
        dropped: How many were too old.
        begun: Numbers below this have been drawn so far.
        ready: Groups that have ended and wait for a later update.
        playing: Episodes under way.
        trained: The numbers of the groups to train on, in their order.
    """

    rollouts: list[Rollout]
    played: list[PlayedGroup]
    skipped: list[SkippedTask]
    numbers: list[int]
    dropped: int
    begun: int
    ready: int
    playing: int
    trained: Sequence[int] = ()


@dataclass(frozen=True, eq=False)
class EndedGroup:
    """A group whose episodes have all ended.

    Attributes:
        number: In the order in which tasks are drawn.
        outcome: Its outcome.
        versions: The oldest and the newest version that sampled one of its tokens; `None` if they are unknown.
        wanted: It may be trained on; otherwise only its outcome matters.
        load: Gives its rollouts: one that was saved is read when it is needed.
    """

    number: int
    outcome: PlayedGroup
    versions: tuple[int, int] | None
    wanted: bool
    load: Callable[[], list[Rollout]]

    @classmethod
    def of(cls, number: int, index: int, rollouts: list[Rollout], wanted: bool) -> EndedGroup:
        """Return a group that was just played."""
        known = [version for rollout in rollouts for version in rollout.tokens.versions if version >= 0]
        right = sum(rollout.trajectory.is_correct for rollout in rollouts)
        outcome = PlayedGroup(index, right, len(rollouts))
        return cls(number, outcome, (min(known), max(known)) if known else None, wanted, lambda: rollouts)

    @property
    def oldest(self) -> int | None:
        """The oldest version that sampled one of its tokens."""
        return self.versions[0] if self.versions else None
