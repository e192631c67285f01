"""A run with `staleness` whose environments are on nodes of Ray's own cluster that are killed, again and again."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # Ray then takes the loopback interface for the machine's own
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_AUTH_MODE", "disabled")
ray = pytest.importorskip("ray", reason='Ray is not installed: pip install "codev-env[ray]"')
from micro_run import history  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402
from test_train_ahead_killed import Trainer, check, numbers  # noqa: E402

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

KILLS = 10
LOCAL: dict[str, Any] = {"include_dashboard": False, "node_ip_address": "127.0.0.1", "object_store_memory": 80 << 20}
PATIENT = {"health_check_timeout_ms": 30_000, "health_check_failure_threshold": 10}  # for a machine that is busy
FARM = {"address": "ray", "patience_s": 30.0, "beat_s": 0.5}


@pytest.fixture
def cluster(monkeypatch) -> Iterator[Cluster]:
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": PATIENT, **LOCAL})
    monkeypatch.setenv("RAY_ADDRESS", made.address)
    try:
        for _ in range(2):
            made.add_node(num_cpus=2, **LOCAL)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


class Killer:
    """Kills one of two nodes each time that some groups have ended, and adds another."""

    def __init__(self, cluster: Cluster, ended: Path, rng: random.Random) -> None:
        self.kills, self._cluster, self._ended, self._rng = 0, cluster, ended, rng
        self._next = 1

    def __call__(self) -> bool:
        """Kill if it is time; returns whether all kills are done."""
        if self.kills < KILLS and len(numbers(self._ended)) >= self._next:
            time.sleep(self._rng.uniform(0, 0.5))
            node = self._rng.choice(sorted(self._cluster.worker_nodes, key=lambda one: one.node_id))
            self._cluster.remove_node(node, allow_graceful=False)
            self.kills += 1
            self._cluster.add_node(num_cpus=2, **LOCAL)
            self._next = len(numbers(self._ended)) + self._rng.randint(1, 3)
        return self.kills == KILLS


def test_nodes_that_are_killed(cluster, config, start, tmp_path):
    seed = int(os.environ.get("CODEV_KILL_SEED", random.SystemRandom().randrange(10**6)))
    print(f"CODEV_KILL_SEED={seed}")
    words = ["--config", str(config), "--model", str(start), "--name", "run", "--threads", "1", "--staleness", "1"]
    words += ["--env.farm", json.dumps(FARM), "--show-every", "1000", "--steps", "1000"]
    train = Trainer(tmp_path / "nodes", words, wait_s=600)
    killer = Killer(cluster, train.folder / "ended.txt", random.Random(seed))
    train(stop=killer)
    assert killer.kills == KILLS
    done = len(history(train.run))
    begun = numbers(train.folder / "begun.txt")
    assert len(begun) == len(set(begun)), "an episode whose node is lost starts again in its group: no group does"
    assert train("--steps", str(done + 1)) == 0
    assert history(train.run)[done]["async/updates_again"] == 0
    check(train.folder, done + 1)
