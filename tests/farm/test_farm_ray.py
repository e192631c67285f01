"""The farm on Ray's own cluster of several nodes on this machine, kills included.

Ray listens on 127.0.0.1 only, without a dashboard. A kernel that is out of memory kills with SIGKILL, and so do these
tests: the actor, the node it runs on, and the sandbox's processes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from listening import LOOPBACK, places_of

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # Ray then takes the loopback interface for the machine's own
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_AUTH_MODE", "disabled")
ray = pytest.importorskip("ray", reason='Ray is not installed: pip install "codev-env[ray]"')
from ray.cluster_utils import Cluster  # noqa: E402

from codev_env.envs.vector import FarmVectorEnv  # noqa: E402
from codev_env.errors import ConfigError  # noqa: E402
from codev_env.farm import farm as farms  # noqa: E402
from codev_env.farm.farm import Farm, close_farms, get_farm  # noqa: E402

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]
LOCAL: dict[str, Any] = {"include_dashboard": False, "node_ip_address": "127.0.0.1", "object_store_memory": 80 << 20}
PATIENT = {"health_check_timeout_ms": 30_000, "health_check_failure_threshold": 10}  # for a machine that is busy
OPTIONS = {"address": "ray", "patience_s": 15.0, "beat_s": 0.5}
ARGS: dict[str, Any] = {"data": "synthetic", "scenes": "toy", "max_turns": 4}
ID = "codev_env:CodeV-VStar-v0"
LOOK = "<code>show(image.crop((10, 20, 90, 120)))</code>"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": PATIENT, **LOCAL})
    os.environ["RAY_ADDRESS"] = made.address
    try:
        yield made
    finally:
        close_farms()
        del os.environ["RAY_ADDRESS"]
        ray.shutdown()
        made.shutdown()


@pytest.fixture
def farm(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Farm]:
    """A farm of two nodes; those that a test adds or loses are put right again."""
    monkeypatch.setattr(farms, "_LOOK_S", 0.2)
    monkeypatch.setattr(farms, "_BACK_S", (0.2, 0.4))
    while len(cluster.worker_nodes) < 2:
        cluster.add_node(num_cpus=2, **LOCAL)
    close_farms()
    made = get_farm(OPTIONS)
    wait_for(lambda: len(made.describe()) == 2)
    yield made
    made.close()


def wait_for(condition: Any, seconds: float = 90.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen"
        time.sleep(0.05)


def pid_of(env: Any) -> int:
    """The process of the actor that runs an environment's episode."""
    return int(env._programs._link.report.pid)


def play(envs: Any, local: Any, steps: int = 6) -> None:
    rng = np.random.default_rng(0)
    for _ in range(steps):
        actions = tuple(rng.choice([LOOK, "<code>show(image)</code>", "<answer>A</answer>", "nothing"], 4).tolist())
        assert data_equivalence(envs.step(actions), local.step(actions), exact=True)


def test_equal_to_the_local_vector_environment(farm: Farm) -> None:
    envs, local = gym.make_vec(ID, 4, farm=OPTIONS, **ARGS), gym.make_vec(ID, 4, **ARGS)
    assert isinstance(envs, FarmVectorEnv) and envs.envs[0].farm is farm
    assert data_equivalence(envs.reset(seed=3), local.reset(seed=3), exact=True)
    play(envs, local)
    reports = farm.describe()
    assert len(reports) == 2
    assert all(report.layers["process"] == report.layers["rlimits"] == "on" for report in reports.values())


def test_a_second_cluster_is_refused(farm: Farm) -> None:
    with pytest.raises(ConfigError, match="already connected to Ray"):
        gym.make(ID, farm="ray://127.0.0.1:9", **ARGS)


def test_nothing_listens_to_the_world(farm: Farm) -> None:
    places = places_of(b"ray")
    assert places and places <= LOOPBACK


@pytest.mark.parametrize("what", ["actor killed", "actor stopped", "node removed", "sandbox killed"])
def test_episodes_go_on_after(farm: Farm, cluster: Cluster, what: str) -> None:
    envs = gym.make_vec(ID, 4, farm=OPTIONS, autoreset_mode="Disabled", **ARGS)
    envs.reset(seed=1)
    _, total, *_ = envs.step((LOOK,) * 4)
    pid = pid_of(envs.envs[0])
    lost = np.array([pid_of(env) == pid for env in envs.envs])
    assert lost.any() and not lost.all()
    if what == "actor killed":
        os.kill(pid, signal.SIGKILL)
    elif what == "actor stopped":
        os.kill(pid, signal.SIGSTOP)
    elif what == "node removed":
        name = envs.envs[0]._programs._link.spec.name
        node = next(node for node in cluster.worker_nodes if node.node_id.startswith(name.rpartition("-")[2]))
        cluster.remove_node(node, allow_graceful=False)
        wait_for(lambda: name not in farm.describe())  # the actor may live on for a moment, and answer
    else:
        for child in descendants(pid):
            os.kill(child, signal.SIGKILL)
        lost[:] = False  # a sandbox heals by itself: files saved by earlier programs are the driver's side
    _, reward, ended, _, infos = envs.step((LOOK,) * 4)
    total = total + reward
    assert envs.restarts.tolist() == lost.astype(int).tolist()
    assert not ended.any() and infos["turn"].tolist() == [0 if one else 2 for one in lost]
    _, reward, ended, *_ = envs.step(("<answer>A</answer>",) * 4)
    total = total + reward
    assert ended.all()
    for i, env in enumerate(envs.envs):
        assert total[i] == pytest.approx(sum(env.reward.value(env.episode).values()))
    if what.startswith("actor"):
        wait_for(lambda: len(farm.describe()) == 2)
        assert pid not in {report.pid for report in farm.describe().values()}


def descendants(pid: int) -> list[int]:
    """The sandbox's processes below an actor."""
    parents = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found, new = [], [pid]
    while new:
        new = [child for child, parent in parents.items() if parent in new]
        found += new
    return found


def test_a_node_that_is_added_takes_episodes(farm: Farm, cluster: Cluster) -> None:
    node = cluster.add_node(num_cpus=6, **LOCAL)
    try:
        wait_for(lambda: len(farm.describe()) == 3)
        envs = gym.make_vec(ID, 6, farm=OPTIONS, **ARGS)
        envs.reset(seed=0)
        envs.step((LOOK,) * 6)
        new = next(report.pid for name, report in farm.describe().items() if name.endswith(node.node_id[:8]))
        assert new in {pid_of(env) for env in envs.envs}
    finally:
        cluster.remove_node(node, allow_graceful=False)


CLIENT = """
import gymnasium as gym
from codev_env.farm.farm import close_farms
address = {address!r}
args = dict(data="synthetic", scenes="toy", max_turns=4)
envs = gym.make_vec("codev_env:CodeV-VStar-v0", 2, farm=address, **args)
local = gym.make_vec("codev_env:CodeV-VStar-v0", 2, **args)
look = "<code>show(image.crop((10, 20, 90, 120)))</code>"
for each in (envs, local):
    each.reset(seed=0)
from gymnasium.utils.env_checker import data_equivalence
assert data_equivalence(envs.step((look, look)), local.step((look, look)), exact=True)
print("equal", len(envs.envs[0].farm.describe()))
close_farms()
"""


def test_through_the_client_server(farm: Farm, cluster: Cluster, tmp_path: Path) -> None:
    server = subprocess.Popen(
        [sys.executable, "-m", "ray.util.client.server", "--address", cluster.address, "--host", "127.0.0.1"]
        + ["--port", "25001", "--mode", "specific-server"],
        stdout=(tmp_path / "server.log").open("w"),
        stderr=subprocess.STDOUT,
    )
    try:
        script = tmp_path / "client.py"
        script.write_text(CLIENT.format(address="ray://127.0.0.1:25001"))
        environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        run = subprocess.run(
            [sys.executable, str(script)], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=150
        )
        assert "equal 2" in run.stdout, run.stderr[-2000:] + (tmp_path / "server.log").read_text()[-2000:]
    finally:
        server.kill()
        server.wait()
