"""The driver's side of one node: two threads that send requests in batches and receive their results."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from codev_env.errors import FarmError
from codev_env.farm.counts import FarmCounts
from codev_env.farm.messages import Beat, Call, Close, Failed, NodeReport, Open, Request, Result, RunProgram
from codev_env.farm.options import FarmOptions

_BATCH_BYTES = 64 << 20  # pixels of one batch, so that a node's shared memory may be small
_KNOWN = 100_000  # hashes that are remembered of what a node has


class NodeGone(Exception):
    """A node does not answer, or its process has ended; the text says which."""


class NodeHandle(Protocol):
    """Reaches one node. Every call raises `NodeGone` if the node does not answer in time."""

    def hello(self, timeout: float) -> NodeReport:
        """Start the node; see `NodeWork.hello`."""
        ...

    def submit(self, batch: Sequence[Request], timeout: float) -> None:
        """Send requests; see `NodeWork.submit`."""
        ...

    def collect(self, beat_s: float, timeout: float) -> Beat:
        """Wait for results; see `NodeWork.collect`."""
        ...

    def kill(self) -> None:
        """End the node's process at once; never raises."""
        ...


@dataclass(frozen=True)
class NodeSpec:
    """A node of a cluster.

    Attributes:
        name: For people; unique in the cluster.
        slots: Programs that run on it at the same time, of this process.
        sharers: Processes that use it.
    """

    name: str
    slots: int
    sharers: int = 1


class Cluster(Protocol):
    """The machines that nodes can be started on."""

    def alive(self) -> Mapping[str, NodeSpec]:
        """Return the machines that are there, by a key that is never used again for another start of one."""
        ...

    def start(self, key: str, spec: NodeSpec) -> NodeHandle:
        """Start a worker process on a machine; raises `NodeGone`."""
        ...

    def dumps(self, value: object) -> bytes:
        """Pickle a value for the nodes."""
        ...


class NodeLink:
    """Connects the driver to one node that is ready.

    A node gets no more than `slots * in_flight` programs at a time. All others wait here, and there are never more of
    them than environments, since each waits for its result. While a node is short of memory, the first programs of
    episodes are held here: each would start a worker there. One may start where no other of this process is open.

    Args:
        spec: The node.
        handle: Reaches it.
        report: Its report of itself.
        options: Times and limits.
        on_lost: Called once when the node is lost, from one of the threads.
        counts: Gets what its judges count.
    """

    def __init__(
        self,
        spec: NodeSpec,
        handle: NodeHandle,
        report: NodeReport,
        options: FarmOptions,
        on_lost: Callable[[NodeLink], None],
        counts: FarmCounts,
    ) -> None:
        self.spec, self.report, self._handle, self._options, self._on_lost = spec, report, handle, options, on_lost
        self._counts = counts
        self.episodes = 0
        """Open episodes; changed by the farm alone."""
        self.lost = ""
        """Why the node is lost; empty while it works."""
        self.since = time.monotonic()
        self.busy_s = 0.0
        self._room = spec.slots * options.in_flight
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Request | Callable[[], Request], Future[Result] | None]] = deque()
        self._under_way: dict[int, Future[Result]] = {}
        self._known: OrderedDict[str, None] = OrderedDict()
        self._corks = 0
        self._started: set[int] = set()  # open episodes with a program there
        self._held: list[tuple[RunProgram, Future[Result], float]] = []  # first programs, and since when
        self.memory_free = 1.0
        """Share of its memory that is free."""
        for work in (self._send, self._receive):
            threading.Thread(target=work, name=f"codev-farm-{spec.name}", daemon=True).start()

    def put(self, request: Request | Callable[[], Request], future: Future[Result] | None = None) -> None:
        """Queue a request, or a function that makes it when it leaves; `future` gets its result, or `NodeGone`."""
        with self._changed:
            if not self.lost:
                self._waiting.append((request, future))
                if not self._corks:
                    self._changed.notify_all()
                return
        if future is not None:
            future.set_exception(NodeGone(self.lost))

    def announce(self, digests: Sequence[str], make: Callable[[list[str]], Request]) -> None:
        """Queue a request with contents by their hashes.

        Args:
            digests: The contents that the request names.
            make: Takes those that the node does not have yet and returns a request that carries them. It is called when
                the request leaves: contents that wait are not held a second time.
        """
        # In one piece: a request of another thread that names them must not overtake the one that carries them.
        with self._changed:
            new = [digest for digest in dict.fromkeys(digests) if digest not in self._known]
            for digest in digests:
                self._known[digest] = None
                self._known.move_to_end(digest)
            while len(self._known) > _KNOWN:
                self._known.popitem(last=False)
            self.put(partial(make, new))

    def knows(self, digests: Sequence[str]) -> bool:
        """Whether the node has all of these."""
        return all(digest in self._known for digest in digests)

    def cork(self) -> None:
        """Hold requests back, so that those of several environments leave as one batch."""
        with self._changed:
            self._corks += 1

    def uncork(self) -> None:
        """Let them go."""
        with self._changed:
            self._corks -= 1
            self._changed.notify_all()

    @property
    def queue(self) -> tuple[int, int]:
        """Programs that wait here, and programs on the node."""
        with self._changed:
            waiting = len(self._held) + sum(future is not None for _, future in self._waiting)
            return waiting, len(self._under_way)

    @property
    def is_short(self) -> bool:
        """Whether new episodes would leave it too little memory."""
        return self.memory_free < self._options.spare_memory

    def lose(self, reason: str) -> None:
        """Give the node up: everything under way there raises `NodeGone`, and late results are ignored."""
        with self._changed:
            if self.lost:
                return
            self.lost = reason
            left = [future for _, future in self._waiting if future is not None]
            left += [*self._under_way.values(), *(future for _, future, _ in self._held)]
            self._held.clear()
            self._waiting.clear()
            self._under_way.clear()
            self._changed.notify_all()
        try:
            self._on_lost(self)
        finally:  # it may fail to print
            self._counts.forget(self)
            for future in left:
                future.set_exception(NodeGone(reason))
            self._handle.kill()  # last: over a network that is down it takes a while

    def _send(self) -> None:
        while self._waits_to_send():
            try:
                self._submit(self._take())
            except Exception as error:
                return self.lose(_why(error))

    def _submit(self, batch: list[Request]) -> None:
        # A function of its own: a batch with its images must not last until there is another one.
        if batch:  # nothing is left where all programs are held
            self._handle.submit(batch, self._options.patience_s)

    def _waits_to_send(self) -> bool:
        """Wait until requests may leave; false if the node is lost."""
        with self._changed:
            self._changed.wait_for(lambda: self.lost or self._can_send())
            return not self.lost

    def _can_send(self) -> bool:
        return bool(self._waiting) and not self._corks and (self._has_room() or self._waiting[0][1] is None)

    def _has_room(self) -> bool:
        return len(self._under_way) < self._room

    def _take(self) -> list[Request]:
        """Take requests in order, as many as the node has room for."""
        batch: list[Request] = []
        size = 0
        with self._changed:
            while self._waiting and size < _BATCH_BYTES:
                queued, future = self._waiting[0]
                if future is not None and not self._has_room():
                    break
                self._waiting.popleft()
                request = queued() if callable(queued) else queued
                if isinstance(request, RunProgram) and future and self._is_held(request):
                    self._held.append((request, future, time.monotonic()))
                    continue
                if isinstance(request, RunProgram):
                    self._started.add(request.episode)
                if isinstance(request, RunProgram | Call):
                    assert future is not None
                    self._under_way[request.number] = future
                elif isinstance(request, Close):
                    self._end(request.episode)
                elif isinstance(request, Open):
                    size += sum(packed.bytes for packed in request.pixels)
                batch.append(request)
        return batch

    def _is_held(self, request: RunProgram) -> bool:
        return self.is_short and bool(self._started) and request.episode not in self._started

    def _end(self, episode: int) -> None:
        """Note that an episode is closed, with a program that is held or not; the lock is held."""
        self._started.discard(episode)
        ended = [one for one in self._held if one[0].episode == episode]
        self._held = [one for one in self._held if one[0].episode != episode]
        for request, future, _ in ended:
            future.set_result(Failed(request.number, FarmError.__name__, "the episode was closed"))
        self._let_go()

    def _let_go(self) -> None:
        """Queue first programs again that were held, if one of them may leave; the lock is held."""
        if self._held and not (self.is_short and self._started):
            self._waiting.extendleft((request, future) for request, future, _ in reversed(self._held))
            self._held.clear()

    def _late(self) -> list[Future[Result]]:
        """Return the futures of programs that were held for too long, which are dropped; the lock is held."""
        end = time.monotonic() - self._options.wait_s
        late = [future for _, future, since in self._held if since < end]
        self._held = [one for one in self._held if one[2] >= end]
        return late

    def _receive(self) -> None:
        options = self._options
        while not self.lost:
            try:
                beat = self._handle.collect(options.beat_s, options.patience_s)
                self._counts.add(self, beat.counted)
            except Exception as error:
                return self.lose(_why(error))
            with self._changed:
                self.busy_s, self.memory_free = beat.busy_s, beat.memory_free
                late = self._late()
                self._let_go()
                ended = [(self._under_way.pop(result.number, None), result) for result in beat.results]
                self._changed.notify_all()
            for future, result in ended:
                if future is not None:
                    future.set_result(result)
            for future in late:
                future.set_exception(self._too_long())

    def _too_long(self) -> FarmError:
        return FarmError(
            f"node {self.spec.name} has {self.memory_free:.0%} of its memory free, so the first program of an "
            f"episode has waited there for {self._options.wait_s:g} s (option wait_s). Run fewer environments at once, "
            f"add nodes, or lower the option spare_memory, {self._options.spare_memory:g}."
        )


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, NodeGone) else repr(error)
