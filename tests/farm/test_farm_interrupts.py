"""Ctrl-C while a farm has no node or starts: nothing waits for nodes any more."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import gymnasium as gym
import pytest
from local_cluster import LocalCluster, LocalNode

from codev_agents.rollout.workers import StepTimeout, Workers
from codev_env.farm import farm as farms
from codev_env.farm.farm import Farm
from codev_eval.bench.runner import ordered_map
from codev_eval.data.demonstrations.run import _each

ID = "codev_env:CodeV-VStar-v0"
ARGS: dict[str, Any] = {"data": "synthetic", "scenes": "toy", "max_turns": 4}
LONG_S = 60.0  # a wait that nobody gave up would last so long


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    made = LocalCluster(1)
    yield made
    made.specs = {}  # for farms that are still open, which would start others
    for node in made.nodes.values():
        node.killed.set()
        node.work.close()


@pytest.fixture
def farm(cluster: LocalCluster) -> Iterator[Farm]:
    made = cluster.farm(wait_s=LONG_S)
    yield made
    made.close()


def lose_all(cluster: LocalCluster, farm: Farm) -> None:
    cluster.remove("node-0")
    until(lambda: not farm.slots)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG_S / 2
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextmanager
def interrupted(waits: Callable[[], bool]) -> Iterator[None]:
    """Press Ctrl-C once `waits` holds; what is inside has to end soon after."""

    def press() -> None:
        until(waits)
        time.sleep(0.5)  # until the main thread waits
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        yield
    assert time.monotonic() - started < LONG_S / 3


class Waits:
    """Counts the waits for a node."""

    def __init__(self, farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, enter = 0, farm.enter

        def entering(images: Any) -> Any:
            self.count += 1
            return enter(images)

        monkeypatch.setattr(farm, "enter", entering)


@pytest.fixture
def waits(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> Waits:
    return Waits(farm, monkeypatch)


@pytest.mark.parametrize("how", ["cancelled", "late"])
def test_an_episode_that_is_given_up_waits_for_no_node(
    cluster: LocalCluster, farm: Farm, waits: Waits, how: str
) -> None:
    env = gym.make(ID, farm=farm, **ARGS)
    lose_all(cluster, farm)

    async def give_up() -> None:
        workers.open()
        job = asyncio.create_task(workers.wait(env.reset, limit=0.2 if how == "late" else 0.0))
        while not waits.count:
            await asyncio.sleep(0.01)
        if how == "cancelled":
            job.cancel()
        with pytest.raises(StepTimeout if how == "late" else asyncio.CancelledError):
            await job

    workers, started = Workers(2), time.monotonic()
    asyncio.run(give_up())
    workers.close()
    assert time.monotonic() - started < 8


def test_threads_of_an_evaluation_wait_for_no_node(cluster: LocalCluster, farm: Farm, waits: Waits) -> None:
    envs = [gym.make(ID, farm=farm, **ARGS) for _ in range(2)]
    lose_all(cluster, farm)
    with interrupted(lambda: waits.count == 2):
        list(ordered_map(lambda index: envs[index].reset(), range(2), 2))


def test_threads_of_a_replay_wait_for_no_node(cluster: LocalCluster, farm: Farm, waits: Waits) -> None:
    lose_all(cluster, farm)
    with interrupted(lambda: waits.count == 2), closing(_each(lambda index: farm.enter(()), 2, 2)) as found:
        list(found)


def test_a_vector_environment_waits_for_no_node(cluster: LocalCluster, farm: Farm, waits: Waits) -> None:
    envs = gym.make_vec(ID, 2, farm=farm, **ARGS)
    lose_all(cluster, farm)
    with interrupted(lambda: waits.count == 2):
        envs.reset(seed=0)
    started = time.monotonic()
    envs.close()
    assert time.monotonic() - started < LONG_S / 3


def test_a_farm_that_starts_waits_for_no_node(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    hello, asked, answers = LocalNode.hello, threading.Event(), threading.Event()

    def late(self: LocalNode, timeout: float) -> Any:
        asked.set()
        assert answers.wait(LONG_S)
        return hello(self, timeout)

    monkeypatch.setattr(LocalNode, "hello", late)
    with interrupted(asked.is_set):
        cluster.farm()
    starting = [thread for thread in threading.enumerate() if thread.name == "codev-farm-start"]
    assert starting and all(thread.daemon for thread in starting)  # the process ends without them
    answers.set()
    until(cluster.nodes["node-0"].killed.is_set)


def test_the_next_reset_waits_again(cluster: LocalCluster, farm: Farm, waits: Waits, monkeypatch: Any) -> None:
    monkeypatch.setattr(farms, "_LOOK_S", 0.05)
    env = gym.make(ID, farm=farm, **ARGS)
    lose_all(cluster, farm)
    with interrupted(lambda: waits.count == 1):
        list(ordered_map(lambda index: env.reset(), range(1), 1))
    cluster.add("new")
    assert env.reset(seed=0)[1]["turn"] == 0
