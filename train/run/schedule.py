"""A simulator of the schedule of a run: when engines sample and when the trainer updates. Pure functions.

It knows groups, queues, places, staleness and drops as `RolloutStream` does, and nothing of tokens. `--dry-run` uses
it for runs on GPUs, `benchmarks/staleness.py` compares it with a measurement.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from codev_train.run import estimate
from codev_train.run.options import TrainOptions
from codev_train.run.sizes import GPUS, ModelSize

_EPISODES = 4096  # lengths that are drawn for an estimate; a simulation goes through them again and again


@dataclass(frozen=True)
class SchedulePlan:
    """The times and numbers that make a schedule.

    Attributes:
        lengths: Seconds of each episode when it is alone on an engine, in the order in which episodes begin.
        count: Groups per update.
        group: Episodes per group.
        update: Seconds of an update.
        push: Seconds of a push of weights, in which engines pause; ahead, the trainer goes on meanwhile.
        engines: Engines.
        slots: Most episodes at once on each.
        crowding: With k episodes on an engine each takes 1 + crowding (k - 1) times as long: 0 if they do not disturb
            each other, 1 if the engine does one thing at a time.
        staleness: As the option.
        in_flight: As the option.
    """

    lengths: Sequence[float]
    count: int
    group: int
    update: float
    push: float = 0.0
    engines: int = 1
    slots: int = 256
    crowding: float = 0.0
    staleness: int = 0
    in_flight: bool = True


@dataclass(frozen=True)
class Schedule:
    """The result of a simulation: means over the updates after the first ones.

    Attributes:
        seconds: Of an update with what it waits for.
        idle_trainer: Share of the time in which the trainer waits.
        idle_engines: Share of the time in which an engine has no episode.
        lag: Updates between the weights at the beginning of a group and those that are trained on it.
        dropped: Groups dropped per update.
    """

    seconds: float
    idle_trainer: float
    idle_engines: float
    lag: float
    dropped: float


@dataclass(eq=False)
class _Engine:
    """Episodes that share an engine; `done` is the work that each has got since the beginning."""

    crowding: float
    ends: list[tuple[float, int]] = field(default_factory=list)  # (work at its end, group), a heap
    done: float = 0.0
    at: float = 0.0
    busy: float = 0.0

    @property
    def pace(self) -> float:
        return 1 / (1 + self.crowding * (len(self.ends) - 1)) if self.ends else 0.0

    def advance(self, now: float) -> None:
        seconds = max(0.0, now - self.at)
        self.busy += seconds if self.ends else 0.0
        self.done += seconds * self.pace
        self.at += seconds

    def pause(self, end: float) -> None:
        """Do nothing until then; it counts as busy."""
        self.busy += end - self.at if self.ends else 0.0
        self.at = end

    @property
    def next_end(self) -> float:
        return self.at + (self.ends[0][0] - self.done) / self.pace if self.ends else math.inf


def simulate(plan: SchedulePlan, updates: int = 16) -> Schedule:
    """Play a schedule through, until so many updates are made."""
    run = _Run(plan)
    skipped = min(updates - 1, plan.staleness + 2)
    marks = [mark for mark, _ in zip(run.updates(), range(updates), strict=False)]
    first, last, made = marks[skipped - 1] if skipped else _Mark(), marks[-1], updates - skipped
    seconds = last.time - first.time
    return Schedule(
        seconds / made,
        max(0.0, 1 - made * plan.update / seconds),
        1 - (last.busy - first.busy) / (plan.engines * seconds),
        (last.lag - first.lag) / made,
        (last.dropped - first.dropped) / made,
    )


@dataclass(frozen=True)
class _Mark:
    """Sums at the end of an update."""

    time: float = 0.0
    busy: float = 0.0
    lag: float = 0.0
    dropped: float = 0.0


class _Run:
    def __init__(self, plan: SchedulePlan) -> None:
        self.plan, self.now = plan, 0.0
        self.engines = [_Engine(plan.crowding) for _ in range(plan.engines)]
        self.ends, self.loads = np.full(plan.engines, math.inf), np.zeros(plan.engines, int)  # of each, for the search
        self.version = self.update = 0
        self.begun: list[int] = []  # for each group drawn the version at its beginning
        self.left: list[int] = []  # its episodes that have not ended
        self.waiting: deque[int] = deque()
        self.ready: list[int] = []
        self.replaced = self.dropped = self.episodes = 0
        self.lag = 0.0
        self.held = False
        self.pushed = math.inf  # when the push that is under way will end

    def updates(self) -> Iterator[_Mark]:
        """Yield the sums at the end of each update."""
        plan = self.plan
        while True:
            self._until(lambda: len(self.ready) >= plan.count)
            self.ready.sort(key=lambda group: (self.begun[group], group))
            chosen, self.ready = self.ready[: plan.count], self.ready[plan.count :]
            self.lag += sum(self.update - self.begun[group] for group in chosen) / plan.count
            self.update += 1
            self._drop()
            self._until_time(self.now + plan.update)
            self._until(lambda: not self.held)  # one push at a time
            self.held = True
            self._push()
            if not plan.staleness:
                self._until(lambda: not self.held)
            busy = sum(engine.busy for engine in self.engines)
            yield _Mark(self.now, busy, self.lag, self.dropped)

    def _push(self) -> None:
        """Begin a push that is wanted; without `in_flight` only if nothing is played."""
        if not self.held or self.pushed < math.inf:
            return
        if not self.plan.in_flight and any(engine.ends for engine in self.engines):
            return
        self.pushed = self.now + self.plan.push
        for place, engine in enumerate(self.engines):
            engine.advance(self.now)
            engine.pause(self.pushed)
            self._changed(place)

    def _changed(self, place: int) -> None:
        engine = self.engines[place]
        self.ends[place], self.loads[place] = engine.next_end, len(engine.ends)

    def _until(self, holds: Callable[[], bool]) -> None:
        self._begin()
        while not holds():
            self._next()

    def _until_time(self, end: float) -> None:
        self._begin()
        while min(self.ends.min(), self.pushed) <= end:
            self._next()
        self.now = end
        for engine in self.engines:
            engine.advance(end)

    def _next(self) -> None:
        """Go on to the end of an episode or of a push."""
        place = int(self.ends.argmin())
        if self.pushed <= self.ends[place]:
            self.now, self.pushed, self.held = self.pushed, math.inf, False
            self.version += 1
            self._begin()
            return
        engine = self.engines[place]
        self.now = float(self.ends[place])
        engine.advance(self.now)
        _, group = heapq.heappop(engine.ends)
        self._changed(place)
        self.left[group] -= 1
        if not self.left[group]:
            self.ready.append(group)
            self._drop()
        self._push()
        self._begin()

    def _drop(self) -> None:
        old = [group for group in self.ready if self.update - self.begun[group] > self.plan.staleness]
        self.ready = [group for group in self.ready if group not in old]
        self.dropped += len(old)
        self.replaced += len(old)

    def _begin(self) -> None:
        plan = self.plan
        while plan.in_flight or not self.held:
            place = int(self.loads.argmin())
            engine = self.engines[place]
            if len(engine.ends) >= plan.slots:
                return
            if not self.waiting:
                if len(self.begun) - self.replaced >= plan.count * (self.version + plan.staleness + 1):
                    return
                self.waiting.extend([len(self.begun)] * plan.group)
                self.begun.append(self.version)
                self.left.append(plan.group)
            engine.advance(self.now)
            length = plan.lengths[self.episodes % len(plan.lengths)]
            heapq.heappush(engine.ends, (engine.done + length, self.waiting.popleft()))
            self._changed(place)
            self.episodes += 1


def lengths(mean: float, spread: float, count: int = _EPISODES, seed: int = 0) -> list[float]:
    """Draw log-normal lengths with this mean, `spread` being the standard deviation of their logarithms."""
    drawn = np.random.default_rng(seed).lognormal(-(spread**2) / 2, spread, count)
    return (mean * drawn / drawn.mean()).tolist()


def plan_of(size: ModelSize, options: TrainOptions, servers: int = 0) -> SchedulePlan | None:
    """Return the schedule that `estimate.seconds` implies on GPUs; with `servers`, of that many beside the trainers.

    An episode alone takes its prefill and a decoding step for each token; a full engine as long as estimated. Between
    these the time grows with the episodes at once, as the cache that a step reads does. `None` without room for one.
    """
    gpu = GPUS[options.estimate.gpu]
    engines = servers or max(1, options.estimate.gpus)
    together = estimate.episodes_at_once(size, options)
    if not together:
        return None
    sampled, each = estimate.sampled_tokens(options), options.prompts * options.group / engines
    full = estimate.seconds(size, options, gpu)
    one = estimate.seconds(size, dataclasses.replace(options, engine_batch=1), gpu)
    prefill = full.prefill / each
    alone = one.decode / math.ceil(each) + prefill
    crowded = full.decode / math.ceil(each / together) + together * prefill
    assert sampled > 0
    return SchedulePlan(
        lengths=lengths(alone, options.estimate.spread),
        count=options.prompts,
        group=options.group,
        update=full.update + full.looks,
        push=full.push,
        engines=engines,
        slots=together,
        crowding=(crowded / alone - 1) / (together - 1) if together > 1 else 0.0,
        staleness=options.staleness if servers else 0,
        in_flight=options.in_flight,
    )


@dataclass(frozen=True)
class Split:
    """The fastest way found to use a number of GPUs.

    Attributes:
        gpus: All of them.
        servers: Those that sample, beside those that train; 0 if all do both in turn.
        schedule: What it gives.
    """

    gpus: int
    servers: int
    schedule: Schedule


def splits(size: ModelSize, options: TrainOptions, gpus: int) -> tuple[Split, Split] | None:
    """Return the schedule in turn and the fastest one ahead, on the same number of GPUs; `None` if neither has room."""

    def assume(trainers: int, engine: Literal["vllm", "vllm-server"], staleness: int, servers: int = 0) -> Split | None:
        shards = math.gcd(trainers, options.estimate.shards)
        assumed = dataclasses.replace(options.estimate, gpus=trainers, shards=shards, servers=servers)
        made = dataclasses.replace(options, engine=engine, staleness=staleness, estimate=assumed)
        plan = plan_of(size, made, servers)
        return Split(gpus, servers, simulate(plan, 6 + staleness)) if plan else None

    in_turn = assume(gpus, "vllm", 0)
    ahead = [
        found
        for eighths in (1, 2, 3, 4)
        if (servers := gpus * eighths // 8)
        and (found := assume(gpus - servers, "vllm-server", max(1, options.staleness), servers))
    ]
    return (in_turn, min(ahead, key=lambda one: one.schedule.seconds)) if in_turn and ahead else None


def table(size: ModelSize, options: TrainOptions, numbers: Sequence[int] = (8, 16, 32, 64, 128, 256)) -> str:
    """Write the two schedules for several numbers of GPUs; empty without GPUs, or where no number has room."""
    if not options.estimate.gpus:
        return ""
    staleness = max(1, options.staleness)
    head = [
        f"in turn, and ahead by --staleness {staleness} with some GPUs as vllm-server, simulated (seconds of an "
        f"update; lengths of episodes spread by {options.estimate.spread:g})",
        f"  {'GPUs':>4} {'in turn':>9} {'ahead':>9} {'ratio':>6} {'servers':>8} {'trainer idle':>13} "
        f"{'engines idle':>13} {'lag':>5} {'dropped':>8}",
    ]
    lines = []
    for gpus in numbers:
        if options.prompts >= gpus and (found := splits(size, options, gpus)):
            turn, ahead = found
            s = ahead.schedule
            lines.append(
                f"  {gpus:4} {turn.schedule.seconds:9.1f} {s.seconds:9.1f} {turn.schedule.seconds / s.seconds:6.2f} "
                f"{ahead.servers:8} {s.idle_trainer:13.0%} {s.idle_engines:13.0%} {s.lag:5.2f} {s.dropped:8.1f}"
            )
    return "\n".join([*head, *lines]) if lines else ""
