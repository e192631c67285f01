"""A farm whose nodes start too slowly or whose sandboxes fail under calls, and numbers of nodes of several sizes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import pytest
from local_cluster import LocalCluster, LocalNode

from codev_agents import SCRIPTED, run_episode
from codev_env.envs.pool import make_limits
from codev_env.errors import FarmError, JudgeError, SandboxError
from codev_env.farm import farm as farms
from codev_env.farm import ray_nodes
from codev_env.farm.link import NodeGone
from codev_env.sandbox.host.process import ZygoteGone
from codev_env.types import StepScore
from codev_env.usage import EpisodeUsage, Usage
from codev_eval.bench.usage import judge_usage

ID = "codev_env:CodeV-VStar-v0"
ARGS: dict[str, Any] = {"data": "synthetic", "scenes": "toy", "max_turns": 4}
LOOK = "<code>show(image.crop((10, 20, 90, 120)))</code>"


class NoReply(JudgeError):
    """An error of a user's own judge."""


class Unsure:
    """A judge that asks a server and gets no verdict."""

    name = "unsure"

    def score(self, task: Any, step: Any, history: Any) -> Any:
        error = JudgeError("no verdict in the reply")
        error.usage = EpisodeUsage(judge=Usage(2, 300, 40, 0.5))
        raise error


class Priced:
    """A judge that asks a server, once per call."""

    name = "priced"

    def score(self, task: Any, step: Any, history: Any) -> StepScore:
        return StepScore(1.0, "yes", usage=Usage(1, 100, 10, 0.5))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    monkeypatch.setattr(farms, "_LOOK_S", 0.05)
    monkeypatch.setattr(farms, "_BACK_S", (0.1, 0.2))
    made = LocalCluster(1)
    yield made
    made.specs = {}  # for farms that are still open, which would start others
    for node in made.nodes.values():
        node.killed.set()
        node.work.close()


def until(holds: Any) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def layers(box: Any) -> Any:
    return box.describe()


def failing(node: LocalNode, times: int, monkeypatch: pytest.MonkeyPatch, kind: type[Exception] = SandboxError) -> None:
    """Let the sandbox of a node fail so many times."""
    left, box = [times], node.work._box

    def sometimes(limits: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise kind("no memory for a process")
        return box(limits)

    monkeypatch.setattr(node.work, "_box", sometimes)


def test_a_call_is_made_again_where_the_sandbox_of_a_node_fails(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One row of `codev data replay` is not the end of all of them."""
    farm = cluster.farm()
    for _ in range(2):  # two failures in a row each time; a call that works is between them
        failing(cluster.nodes["node-0"], 2, monkeypatch)
        assert farm.call(make_limits(None), layers)["process"] == "on"
    numbers = farm.metrics()
    assert numbers["farm/node_failures"] == numbers["farm/programs_moved"] == 4 and numbers["farm/nodes_lost"] == 0
    farm.close()


def test_errors_of_a_kind_of_their_own_count_as_the_kind_they_are_of(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that makes sandbox workers is killed twice in a row, as the kernel does where memory is short."""
    farm = cluster.farm()
    failing(cluster.nodes["node-0"], 1, monkeypatch, ZygoteGone)
    assert farm.call(make_limits(None), layers)["process"] == "on" and farm.metrics()["farm/node_failures"] == 1
    failing(cluster.nodes["node-0"], 1, monkeypatch, NoReply)
    with pytest.raises(JudgeError, match="no memory"):
        farm.call(make_limits(None), layers)
    farm.close()


def test_a_node_whose_sandbox_fails_under_calls_starts_again(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    farm, first = cluster.farm(), cluster.nodes["node-0"]
    failing(first, 99, monkeypatch)
    assert farm.call(make_limits(None), layers)["process"] == "on"
    assert first.killed.is_set() and farm.metrics()["farm/nodes_lost"] == 1
    first.work.close()
    farm.close()


def test_a_call_that_fails_on_every_node_says_why(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    farm, start = cluster.farm(), cluster.start

    def bad(key: str, spec: Any) -> LocalNode:
        node = start(key, spec)
        report = node.work.hello()
        monkeypatch.setattr(node.work, "hello", lambda: report)
        failing(node, 99, monkeypatch)
        return node

    monkeypatch.setattr(cluster, "start", bad)
    failing(cluster.nodes["node-0"], 99, monkeypatch)
    with pytest.raises(FarmError, match="call of layers.*no memory for a process"):
        farm.call(make_limits(None), layers)
    farm.close()


def test_a_node_that_starts_too_slowly_is_killed(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    farm, hello = cluster.farm(), LocalNode.hello

    def late(self: LocalNode, timeout: float) -> Any:
        if self is cluster.nodes.get("late"):
            raise NodeGone(f"no answer for {timeout:g} s")
        return hello(self, timeout)

    monkeypatch.setattr(LocalNode, "hello", late)
    cluster.add("late")
    until(lambda: "late" in cluster.nodes and cluster.nodes["late"].killed.is_set())
    assert farm.slots == 2
    farm.close()


def test_a_node_that_has_worked_is_tried_again_where_its_sandbox_does_not_start(cluster: LocalCluster) -> None:
    """The kernel killed it for memory, and there is still none."""
    farm, first = cluster.farm(), cluster.nodes["node-0"]
    cluster.reports["node-0"] = {"refused": "the sandbox process did not start: no memory."}
    first.killed.set()
    until(lambda: cluster.nodes["node-0"] is not first and cluster.nodes["node-0"].killed.is_set())
    assert not farm.slots
    cluster.reports.clear()
    until(lambda: farm.slots == 2)
    farm.close()


def test_the_idle_share_is_of_the_time_of_cores(cluster: LocalCluster) -> None:
    cluster.add("node-1", slots=6)
    farm = cluster.farm()
    then = time.monotonic() - 10
    farm._seen = (then, {})
    for link in farm._links.values():
        link.since = then
    farm._links["node-0"].busy_s = 20.0  # of 20 s on two cores; the six others have nothing to do
    numbers = farm.metrics()
    assert numbers["farm/idle_share/node-0"] == pytest.approx(0, abs=0.05)
    assert numbers["farm/idle_share"] == pytest.approx(0.75, abs=0.05)
    farm.close()


def test_an_environment_whose_reset_found_no_node_runs_nothing_here(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = gym.make(ID, farm=cluster.farm(wait_s=0.1), **ARGS)
    env.reset(seed=0)
    env.unwrapped.farm.close()
    with pytest.raises(FarmError):
        env.reset(seed=1)
    with pytest.raises(gym.error.ResetNeeded):
        env.step(LOOK)


def test_threads_of_a_farm_end_with_it(cluster: LocalCluster) -> None:
    before = {thread for thread in threading.enumerate() if thread.name.startswith("codev-farm")}
    farm = cluster.farm()
    farm.call(make_limits(None), layers)
    farm.close()
    until(lambda: {one for one in threading.enumerate() if one.name.startswith("codev-farm")} <= before)


def test_a_lost_episode_that_finds_no_node_ends_those_of_the_batch(cluster: LocalCluster) -> None:
    """The others have taken their turn: a second try would take it twice."""
    cluster.add("node-1")
    envs = gym.make_vec(ID, 2, farm=cluster.farm(wait_s=0.1), autoreset_mode="Disabled", **ARGS)
    envs.reset(seed=0)
    envs.step((LOOK, "nothing"))
    for name in ("node-0", "node-1"):
        cluster.remove(name)
    until(lambda: not envs.envs[0].farm.slots)
    with pytest.raises(FarmError, match="no node"):
        envs.step((LOOK, "nothing"))
    with pytest.raises(gym.error.ResetNeeded):
        envs.step(("nothing", "nothing"))
    envs.close()


@pytest.mark.parametrize("what", ["step", "reset"])
def test_a_batch_that_finds_no_node_waits_for_one_once(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """However many environments it has."""
    farm, waited = cluster.farm(wait_s=0.7), []
    envs = gym.make_vec(ID, 12, farm=farm, workers=2, **ARGS)
    envs.reset(seed=0)
    cluster.remove("node-0")
    until(lambda: not farm.slots)
    enter = farm.enter

    def entering(images: Any) -> Any:
        try:
            return enter(images)
        except FarmError as error:
            waited.extend([error] * ("no node for 0.7 s" in str(error)))
            raise

    monkeypatch.setattr(farm, "enter", entering)
    with pytest.raises(FarmError, match=r"no node for 0\.7 s"):
        envs.step((LOOK,) * 12) if what == "step" else envs.reset(seed=0)
    assert len(waited) <= 2, "one, or one of each thread"
    envs.close()


def test_a_node_that_takes_long_to_kill_gets_no_episodes_meanwhile(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has nothing to do any more, so it would be the first choice."""
    cluster.add("node-1")
    farm, dead = cluster.farm(), threading.Event()
    monkeypatch.setattr(LocalNode, "kill", lambda node: (dead.wait(20), node.killed.set()))
    env = gym.make(ID, farm=farm, **ARGS)
    link = next(iter(farm._links.values()))
    thread = threading.Thread(target=link.lose, args=("told to be",))
    thread.start()
    until(lambda: link.lost)
    try:
        for index in range(2):
            env.reset(options={"index": index})
            assert len(env.step(LOOK)[0]["images"]) == 1
    finally:
        dead.set()
        thread.join()
        farm.close()


def test_a_node_that_is_being_lost_is_passed_over(cluster: LocalCluster) -> None:
    cluster.add("node-1")
    farm = cluster.farm()
    first, second = farm._links.values()
    first.lost = "told to be"
    second.episodes = 5
    assert farm.enter(()) is second
    farm.close()


def test_numbers_of_several_farms_are_added_up(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where training and evaluation have other options; a node may be in both."""
    other = LocalCluster(1, slots=6)
    made = [cluster.farm(), other.farm(wait_s=5.0)]
    monkeypatch.setattr(farms, "_farms", {(os.getpid(), farm.options): farm for farm in made})
    made[0].moved()
    made[1].moved()
    then = time.monotonic() - 10
    for farm, busy_s in zip(made, (20.0, 0.0), strict=True):
        farm._seen = (then, {})
        farm._links["node-0"].since, farm._links["node-0"].busy_s = then, busy_s
    numbers = farms.farm_metrics()
    assert numbers["farm/nodes"] == numbers["farm/programs_moved"] == 2
    assert numbers["farm/idle_share"] == pytest.approx(0.75, abs=0.05)
    assert numbers["farm/idle_share/node-0"] == pytest.approx(0.75, abs=0.05)
    for farm in made:
        farm.close()
    other.nodes["node-0"].work.close()


def test_a_loss_that_cannot_be_printed_ends_no_wait(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log may be on a full disk."""
    cluster.add("node-1")
    env, steps = gym.make(ID, farm=cluster.farm(), **ARGS), []
    env.reset(seed=0)
    monkeypatch.setattr(farms, "print", full_disk, raising=False)
    monkeypatch.setattr(threading, "excepthook", lambda found: None)
    for node in cluster.nodes.values():
        node.die_at = 1
    thread = threading.Thread(target=lambda: steps.append(env.step(LOOK)), daemon=True)
    thread.start()
    thread.join(30)
    assert steps


def full_disk(*_: Any, **__: Any) -> None:
    raise OSError(28, "No space left on device")


def test_a_judge_that_fails_on_a_node_costs_what_it_costs_here(cluster: LocalCluster) -> None:
    """`codev eval` adds the costs of failed episodes."""
    farm = cluster.farm()
    env = gym.make(ID, farm=farm, judge=Unsure(), **ARGS)
    env.reset(options={"index": 0})
    with pytest.raises(JudgeError, match=r"no verdict.*node-0") as found:
        env.step(LOOK)
    assert found.value.usage == EpisodeUsage(judge=Usage(2, 300, 40, 0.5))
    env.close()
    farm.close()


def test_a_judge_of_a_lost_start_that_ends_well_counts(cluster: LocalCluster) -> None:
    cluster.add("node-1")
    farm, agent, kills = cluster.farm(), SCRIPTED["oracle"](), [1]
    env, act = gym.make(ID, farm=farm, judge=Priced(), **ARGS), agent.act

    def look(observation: Any) -> str:
        if not (steps := env.unwrapped.episode.steps):
            return LOOK
        if kills and steps:
            kills.pop()
            cluster.nodes[env.unwrapped._programs._link.spec.name].kill()
            return LOOK
        return act(observation)

    agent.act = look
    found = run_episode(env, agent, options={"index": 2})
    env.close()
    farm.close()
    calls = sum(turn.score is not None for turn in found.turns)
    assert not kills and farm.metrics()["farm/episodes_restarted"] == 1
    assert judge_usage([found]) == Usage(1 + calls, 100 * (1 + calls), 10 * (1 + calls), 0.5 * (1 + calls))


def test_farms_are_closed_before_ray_is_when_the_process_ends(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Functions for the end run in the opposite order; nodes that end with Ray would be reported as lost."""
    done: list[Any] = []
    monkeypatch.setattr(farms, "_farms", {})
    monkeypatch.setattr(ray_nodes, "RayCluster", lambda options: (done.append("Ray"), cluster)[1])
    monkeypatch.setattr(farms.atexit, "register", done.append)
    farms.get_farm("ray").close()
    assert done == ["Ray", farms.close_farms]
