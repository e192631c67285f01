"""What a farm holds in memory: images while they travel, and sessions on nodes that are short of it."""

from __future__ import annotations

import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from local_cluster import LocalCluster, LocalNode

from codev_agents import SCRIPTED, run_episode
from codev_env import memory
from codev_env.errors import FarmError
from codev_env.farm import link, remote, work
from codev_env.farm.messages import PackedImage, pack
from codev_env.farm.programs import LocalPrograms
from codev_env.memory import MachineMemory
from codev_env.threads import until_given_up


def until(holds: Any) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_images_are_packed_as_they_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of all episodes that wait would be in memory twice."""
    monkeypatch.setattr(link, "_BATCH_BYTES", 1)
    farm, goes_on, packed, held = LocalCluster(1).farm(), threading.Event(), weakref.WeakSet[PackedImage](), []
    monkeypatch.setattr(remote, "pack", lambda image: (one := pack(image), packed.add(one))[0])
    submit = LocalNode.submit

    def slow(node: LocalNode, batch: Any, timeout: float) -> None:
        assert goes_on.wait(20)
        held.append(len(packed))
        submit(node, batch, timeout)
        node.batches.clear()

    monkeypatch.setattr(LocalNode, "submit", slow)
    envs = gym.make_vec("codev_env:CodeV-VStar-v0", 6, farm=farm, data="synthetic", scenes="toy")
    envs.reset(seed=0)
    goes_on.set()
    until(lambda: len(held) == 6)
    assert max(held) == 1
    until(lambda: not packed)
    assert all(
        len(images) == 1 for images in envs.step(("<code>show(image.crop((10, 20, 90, 120)))</code>",) * 6)[0]["images"]
    )
    envs.close()
    farm.close()


LOOK = "<code>show(image.crop((10, 20, 90, 120)))</code>"
ARGS: dict[str, Any] = {"data": "synthetic", "scenes": "toy", "max_turns": 4}


class Sessions:
    """Counts the sessions on nodes that nobody has asked to close, and says how much of their memory is free."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.most, self.free, self._lock = 0, 0, 1.0, threading.Lock()
        counts = self

        class Counted(LocalPrograms):
            def __init__(self, *given: Any) -> None:
                super().__init__(*given)
                counts.add(1)

        def closed(node: work.NodeWork, number: int) -> None:
            if getattr(node._episodes.get(number), "programs", None):
                counts.add(-1)
            close(node, number)

        close = work.NodeWork._close
        monkeypatch.setattr(work.NodeWork, "_close", closed)
        monkeypatch.setattr(work, "LocalPrograms", Counted)
        monkeypatch.setattr(work, "machine_memory", lambda: MachineMemory(round(100 * self.free), 100))

    def add(self, more: int) -> None:
        with self._lock:
            self.open += more
            self.most = max(self.most, self.open)


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> Sessions:
    return Sessions(monkeypatch)


def play(farm: Any, episodes: int) -> list[Any]:
    """Play episodes at the same time, in an environment each."""

    def one(index: int) -> Any:
        env = gym.make("codev_env:CodeV-VStar-v0", farm=farm, **ARGS)
        return run_episode(env, SCRIPTED["oracle"](), options={"index": index})

    with ThreadPoolExecutor(episodes) as threads:
        return list(threads.map(one, range(episodes)))


def test_a_node_that_is_short_of_memory_opens_no_session_beside_others(sessions: Sessions) -> None:
    """Each would take a worker and its images; episodes end all the same, one after the other."""
    farm = LocalCluster(1, slots=4).farm()
    sessions.free = 0.05
    until(lambda: farm.metrics()["farm/memory_free"] == 0.05)
    played = play(farm, 6)
    assert all(one.is_faithful for one in played) and sessions.most == 1
    until(lambda: not sessions.open)
    farm.close()


@pytest.mark.parametrize(("free", "spare"), [(0.05, 0.0), (0.5, 0.1)])
def test_a_node_that_is_not_short_opens_all_sessions(sessions: Sessions, free: float, spare: float) -> None:
    farm = LocalCluster(1).farm(spare_memory=spare)
    sessions.free = free
    until(lambda: farm.metrics()["farm/memory_free"] == free)
    envs = gym.make_vec("codev_env:CodeV-VStar-v0", 3, farm=farm, **ARGS)
    envs.reset(seed=0)
    envs.step((LOOK,) * 3)
    assert sessions.open == 3
    envs.close()
    farm.close()


def test_episodes_go_to_a_node_with_memory_left(sessions: Sessions) -> None:
    farm = LocalCluster(2).farm(beat_s=0.5)
    first, second = farm._links.values()
    first._options = replace(farm.options, spare_memory=0.9)
    sessions.free = 0.5
    until(lambda: first.is_short and second.memory_free == 0.5)
    assert {farm.enter(()) for _ in range(4)} == {second}
    sessions.free = 1.0
    until(lambda: not first.is_short)
    assert farm.enter(()) is first
    farm.close()


def test_more_environments_than_fit_are_an_error_that_says_so(sessions: Sessions) -> None:
    """None of a batch can end before all have taken their step."""
    farm = LocalCluster(1).farm(wait_s=0.5)
    sessions.free = 0.05
    until(lambda: farm.metrics()["farm/memory_free"] == 0.05)
    envs = gym.make_vec("codev_env:CodeV-VStar-v0", 3, farm=farm, **ARGS)
    envs.reset(seed=0)
    with pytest.raises(FarmError, match="node-0 has 5% of its memory free.* 0.5 s .*spare_memory, 0.1"):
        envs.step((LOOK,) * 3)
    sessions.free = 0.5
    until(lambda: farm.metrics()["farm/memory_free"] == 0.5)
    envs.reset(seed=0)
    assert all(len(images) == 1 for images in envs.step((LOOK,) * 3)[0]["images"])
    envs.close()
    farm.close()


def test_a_program_that_waits_for_memory_ends_when_nobody_waits_for_it(sessions: Sessions) -> None:
    farm, given_up = LocalCluster(1).farm(wait_s=60.0), threading.Event()
    sessions.free = 0.05
    until(lambda: farm.metrics()["farm/memory_free"] == 0.05)
    one, two = (gym.make("codev_env:CodeV-VStar-v0", farm=farm, **ARGS) for _ in range(2))
    one.reset(seed=0)
    one.step(LOOK)
    two.reset(seed=1)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(until_given_up, given_up, two.step, LOOK)
        until(lambda: farm.metrics()["farm/queue"] == 1)
        given_up.set()
        with pytest.raises(FarmError, match="nobody waits"):
            waiting.result(20)
    one.close()
    two.reset(seed=1)
    two.step(LOOK)
    farm.close()


@pytest.mark.parametrize("limit", ["max", "1000"])
def test_the_memory_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """What files in caches take is free."""
    for name, text in {
        "info": "MemTotal: 4 kB\nMemAvailable: 3 kB\n",
        "memory.max": limit,
        "memory.current": "700",
    }.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 200\n")
    monkeypatch.setattr(memory, "_INFO", tmp_path / "info")
    monkeypatch.setattr(memory, "_GROUP", tmp_path)
    assert memory.machine_memory() == (MachineMemory(3072, 4096) if limit == "max" else MachineMemory(500, 1000))
