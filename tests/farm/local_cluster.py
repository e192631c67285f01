"""A cluster of threads: nodes of a farm in this process, which can be killed, frozen and added."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from codev_env.farm.farm import Farm
from codev_env.farm.link import NodeGone, NodeSpec
from codev_env.farm.messages import Beat, NodeReport, Open, Request, RunProgram
from codev_env.farm.options import FarmOptions
from codev_env.farm.work import NodeWork

QUICK = {"beat_s": 0.05, "patience_s": 2.0, "wait_s": 20.0}


class LocalNode:
    """A node in this process; everything that reaches it is pickled on the way."""

    def __init__(self, slots: int, options: FarmOptions, report: dict[str, Any]) -> None:
        self.work = NodeWork(slots, options.images_mb, options.allow_weaker)
        self.report, self.killed, self.frozen = report, threading.Event(), threading.Event()
        self.batches: list[list[Request]] = []
        self.die_at = 0  # number of programs at which it dies
        self.most_under_way = 0
        self._under_way = 0

    def hello(self, timeout: float) -> NodeReport:
        self._answer()
        return replace(self.work.hello(), **self.report)

    def submit(self, batch: Sequence[Request], timeout: float) -> None:
        self._answer()
        self.batches.append(list(batch))
        self._under_way += sum(isinstance(request, RunProgram) for request in batch)
        self.most_under_way = max(self.most_under_way, self._under_way)
        self.work.submit(pickle.loads(pickle.dumps(list(batch))))
        if self.die_at and sum(self.programs()) >= self.die_at:
            self.killed.set()

    def collect(self, beat_s: float, timeout: float) -> Beat:
        self._answer()
        beat = self.work.collect(beat_s)
        self._answer()
        self._under_way -= len(beat.results)
        return pickle.loads(pickle.dumps(beat))

    def kill(self) -> None:
        self.killed.set()
        self.frozen.clear()

    def programs(self) -> list[int]:
        """The number of programs of each batch."""
        return [sum(isinstance(request, RunProgram) for request in batch) for batch in self.batches]

    def pixels(self) -> int:
        """How many images arrived here."""
        return sum(len(r.pixels) for batch in self.batches for r in batch if isinstance(r, Open))

    def _answer(self) -> None:
        if self.killed.is_set():
            raise NodeGone("killed")
        if self.frozen.is_set():
            self.killed.wait(0.5)
            raise NodeGone("no answer for 0.5 s")


class LocalCluster:
    """Nodes by key; `reports` changes what a node says of itself."""

    def __init__(self, nodes: int = 1, slots: int = 2) -> None:
        self.specs = {f"node-{n}": NodeSpec(f"node-{n}", slots) for n in range(nodes)}
        self.nodes: dict[str, LocalNode] = {}
        self.reports: dict[str, dict[str, Any]] = {}
        self.options = FarmOptions(**QUICK)

    def alive(self) -> Mapping[str, NodeSpec]:
        return dict(self.specs)

    def start(self, key: str, spec: NodeSpec) -> LocalNode:
        node = self.nodes[key] = LocalNode(spec.slots, self.options, self.reports.get(key, {}))
        return node

    def dumps(self, value: object) -> bytes:
        return pickle.dumps(value)

    def add(self, key: str, slots: int = 2) -> None:
        self.specs = {**self.specs, key: NodeSpec(key, slots)}

    def remove(self, key: str) -> None:
        """A machine that is gone: it is not listed, and its node is dead."""
        self.specs = {name: spec for name, spec in self.specs.items() if name != key}
        self.nodes[key].killed.set()

    def farm(self, **options: Any) -> Farm:
        self.options = FarmOptions(**{**QUICK, **options})
        return Farm(self, self.options)
