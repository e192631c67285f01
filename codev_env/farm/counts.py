"""The counters of judges that run on nodes: they come home with results, and budgets are of all nodes."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from codev_env.judges import CountingJudge, Judge
from codev_env.judges.options import JudgeStats


class FarmCounts:
    """The process that asks: adds what nodes have counted to its own judges. Thread-safe.

    Setups are named by their hash, nodes by any hashable object.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._judges: dict[str, CountingJudge] = {}
        self._there: dict[tuple[object, int], JudgeStats] = {}  # by node and judge

    def watch(self, setup: str, judge: Judge) -> str:
        """Note the judge of a setup, if it counts; returns the name of the setup."""
        if isinstance(judge, CountingJudge):
            with self._lock:
                self._judges.setdefault(setup, judge)
        return setup

    def add(self, node: object, counted: Mapping[str, JudgeStats]) -> None:
        """Add what the judges of some setups have counted on a node since it was asked last."""
        with self._lock:
            for setup, stats in counted.items():
                judge = self._judges[setup]
                judge.count(stats)
                key = node, id(judge)
                self._there[key] = self._there.get(key, JudgeStats()) + stats

    def elsewhere(self, node: object, setup: str) -> JudgeStats | None:
        """Return what the judge of a setup has counted, as far as is known, on all machines but a node."""
        with self._lock:
            if (judge := self._judges.get(setup)) is None:
                return None
            return judge.stats() - self._there.get((node, id(judge)), JudgeStats())

    def forget(self, node: object) -> None:
        """Forget which part was counted by a node that is lost; it stays part of the sum."""
        with self._lock:
            self._there = {key: stats for key, stats in self._there.items() if key[0] is not node}


@dataclass(eq=False)
class _Counted:
    """A judge of a node: the setup that it was first seen in, what it has reported, and what it has heard."""

    judge: CountingJudge
    setup: str
    reported: JudgeStats = field(default_factory=JudgeStats)
    heard: JudgeStats = field(default_factory=JudgeStats)


class NodeCounts:
    """A node: what its judges count. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[int, _Counted] = {}

    def watch(self, setup: str, judge: Judge) -> None:
        """Note the judge of a setup. Several setups may have the same one, which is counted once."""
        if isinstance(judge, CountingJudge):
            with self._lock:
                self._found.setdefault(id(judge), _Counted(judge, setup))

    def hear(self, judge: Judge, elsewhere: JudgeStats | None) -> None:
        """Add what a judge has counted on other machines; what is older than the last news is ignored."""
        if elsewhere is None:
            return
        with self._lock:
            counted = self._found[id(judge)]
            if elsewhere.calls > counted.heard.calls:
                counted.judge.count(elsewhere - counted.heard)
                counted.heard = elsewhere

    def take(self) -> dict[str, JudgeStats]:
        """Return what was counted here since the last call, by setup."""
        taken = {}
        with self._lock:
            for counted in self._found.values():
                own = counted.judge.stats() - counted.heard
                if own != counted.reported:
                    taken[counted.setup] = own - counted.reported
                    counted.reported = own
        return taken
