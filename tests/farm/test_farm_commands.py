"""Commands with `--farm`: the same results as here, also while nodes are killed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from demonstration_rows import mixed_rows, thyme_set
from local_cluster import QUICK, LocalCluster

from codev_env.app.cli import main
from codev_env.farm import farm as farms
from codev_env.farm.options import FarmOptions
from codev_env.trajectory import read_trajectories
from codev_eval.data.demonstrations import ReplayOptions, ReplayRun

FARM = json.dumps({"address": "ray", **QUICK})


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    """Two nodes, which `"ray"` leads to."""
    made = LocalCluster(2)

    def connect(options: FarmOptions) -> LocalCluster:
        made.options = options
        return made

    monkeypatch.setattr("codev_env.farm.ray_nodes.RayCluster", connect)
    monkeypatch.setattr(farms, "_LOOK_S", 0.05)
    monkeypatch.setattr(farms, "_BACK_S", (0.05, 0.1))
    yield made
    farms.close_farms()
    for node in made.nodes.values():
        node.work.close()


class Killer:
    """Kills one node after the other, each a while after it has got some programs."""

    def __init__(self, cluster: LocalCluster, kills: int) -> None:
        self.cluster, self.kills, self.done = cluster, kills, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        turn = 0
        while self.kills and not self.done.wait(0.02):
            names = sorted(self.cluster.nodes)
            if not names:  # none has started yet
                continue
            node = self.cluster.nodes[names[turn % len(names)]]
            if sum(node.programs()) >= 2 and not node.killed.is_set():
                node.kill()
                self.kills -= 1
                turn += 1

    def __enter__(self) -> Killer:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()


def evaluate(out: Path, *more: str) -> list[Any]:
    words = f"eval --model scripted:oracle --bench vstar --data synthetic --scenes toy --n 8 --out {out}".split()
    assert main([*words, *more]) == 0
    return [
        (t.index, t.is_correct, t.total_reward, [turn.crop_boxes for turn in t.turns]) for t in read_trajectories(out)
    ]


def test_an_evaluation_is_the_same_while_nodes_are_killed(cluster: LocalCluster, tmp_path: Path) -> None:
    expected = evaluate(tmp_path / "here")
    with Killer(cluster, 3) as killer:
        found = evaluate(tmp_path / "farm", "--farm", FARM, "--workers", "4")
    assert sorted(found) == sorted(expected) and len(found) == 8
    assert killer.kills < 3
    # The farm decides no episode: without it the evaluation is continued, and finds nothing to do.
    assert sorted(evaluate(tmp_path / "farm")) == sorted(expected)


def test_filtering_runs_there(cluster: LocalCluster, tmp_path: Path) -> None:
    words = "data filter --agent scripted:oracle --data synthetic --scenes toy --n 3 --rollouts 2 --keep 0 1".split()
    for name, more in (("here", []), ("there", ["--farm", FARM])):
        assert main([*words, "--out", str(tmp_path / name), *more]) == 0
    assert (tmp_path / "here").read_text() == (tmp_path / "there").read_text()
    assert sum(sum(node.programs()) for node in cluster.nodes.values()) >= 6


def test_replaying_runs_there(cluster: LocalCluster, tmp_path: Path) -> None:
    demos = thyme_set(tmp_path, *mixed_rows())
    found = {}
    for name, farm in (("here", None), ("there", farms.get_farm(FARM))):
        with ReplayRun(demos, tmp_path / name, ReplayOptions()) as run:
            found[name] = run.run(farm=farm)
    assert found["here"] == found["there"] and found["there"]["kept"] > 0
    here, there = (read_trajectories(tmp_path / name) for name in ("here", "there"))
    key = {t.task_id: t for t in here}
    for trajectory in there:
        same = key[trajectory.task_id]
        assert [turn.observation for turn in trajectory.turns] == [turn.observation for turn in same.turns]
        assert [i.tobytes() for i in trajectory.images] == [i.tobytes() for i in same.images]
        for turn, other in zip(trajectory.turns, same.turns, strict=True):
            assert [i.tobytes() for i in turn.images] == [i.tobytes() for i in other.images]


def test_rollouts_are_each_played_once_while_nodes_are_killed(cluster: LocalCluster) -> None:
    pytest.importorskip("torch")
    from codev_agents import Oracle, run_episode
    from codev_agents.engines.options import ToyModelOptions
    from codev_agents.rollout.engine import Completion, Sampling
    from codev_agents.rollout.runner import RolloutRunner
    from codev_train.run.environments import make_env
    from codev_train.run.options import EnvOptions, SFTOptions
    from codev_train.sft.cold_start import toy_policy

    here, there = EnvOptions(scenes="tiny", max_turns=4), EnvOptions(scenes="tiny", max_turns=4, farm=FARM)
    processor = toy_policy(SFTOptions(env=here, toy=ToyModelOptions(hidden=32))).processor
    env = make_env(here, "train")
    plays = {}
    for index in range(4):
        played = run_episode(env, Oracle(), options={"index": index})
        texts = [played.turns[0].action] * 2 + [played.turns[-1].action]
        plays[processor.image(np.asarray(played.images[0])).values.numpy().tobytes()] = texts

    class Scripted:
        """Looks twice, then answers as the oracle did."""

        def generate(self, prompts: Any, sampling: Any) -> list[Completion]:
            found = []
            for prompt in prompts:
                texts = plays[prompt.images[0].values.numpy().tobytes()]
                ids = [*processor.encode(texts[len(prompt.images) - 1]), processor.eos_id]
                found.append(Completion(ids, [-0.5] * len(ids), prompt.ids))
            return found

        def sleep(self) -> None: ...

        def seed(self, seed: int) -> None: ...

        def sync(self, model: Any) -> dict[str, float]:
            return {}

    results = {}
    for name, options in (("here", here), ("there", there)):
        with RolloutRunner(lambda o=options: make_env(o, "train"), processor, concurrent=4) as runner:
            ended: list[int] = []
            kills = Killer(cluster, 3 if name == "there" else 0)
            with kills:
                rollouts = runner.play(
                    Scripted(), range(4), 2, Sampling(1.0, 400), lambda group, e=ended: e.append(group[0].group)
                )
            results[name] = [
                (r.trajectory.index, r.rewards, r.tokens.ids, [t.crop_boxes for t in r.trajectory.turns])
                for r in rollouts
            ]
            assert sorted(ended) == [0, 1, 2, 3]
    assert results["here"] == results["there"]
    assert kills.kills < 3


def test_a_run_logs_the_farm(cluster: LocalCluster, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from codev_train.run.monitor import HISTORY, Monitor

    farms.get_farm(FARM)
    monitor = Monitor(tmp_path)
    monitor.update({"reward": 1.0}, 1)
    monitor.close()
    row = json.loads((tmp_path / HISTORY).read_text())
    assert row["farm/nodes"] == 2 and {"farm/queue", "farm/nodes_lost", "farm/idle_share", "reward"} <= row.keys()


def test_processes_of_a_run_share_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from codev_train.run.environments import farm_of
    from codev_train.run.options import EnvOptions

    monkeypatch.setenv("WORLD_SIZE", "4")
    options = farm_of(EnvOptions(farm="ray"))
    assert options is not None and options.share == 4
    assert farm_of(EnvOptions()) is None


def test_each_process_of_a_run_knows_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    from codev_train.run.environments import farm_of
    from codev_train.run.options import EnvOptions

    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "3")
    options = farm_of(EnvOptions(farm="ray"))
    assert options is not None and (options.share, options.part) == (4, 3)
