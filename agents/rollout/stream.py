"""Groups of episodes that a thread of its own plays on and on, while the policy is updated.

A group is begun only if it can be used in time: of the groups of n tasks each that u updates, and the next N + 1, need,
as many are begun (AReaL, arXiv 2505.24298, section 5). A group whose oldest token is more than N updates old when it
could be used is dropped, and another one takes its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from codev_agents.rollout.engine import Engine, Sampling
from codev_agents.rollout.groups import EndedGroup, StreamOptions, TakenGroups
from codev_agents.rollout.player import Group, Rollout
from codev_agents.rollout.requests import Requests
from codev_agents.rollout.runner import RolloutRunner
from codev_agents.rollout.selection import PlayedGroup, any_group
from codev_agents.rollout.unplayable import UNPLAYABLE, PromptTooLong, SkippedTask, UnreadableTask
from codev_env.threads import until_given_up

SPARE = 32
"""Tasks, beyond as many as an update wants, that may be skipped for it."""


@dataclass(eq=False)
class _State:
    """The state that both threads share, under the lock of the stream."""

    version: int  # updates of the engine's weights
    update: int  # the next one to be made, from 0
    drawn: int = 0  # groups, by this stream
    playing: int = 0  # episodes
    under_way: set[int] = field(default_factory=set)  # groups
    ready: list[EndedGroup] = field(default_factory=list)
    noted: list[tuple[int, PlayedGroup]] = field(default_factory=list)  # numbers and outcomes that no update trains on
    skipped: list[SkippedTask] = field(default_factory=list)
    replaced: int = 0  # groups in whose place others may begin
    spared: int = 0  # of them those that were not wanted, since the last update
    dropped: int = 0
    held: bool = False
    closed: bool = False
    error: BaseException | None = None


def _in_order(group: EndedGroup) -> tuple[int, int]:
    """The order in which groups are taken: those with the oldest tokens first, then as they were drawn."""
    return group.oldest or 0, group.number


class RolloutStream:
    """Plays groups in a thread; the trainer takes them as they are complete.

    An error of an environment, a judge or the engine ends the thread; the trainer gets it from its next call, as it was
    raised. Used as a context manager, it gives up what is under way at the end.

    Args:
        runner: Plays; nothing else may play with it.
        engine: Samples, also while the policy is trained.
        sampling: How to sample.
        tasks: Gives the indices of the tasks of batch number 0, 1, …: `count` of them. Called in a thread of its own.
        options: How many groups, and how old.
        used: Numbers of groups that earlier updates of a resumed run have used.
        start: The number of the first group that may be missing among them.
        keep: Whether the rollouts of a group are wanted.
        save: Called with each group that has ended, in a thread of its own, before it may be taken.
        saved: Groups that had ended before a run was resumed and that no update has used.
        planned: Numbers of the saved groups that the first updates train on.
    """

    def __init__(
        self,
        runner: RolloutRunner,
        engine: Engine,
        sampling: Sampling,
        tasks: Callable[[int], Sequence[int]],
        options: StreamOptions,
        used: Collection[int] = (),
        start: int = 0,
        keep: Callable[[list[Rollout]], bool] = any_group,
        save: Callable[[EndedGroup], None] = lambda group: None,
        saved: Sequence[EndedGroup] = (),
        planned: Sequence[Sequence[int]] = (),
    ) -> None:
        self.options = options
        self._runner, self._engine, self._sampling = runner, engine, sampling
        self._tasks, self._keep, self._save = tasks, keep, save
        self._used, self._next = {*used, *(group.number for group in saved)}, start
        self._planned = deque(planned)
        self._ended: dict[int, EndedGroup] = {}  # being saved
        self._batch: tuple[int, Sequence[int]] = (-1, ())
        self._choosing = False  # tasks of a batch
        self._changed = threading.Condition()
        self._state = _State(options.first, options.first, drawn=len(saved))
        for group in saved:
            self._add(group)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._given_up = threading.Event()  # for the choice of tasks, which may ask the engine and use an environment
        self._thread = threading.Thread(target=self._work, name="codev-stream", daemon=True)

    # --- the trainer's side ---

    def __enter__(self) -> RolloutStream:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def take(self) -> TakenGroups:
        """Return the groups of the next update, those with the oldest tokens first; waits until they are complete.

        There are fewer than `count` only if too many tasks are skipped.

        Raises:
            Exception: As `RolloutRunner.play`.
        """
        state = self._state
        with self._changed:
            if not self._planned:
                self._changed.wait_for(lambda: self._failed or self._is_next_ready() or not self._may_grow())
            self._check()
            chosen = self._choose()
            state.update += 1
            state.spared = 0
            self._drop()
            noted, state.noted = state.noted, []
            skipped, state.skipped = state.skipped, []
            dropped, state.dropped = state.dropped, 0
            begun, ready, playing = self._next, len(state.ready), state.playing
            self._notify()
        with ThreadPoolExecutor() as threads:
            loaded = list(threads.map(lambda group: group.load(), chosen))
        return TakenGroups(
            [dataclasses.replace(r, group=place) for place, rollouts in enumerate(loaded) for r in rollouts],
            [group.outcome for group in chosen] + [outcome for _, outcome in noted],
            skipped,
            [group.number for group in chosen] + [number for number, _ in noted],
            dropped,
            begun,
            ready,
            playing,
            [group.number for group in chosen],
        )

    def _choose(self) -> list[EndedGroup]:
        """Remove the groups of the next update from those that are ready; the lock is held."""
        state = self._state
        if self._planned:
            by_number = {group.number: group for group in state.ready}
            chosen = [by_number[number] for number in self._planned.popleft()]
        else:
            chosen = sorted(state.ready, key=_in_order)[: self.options.count]
        taken = set(chosen)
        state.ready = [group for group in state.ready if group not in taken]
        return chosen

    def _is_next_ready(self) -> bool:
        """Whether enough groups have ended, and those that come first are saved, too; the lock is held."""
        count, ready = self.options.count, self._state.ready
        if len(ready) < count:
            return False  # asked for after every episode
        saving = [group for group in self._ended.values() if group.wanted and not self._is_too_old(group)]
        chosen = sorted([*ready, *saving], key=_in_order)[:count]
        return set(ready).issuperset(chosen)

    @contextlib.contextmanager
    def updating(self) -> Iterator[None]:
        """The engine's weights are replaced inside by those of the next version. Without `in_flight` no episode runs.

        Any thread may do it. An error inside reaches the trainer from its next call, too.

        Raises:
            Exception: As `take`; a stream that is closed needs no other weights.
        """
        state = self._state
        with self._changed:
            if not self.options.in_flight:
                state.held = True
                self._changed.wait_for(lambda: self._failed or not state.playing)
            if state.closed or not self.options.in_flight:
                self._check()
        try:
            yield
        except BaseException as error:
            with self._changed:
                state.error = state.error or error
                self._notify()
            raise
        with self._changed:
            state.version += 1
            state.held = False
            self._notify()

    def close(self) -> None:
        """Give up the episodes under way and end the thread."""
        self._given_up.set()
        with self._changed:
            self._state.closed = True
            self._notify()  # also whoever waits in `updating` for episodes that will not end any more
            if self._loop and self._task:
                self._loop.call_soon_threadsafe(self._task.cancel)
        if self._thread.is_alive():
            self._thread.join()

    @property
    def _failed(self) -> bool:
        return self._state.closed or self._state.error is not None

    def _check(self) -> None:
        if self._state.error:
            raise self._state.error
        if self._state.closed:
            raise RuntimeError("the stream of rollouts is closed")

    def _notify(self) -> None:
        """Wake both threads; the lock is held."""
        self._changed.notify_all()
        if self._loop:
            self._loop.call_soon_threadsafe(self._wake.set)

    def _may_grow(self) -> bool:
        return bool(self._state.under_way) or self._has_room()

    def _has_room(self) -> bool:
        """Whether another group may begin; the lock is held."""
        options, state = self.options, self._state
        updates = min(state.version + options.staleness + 1, options.last) - options.first
        return state.drawn - state.replaced < options.count * updates

    def _drop(self) -> None:
        """Forget the groups that have ended and that the next update could not use; the lock is held."""
        ready, self._state.ready = self._state.ready, []
        for group in ready:
            self._add(group)

    def _is_too_old(self, group: EndedGroup) -> bool:
        return group.oldest is not None and self._state.update - group.oldest > self.options.staleness

    # --- the side of the thread, as a `GroupSource` ---

    @property
    def most(self) -> int:
        """Most groups under way."""
        return self.options.count * (self.options.staleness + 1)

    @property
    def held(self) -> bool:
        """No episode may begin: the weights are about to be replaced."""
        return self._state.held

    @property
    def enough(self) -> bool:
        """The stream is closed."""
        return self._state.closed

    @property
    def under_way(self) -> bool:
        """Groups are drawn that have not ended."""
        return bool(self._state.under_way)

    def draw(self) -> Group | None:
        """Return another group to play; `None` if there is no room for one now, or its task is still to be chosen."""
        with self._changed:
            if not self._may_begin() or self._batch_of_next() != self._batch[0]:
                return None
            number, self._next = self._next, self._next + 1
            self._state.drawn += 1
            self._state.under_way.add(number)
        self._wake.set()  # for seats that wait for its other episodes
        return Group(number, self._batch[1][number % self.options.count])

    async def more(self, requests: Requests) -> bool:
        """Choose tasks if some are needed, or wait until there may be another episode; false if the stream is closed.

        Tasks are chosen in another thread: it may take as long as many turns, and episodes go on meanwhile.
        """
        with self._changed:
            batch, state = self._batch_of_next(), self._state
            chooses = self._may_begin() and not self._choosing and batch != self._batch[0]
            self._choosing |= chooses
            state.playing += chooses  # it may ask the engine
        if chooses:
            await self._choose_tasks(batch)
        else:
            with requests.resting():
                self._wake.clear()
                await self._wake.wait()
        return not state.closed

    async def _choose_tasks(self, batch: int) -> None:
        try:
            tasks = await asyncio.to_thread(until_given_up, self._given_up, self._tasks, batch)
        except asyncio.CancelledError:
            self._given_up.set()  # the thread is waited for
            raise
        self._batch, self._choosing = (batch, tasks), False
        self._stop_playing()
        self._wake.set()

    def _may_begin(self) -> bool:
        """Whether another group may begin now; the lock is held."""
        return not self._state.closed and not self._state.held and self._has_room()

    def _batch_of_next(self) -> int:
        """Return the number of the batch of tasks that the next group is of; the lock is held."""
        while self._next in self._used:
            self._next += 1
        return self._next // self.options.count

    @contextlib.contextmanager
    def playing(self, group: Group) -> Iterator[None]:
        """An episode of the group is under way inside."""
        with self._changed:
            self._state.playing += 1
        try:
            yield
        except UNPLAYABLE:
            self._stop_playing()
            raise
        # Not after an error: whoever waits for the episodes waits until it is known.
        self._stop_playing()

    def _stop_playing(self) -> None:
        with self._changed:
            self._state.playing -= 1
            self._changed.notify_all()

    def skip(self, group: Group, error: PromptTooLong | UnreadableTask) -> None:
        """Note that a task cannot be played; another one takes its place unless too many were skipped."""
        state = self._state
        with self._changed:
            if group.number not in state.under_way:
                return  # another of its episodes was first
            state.under_way.discard(group.number)
            state.replaced += len(state.skipped) < self.options.count + SPARE
            state.skipped.append(SkippedTask.of(group.index, error))
            state.noted.append((group.number, PlayedGroup(group.index, 0, 0)))
            self._notify()

    async def save(self, group: Group, rollouts: list[Rollout]) -> None:
        """Save a group that has ended, in another thread: episodes go on meanwhile."""
        options, state = self.options, self._state
        wanted = self._keep(rollouts)
        with self._changed:
            wanted = wanted or state.spared >= options.spare * options.count
            state.spared += not wanted
            self._ended[group.number] = ended = EndedGroup.of(group.number, group.index, rollouts, wanted)
        await asyncio.to_thread(self._save, ended)

    def end(self, group: Group, rollouts: list[Rollout]) -> None:
        """Note that a group has ended and is saved."""
        with self._changed:
            self._state.under_way.discard(group.number)
            self._add(self._ended.pop(group.number))
            self._notify()

    def _add(self, group: EndedGroup) -> None:
        """Add a group that has ended, unless the next update could not use it; the lock is held."""
        is_dropped = group.wanted and self._is_too_old(group)
        if group.wanted and not is_dropped:
            self._state.ready.append(group)
        else:
            self._state.noted.append((group.number, group.outcome))
            self._state.replaced += 1
            self._state.dropped += is_dropped

    def _work(self) -> None:
        try:
            with asyncio.Runner() as runner:
                loop = runner.get_loop()
                work = self._runner.play_groups(
                    self._engine, self, self.options.group, self._sampling, memory=self.most
                )
                task = loop.create_task(work)
                with self._changed:
                    self._loop, self._task = loop, task
                    if self._state.closed:
                        task.cancel()
                try:
                    loop.run_until_complete(task)
                finally:
                    with self._changed:
                        self._loop = self._task = None
            raise RuntimeError("the stream of rollouts ended by itself")
        except BaseException as error:
            with self._changed:
                if not self._state.closed:
                    self._state.error = error
                    self._changed.notify_all()
