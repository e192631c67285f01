"""A farm: the nodes of a cluster, which of them gets an episode, and what happens when one is lost or added."""

from __future__ import annotations

import atexit
import hashlib
import itertools
import os
import pickle
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any

from codev_env.errors import ConfigError, EpisodeLost, FarmError, SandboxError
from codev_env.farm.counts import FarmCounts
from codev_env.farm.link import Cluster, NodeGone, NodeHandle, NodeLink, NodeSpec
from codev_env.farm.messages import Call, EpisodeSetup, Failed, NodeReport, Result, Returned
from codev_env.farm.node_check import check_node
from codev_env.farm.options import FarmOptions, make_options
from codev_env.farm.remote import MOST_LOSSES, TROUBLE, RemotePrograms, error_of
from codev_env.sandbox import Limits
from codev_env.threads import in_own_thread, is_given_up
from codev_env.types import Task

_LOOK_S = 2.0  # between two looks for new nodes
_BACK_S = (5.0, 300.0)  # shortest and longest time before a lost node is tried again
_MOST_TROUBLE = 3  # failures of a node's sandbox in a row before it counts as lost

_lock = threading.Lock()
_farms: dict[tuple[int, FarmOptions], Farm] = {}


class Farm:
    """Runs episodes on the nodes of a cluster. Thread-safe.

    Args:
        cluster: The machines.
        options: Times and limits.

    Raises:
        ConfigError: A node has another version of codev_env.
        SandboxError: The sandbox of a node lacks required layers.
        FarmError: There is no node.
    """

    def __init__(self, cluster: Cluster, options: FarmOptions) -> None:
        self.options, self._cluster = options, cluster
        self._changed = threading.Condition()
        self._links: dict[str, NodeLink] = {}
        self._starting: set[str] = set()
        self._refused: set[str] = set()
        self._back: dict[str, tuple[float, float]] = {}
        self._trouble: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self.counts, self._numbers = FarmCounts(), itertools.count()
        self._seen: tuple[float, dict[NodeLink, float]] = (time.monotonic(), {})
        self._closed = threading.Event()
        self._begin()
        threading.Thread(target=self._watch, name="codev-farm", daemon=True).start()

    # Episodes

    def setup(self, setup: EpisodeSetup) -> tuple[bytes, str]:
        """Pickle a setup; returns its bytes and their hash.

        Raises:
            ConfigError: The dialect or the judge cannot be pickled.
        """
        content = self.dumps(setup, f"dialect {setup.dialect.name!r} or judge {setup.judge.name!r}")
        return content, self.counts.watch(hashlib.sha256(content).hexdigest(), setup.judge)

    def open(self, setup: tuple[bytes, str], task: Task) -> RemotePrograms:
        """Open an episode on the node with the least to do; one with memory left comes first, then one with the images.

        Raises:
            FarmError: There was no node for `wait_s` seconds.
        """
        return RemotePrograms(self, setup, task)

    def call(self, limits: Limits, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function with a sandbox of some node; on another one if that is lost, so it must have no effects.

        Args:
            limits: Limits of the sandbox.
            function: Importable on the nodes; it gets the sandbox and the arguments.
            *arguments: They travel, as does the value that it returns.

        Raises:
            FarmError: Several nodes were lost over it, or their sandboxes failed, or there is none.
        """
        losses: list[str] = []
        content = self.dumps((function, arguments), function.__name__)
        while len(losses) < MOST_LOSSES:
            link, future = self.enter(()), Future[Result]()
            try:
                link.put(Call(self.number(), limits, content), future)
                result = future.result()
            except NodeGone as gone:
                losses.append(f"{link.spec.name}: {gone}")
                self.moved()
                continue
            finally:
                self.leave(link)
            if isinstance(result, Returned):
                self.worked(link)
                return pickle.loads(result.value)  # of a node, which is trusted as Ray trusts it
            assert isinstance(result, Failed)
            if result.kind not in TROUBLE:
                raise error_of(result, link.spec.name)
            losses.append(f"{link.spec.name}: {result.message}")
            self.trouble(link, result.message)
            self.moved()
        raise FarmError(f"{len(losses)} nodes were lost during one call of {function.__name__} ({'; '.join(losses)}).")

    @contextmanager
    def together(self) -> Iterator[None]:
        """Send what is asked for inside as one batch per node."""
        with self._changed:
            links = list(self._links.values())
        for link in links:
            link.cork()
        try:
            yield
        finally:
            for link in links:
                link.uncork()

    # The state of the farm

    @property
    def slots(self) -> int:
        """Programs that run at the same time on all nodes."""
        with self._changed:
            return sum(link.spec.slots for link in self._links.values())

    def describe(self) -> dict[str, NodeReport]:
        """Return the report of each node, by its name."""
        with self._changed:
            return {link.spec.name: link.report for link in self._links.values()}

    def metrics(self) -> dict[str, float]:
        """Return numbers for a log: totals since the start, and idle shares since the last call."""
        with self._changed:
            links, counts = list(self._links.values()), Counter(self._counts)
            then, busy = self._seen
            at = time.monotonic()
            self._seen = at, {link: link.busy_s for link in links}
        queues = [link.queue for link in links]
        values: dict[str, float] = {
            "farm/nodes": len(links),
            "farm/queue": sum(waiting for waiting, _ in queues),
            "farm/in_flight": sum(running for _, running in queues),
            "farm/memory_free": min((link.memory_free for link in links), default=1.0),
            "farm/nodes_lost": counts["nodes_lost"],
            "farm/episodes_restarted": counts["episodes_lost"],
            "farm/programs_moved": counts["moved"],
            "farm/node_failures": counts["failures"],
        }
        shares, idle_s, whole_s = {}, 0.0, 0.0
        for link in links:
            # A node that has started again since then counts its time from 0.
            there_s = max(1e-9, (at - max(then, link.since)) * link.spec.slots)
            share = min(1.0, max(0.0, 1.0 - (link.busy_s - busy.get(link, 0.0)) / there_s))
            shares[f"farm/idle_share/{link.spec.name}"] = share
            idle_s, whole_s = idle_s + share * there_s, whole_s + there_s
        values["farm/idle_share"] = idle_s / whole_s if links else 1.0
        return {name: float(value) for name, value in values.items()} | shares

    def close(self) -> None:
        """End the worker processes of all nodes."""
        self._closed.set()
        with self._changed:
            links = list(self._links.values())
            self._links.clear()
            self._changed.notify_all()
        for link in links:
            link.lose("the farm is closed")

    def __deepcopy__(self, memo: dict[int, Any]) -> Farm:
        return self  # Gymnasium copies the arguments of an environment

    # For episodes

    def number(self) -> int:
        """Return a number that is given once."""
        return next(self._numbers)

    def enter(self, images: Sequence[str]) -> NodeLink:
        """Choose a node for an episode with these images and count it there."""
        end = time.monotonic() + self.options.wait_s
        with self._changed:
            # One that is just being lost has nothing to do, and would be chosen by every episode.
            while not (there := [link for link in self._links.values() if not link.lost]):
                if self._closed.is_set():
                    raise FarmError("this farm is closed; make the environments again.")
                if is_given_up():
                    raise FarmError("nobody waits for a node of this farm any more.")
                if not self._changed.wait(max(0.0, min(0.5, end - time.monotonic()))) and time.monotonic() >= end:
                    raise FarmError(f"the farm has had no node for {self.options.wait_s:g} s (option wait_s).")

            def load(link: NodeLink) -> tuple[bool, float]:
                # Up to half a program per core: a node that has the images is worth that much of a queue.
                return link.is_short, link.episodes / link.spec.slots - (0.5 if images and link.knows(images) else 0.0)

            chosen = min(there, key=load)
            chosen.episodes += 1
            return chosen

    def leave(self, link: NodeLink) -> None:
        """Count an episode off its node."""
        with self._changed:
            link.episodes -= 1

    def dumps(self, value: object, name: str) -> bytes:
        """Pickle a value for the nodes; raises `ConfigError` that names it where that is not possible."""
        try:
            return self._cluster.dumps(value)
        except Exception as error:
            raise ConfigError(f"{name} cannot be pickled, so it cannot travel to a node: {error}") from error

    def moved(self) -> None:
        """Count a program that goes to another node."""
        with self._changed:
            self._counts["moved"] += 1

    def lost_episode(self, reason: str) -> EpisodeLost:
        """Count an episode that has to start again, and return the error that says so."""
        with self._changed:
            self._counts["episodes_lost"] += 1
        return EpisodeLost(f"{reason}. The episode has to start again: reset the environment.")

    def trouble(self, link: NodeLink, reason: str) -> None:
        """Note that the sandbox of a node failed; several failures in a row and the node starts again."""
        with self._changed:
            self._counts["failures"] += 1
            self._trouble[link.spec.name] += 1
            again = self._trouble[link.spec.name] >= _MOST_TROUBLE
        if again:
            link.lose(f"its sandbox failed {_MOST_TROUBLE} times in a row: {reason}")

    def worked(self, link: NodeLink) -> None:
        """Note that a program ran on a node: failures before it do not count any more."""
        if self._trouble[link.spec.name]:
            with self._changed:
                self._trouble[link.spec.name] = 0

    # Nodes

    def _begin(self) -> None:
        """Start the nodes that are there, side by side; the first error is raised when all have answered."""
        found = self._cluster.alive()
        if not found:
            who = f"each of the {self.options.share} processes that share it" if self.options.share > 1 else "programs"
            raise FarmError(f"the cluster has no cores for {who}. Start a node: `ray start --address=HOST:6379`.")
        started = {key: in_own_thread("codev-farm-start", self._start, key, spec)[0] for key, spec in found.items()}
        try:
            problems = {key: error for key, future in started.items() if (error := future.exception()) is not None}
        except BaseException:  # Ctrl-C: who starts later is ended
            self.close()
            raise
        for key, error in problems.items():
            if isinstance(error, FarmError) and self._links:  # it is tried again later, as one that is lost
                self._wait_with(key)
                print(f"farm: {error}", file=sys.stderr)
                continue
            self.close()
            raise error

    def _start(self, key: str, spec: NodeSpec) -> None:
        """Start one node and check it."""
        handle: NodeHandle | None = None
        try:
            handle = self._cluster.start(key, spec)
            report = handle.hello(self.options.start_s)
            check_node(spec, report, self.options.allow_weaker)
        except BaseException as error:
            if handle is not None:
                handle.kill()  # it may only be slow, and each further start would leave one more
            if isinstance(error, NodeGone):
                raise FarmError(f"node {spec.name} did not start: {error}") from error
            raise
        with self._changed:
            self._starting.discard(key)
            if not self._closed.is_set():
                self._links[key] = NodeLink(spec, handle, report, self.options, partial(self._lost, key), self.counts)
                self._trouble[spec.name] = 0
                self._changed.notify_all()
                return
        handle.kill()

    def _lost(self, key: str, link: NodeLink) -> None:
        if self._closed.is_set():
            return
        with self._changed:
            self._links.pop(key, None)
            self._counts["nodes_lost"] += 1
            if time.monotonic() - link.since > _BACK_S[1]:
                self._back.pop(key, None)  # it was well for so long that the losses before say nothing
            self._wait_with(key)
            left = len(self._links)
        print(f"farm: node {link.spec.name} is lost, {left} left: {link.lost}", file=sys.stderr)

    def _wait_with(self, key: str) -> None:
        """Start a node again after a pause, which doubles each time."""
        pause = min(_BACK_S[1], 2 * self._back.get(key, (0.0, _BACK_S[0] / 2))[1])
        self._back[key] = time.monotonic() + pause, pause

    def _watch(self) -> None:
        """Start workers on machines that are added or come back, until the farm is closed."""
        while not self._closed.wait(_LOOK_S):
            try:
                found = self._cluster.alive()
            except Exception as error:  # of whichever kind: the cluster's head may be gone for a while
                warnings.warn(f"farm: the cluster does not answer: {error!r}", RuntimeWarning, stacklevel=2)
                continue
            with self._changed:
                busy = self._links.keys() | self._starting | self._refused
                due = [
                    key for key in found if key not in busy and self._back.get(key, (0.0, 0.0))[0] <= time.monotonic()
                ]
                self._starting.update(due)
            for key in due:
                threading.Thread(target=self._add, args=(key, found[key]), daemon=True).start()

    def _add(self, key: str, spec: NodeSpec) -> None:
        """Start a node while episodes are under way: one that cannot be used is left out with a warning."""
        try:
            self._start(key, spec)
        except Exception as error:
            # The sandbox of a node that has worked may find no memory for a while.
            again = isinstance(error, FarmError) or (isinstance(error, SandboxError) and key in self._back)
            with self._changed:
                if again:
                    self._wait_with(key)
                else:
                    self._refused.add(key)
            print(f"farm: {error}" if again else f"farm: node {spec.name} is left out: {error}", file=sys.stderr)
        else:
            print(f"farm: node {spec.name} is ready, {len(self._links)} in all", file=sys.stderr)
        finally:
            with self._changed:
                self._starting.discard(key)


def get_farm(farm: str | Mapping[str, Any] | FarmOptions | Farm, **more: Any) -> Farm:
    """Return the farm that an argument names; environments of a process with the same options share one.

    Args:
        farm: `"ray"`, `"ray://HOST:PORT"`, a mapping of `FarmOptions` or its JSON, or a `Farm`.
        **more: Options that the argument may override.

    Raises:
        ConfigError: An option cannot be used, or Ray is not installed.
    """
    if isinstance(farm, Farm):
        return farm
    options = make_options(farm, **more)
    key = (os.getpid(), options)
    with _lock:
        if key not in _farms or _farms[key]._closed.is_set():
            from codev_env.farm.ray_nodes import RayCluster

            _farms[key] = Farm(RayCluster(options), options)
            atexit.register(close_farms)  # after Ray's own, which runs later then: its nodes would be lost
        return _farms[key]


def farm_metrics() -> dict[str, float]:
    """Return the numbers of this process's farms, as `Farm.metrics`; empty without.

    They are sums, but for the means of idle shares and the least memory.
    """
    with _lock:
        farms = [farm for (process, _), farm in _farms.items() if process == os.getpid() and not farm._closed.is_set()]
    found = [(max(1, farm.slots), farm.metrics()) for farm in farms]
    values: dict[str, float] = {}
    for name in dict.fromkeys(name for _, metrics in found for name in metrics):
        own = [(cores, metrics[name]) for cores, metrics in found if name in metrics]
        cores = sum(one for one, _ in own)
        values[name] = sum(n * v / cores for n, v in own) if "/idle_share" in name else sum(v for _, v in own)
        if name == "farm/memory_free":
            values[name] = min(v for _, v in own)
    return values


def close_farms() -> None:
    """Close the farms of this process; the next use starts new ones."""
    with _lock:
        for key in [key for key in _farms if key[0] == os.getpid()]:
            _farms.pop(key).close()
