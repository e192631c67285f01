"""Several processes of a run with `staleness`: each plays its own groups, all update one policy."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from fake_vllm_server import FakeVllmServer
from micro_run import history, same_weights
from process_group import launcher_variables, run_group

from codev_agents.engines.policy import Policy
from codev_train.learn.checkpoint import checkpoints

pytestmark = pytest.mark.integration

LAUNCH = resources.files("codev_train.run.launch")
STEPS = 4
PROMPTS = 4


@pytest.fixture(scope="module")
def server(start) -> Iterator[FakeVllmServer]:
    policy = Policy.load(str(start))
    made = FakeVllmServer(policy.model, policy.processor)
    yield made
    made.stop()


@pytest.fixture(scope="module", params=["hf", "vllm-server"])
def run(request, runs, arguments, server) -> Path:
    words = ["--engine", request.param, "--staleness", "1", "--steps", str(STEPS), "--prompts", str(PROMPTS)]
    words += ["--vllm.url", server.url, "--save-every", "1", "--keep", str(STEPS), "--health.mismatch", "0.01"]
    name = f"two-ahead-{request.param}"
    done = run_group(2, "kept_groups", "train", *arguments(name, *words))
    assert done.returncode == 0, done.stderr[-3000:]
    return runs / name


def notes(run: Path, rank: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "groups" / f"{rank}.jsonl").read_text().splitlines()]


def check(run: Path) -> None:
    rows = history(run)
    assert [row["step"] for row in rows] == [row["async/version"] + 1 for row in rows] == list(range(1, STEPS + 1))
    for row in rows:
        assert 0 <= row["async/idle_trainer"] <= 1 and 0 <= row["async/idle_engine"] <= 1
        assert row["lag/0_share"] + row["lag/1_share"] == pytest.approx(1)
    for rank in range(2):
        own = notes(run, rank)
        assert [row["step"] for row in own] == list(range(1, STEPS + 1))
        used = [number for row in own for number in row["used"]]
        assert len(used) == len(set(used)) and all(len(row["trained"]) == PROMPTS // 2 for row in own)


def test_two_processes_play_ahead(run):
    check(run)
    rows = history(run)
    assert all(row["async/updates_again"] == row["async/groups_again"] == 0 for row in rows)
    assert any(row["lag/1_share"] > 0 for row in rows), "nothing was played ahead"


def test_two_processes_that_were_killed_make_their_updates_again(run, runs):
    again, done = runs / f"{run.name}-killed", 2
    shutil.copytree(run, again)
    for name in ("after", "model", "summary.json", "report.html"):
        shutil.rmtree(again / name) if (again / name).is_dir() else (again / name).unlink()
    for step in range(done + 1, STEPS + 1):
        shutil.rmtree(again / "checkpoints" / f"step-{step:06d}")
    path = again / "groups" / "1.jsonl"  # this one was slower: it had not noted its groups of the last update yet
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    ended = run_group(2, "kept_groups", "train", "--resume", str(again))
    assert ended.returncode == 0, ended.stderr[-3000:]
    check(again)
    first = history(again)[done]
    assert first["async/groups_kept"] >= PROMPTS * (STEPS - done) and first["async/groups_again"] == 0
    assert first["async/updates_again"] == STEPS - done
    assert same_weights(checkpoints(again)[STEPS - 2] / "model", checkpoints(run)[STEPS - 2] / "model")
    for rank in range(2):
        trained = [[row["trained"] for row in notes(one, rank)] for one in (again, run)]
        assert trained[0][: STEPS - 1] == trained[1][: STEPS - 1]


@pytest.mark.parametrize("engine", ["hf", "vllm-server"])
def test_processes_that_share_the_weights_play_ahead(runs, arguments, server, engine):
    """FSDP2, and weights that are replaced between episodes: each process waits for its own."""
    words = ["--engine", engine, "--vllm.url", server.url, "--staleness", "1", "--prompts", str(PROMPTS)]
    words += ["--sharding", "fsdp2", "--steps", str(STEPS), "--in-flight", "false", "--health.mismatch", "0.01"]
    variables = launcher_variables(LAUNCH / "fsdp2.yaml", "--num_processes", "2")
    name = f"two-sharded-{engine}"
    done = run_group(2, "sharded_process", "codev_env.app.cli", "train", *arguments(name, *words), variables=variables)
    assert done.returncode == 0, done.stderr[-3000:]
    check(runs / name)


def test_one_process_goes_on_alone_with_other_groups(run, runs):
    if not run.name.endswith("hf"):
        pytest.skip("the engine makes no difference here")
    alone = runs / f"{run.name}-alone"
    shutil.copytree(run, alone)
    for step in range(3, STEPS + 1):
        shutil.rmtree(alone / "checkpoints" / f"step-{step:06d}")
    ended = run_group(1, "kept_groups", "train", "--resume", str(alone))
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert [row["step"] for row in history(alone)] == list(range(1, STEPS + 1))
    assert history(alone)[2]["async/groups_kept"] == 0 and not (alone / "groups" / "1").exists()
