"""Two processes train one policy together: Accelerate as `torchrun` starts it, on CPUs."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

import micro_run
import pydantic
import pytest
import torch
import yaml
from accelerate import Accelerator
from micro_run import history, same_weights, untimed, weights
from process_group import launcher_variables, run_group

from codev_agents.engines.hf import HFEngine
from codev_agents.engines.policy import Policy
from codev_env.trajectory import Trajectory, read_trajectories
from codev_env.types import Code, Execution
from codev_train.evaluate import evaluate
from codev_train.learn.checkpoint import checkpoints
from codev_train.run.options import TrainOptions

pytestmark = pytest.mark.integration

HERE = Path(__file__).parent
LAUNCH = resources.files("codev_train.run.launch")


def launch(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a module or script in two processes that `torchrun` starts."""
    paths = [str(HERE), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = os.environ | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in paths if p)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    process = subprocess.Popen(
        [*torchrun, *command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        out, err = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.terminate()  # It ends its workers, too.
        pytest.fail(f"two processes wait for each other: {process.communicate()[1]}")
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("two")
    micro_run.write_config(made / "micro.yaml")
    return made


@pytest.fixture(scope="module")
def options(folder):
    held_out = ["--eval.every", "2", "--eval.episodes", "5"]  # three for one process, two for the other
    return lambda name: [
        *("--config", str(folder / "micro.yaml"), "--out", str(folder), "--threads", "1", "--name", name),
        *held_out,
    ]


@pytest.fixture(scope="module")
def whole(folder, options) -> Path:
    done = launch("-m", "codev_env.app.cli", "train", *options("whole"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Report:") == done.stdout.count("faithful-tool rate") == 1
    return folder / "whole"


def test_two_processes_leave_the_folder_of_one(whole, folder):
    assert {p.name for p in folder.glob("*")} == {"whole", "micro.yaml", *(p.name for p in folder.glob("start-*"))}
    wanted = {"before", "after", "checkpoints", "model", "tensorboard"}
    wanted |= {"history.jsonl", "options.yaml", "summary.json", "report.html"}
    assert {p.name for p in whole.iterdir()} >= wanted
    assert len(list((whole / "tensorboard").iterdir())) == 1
    summary = json.loads((whole / "summary.json").read_text())
    for side in ("before", "after"):
        assert len(read_trajectories(whole / side)) == summary[side]["n"] == 5
    assert [row["step"] for row in history(whole)] == [1, 2, 3]
    for row in history(whole):
        for name in ("rollouts", "waiting", "update"):
            own = row[f"seconds/{name}"]
            assert 0 < row[f"ranks/{name}_min"] <= own * 1.001 and own <= row[f"ranks/{name}_max"] * 1.001
    assert same_weights(whole / "model", checkpoints(whole)[-1] / "model")
    (start,) = (p.parent for p in folder.glob("start-*/config.json"))
    assert not same_weights(whole / "model", start)


def test_the_history_is_of_all_episodes_and_turns_whoever_played_them(played, tmp_path):
    """Also where a process has more episodes than another, or longer ones."""
    (short, *others), _ = torch.load(played / "rollouts.pt", weights_only=False)
    turns = short.trajectory.turns[:1]
    failed = dataclasses.replace(turns[0], turn=Code("1 / 0"), execution=Execution(error="ZeroDivisionError"))
    short = dataclasses.replace(short, trajectory=dataclasses.replace(short.trajectory, turns=(failed,)))
    torch.save([short, *others], tmp_path / "rollouts.pt")
    rows = []
    for shares in ([4], [2, 2], [1, 3]):
        done = run_group(len(shares), "described_process", str(tmp_path / "rollouts.pt"), str(shares))
        assert done.returncode == 0, done.stderr
        rows += map(json.loads, done.stdout.splitlines())
    assert len(rows) == 5 and all(row == pytest.approx(rows[0], nan_ok=True) for row in rows)
    assert rows[0]["share/errors"] == pytest.approx(1 / 7) and rows[0]["turns"] == 7 / 4


@pytest.fixture(scope="module")
def sharded() -> Mapping[str, str]:
    """What `accelerate launch` says to processes that share the weights out."""
    return launcher_variables(LAUNCH / "fsdp2.yaml", "--num_processes", "2")


def evaluated_alone(model: Path, run: Path, out: Path) -> list[Trajectory]:
    """What one process evaluates with the policy `model` and the options of `run`."""
    text = yaml.safe_load((run / "options.yaml").read_text())["train"]
    options = pydantic.TypeAdapter(TrainOptions).validate_python(text)
    policy = Policy.load(str(model))
    evaluate(HFEngine(policy.model, policy.processor), policy.processor, options, out, "alone", Accelerator(cpu=True))
    return read_trajectories(out)


def test_shared_out_evaluations_are_those_of_one_process(whole, folder, tmp_path):
    (start,) = (p.parent for p in folder.glob("start-*/config.json"))
    models = {"before": start, "eval/step-000002": checkpoints(whole)[0] / "model", "after": whole / "model"}
    for part, model in models.items():
        wanted, found = evaluated_alone(model, whole, tmp_path / part), read_trajectories(whole / part)
        assert [t.task_id for t in found] == [t.task_id for t in wanted]
        assert [[x.action for x in t.turns] for t in found] == [[x.action for x in t.turns] for t in wanted]
        assert (whole / part / "metrics.json").read_text() == (tmp_path / part / "metrics.json").read_text()


def test_processes_that_share_the_weights_evaluate_too(whole, folder, options, sharded):
    """FSDP2, more processes than held-out tasks: the history has the numbers of the episodes that are kept."""
    words = [*options("sharded"), "--sharding", "fsdp2", "--eval.episodes", "1"]
    done = run_group(2, "sharded_process", "codev_env.app.cli", "train", *words, variables=sharded)
    assert done.returncode == 0, done.stderr
    run = folder / "sharded"
    metrics = json.loads((run / "eval" / "step-000002" / "metrics.json").read_text())
    assert metrics["n"] == 1 and history(run)[1]["eval/turns"] == metrics["turns"]
    weight = weights(run / "model")
    assert weight.keys() == weights(whole / "model").keys()


def test_a_cold_start_and_its_evaluation_by_processes_that_share_the_weights(folder, options, sharded, tmp_path):
    """All start with the weights of the cold start, whose stages are those of processes with whole copies."""
    given = [*options("started"), "--sharding", "fsdp2", "--out", str(folder / "fsdp")]
    done = run_group(2, "sharded_process", "codev_env.app.cli", "train", *given, variables=sharded)
    assert done.returncode == 0, done.stderr
    (start,) = (p.parent for p in (folder / "fsdp").glob("start-*/config.json"))
    run = folder / "fsdp" / "started"
    wanted = evaluated_alone(start, run, tmp_path / "alone")
    found = read_trajectories(run / "before")
    assert [[x.action for x in t.turns] for t in found] == [[x.action for x in t.turns] for t in wanted]
    words = ["--config", str(folder / "micro.yaml"), "--threads", "1", "--out", str(folder / "copies")]
    copies = run_group(2, "codev_env.app.cli", "sft", *words)
    assert copies.returncode == 0, copies.stderr
    (other,) = (p.parent for p in (folder / "copies").glob("start-*/config.json"))
    a, b = weights(start), weights(other)
    assert a.keys() == b.keys()
    # Adam takes steps of the learning rate also where a gradient is nothing but rounding.
    far = torch.cat([(a[name] - b[name]).abs().flatten() for name in a])
    assert (far > 1e-4).double().mean() < 0.01, far.max()


def test_two_processes_stop_together_and_go_on_as_if_never_stopped(whole, folder, options):
    stopped = launch(str(HERE / "stopped_process.py"), "train", *options("stopped"))
    assert stopped.returncode != 0 and "codev train --resume" in stopped.stderr
    assert [p.name for p in checkpoints(folder / "stopped")] == ["step-000001"]

    done = run_group(2, "codev_env.app.cli", "train", "--resume", str(folder / "stopped"))
    assert done.returncode == 0, done.stderr
    assert untimed(history(folder / "stopped")) == untimed(history(whole))
    assert same_weights(folder / "stopped" / "model", whole / "model")


def test_two_processes_refuse_together_with_one_message(folder, options):
    words = ["--engine", "vllm-server", "--vllm.url", "http://127.0.0.1:9", "--vllm.patience", "0"]
    done = launch("-m", "codev_env.app.cli", "train", *options("refused"), *words)
    assert done.returncode != 0
    assert done.stderr.count("codev train: ") == 1 and "http://127.0.0.1:9 does not answer" in done.stderr
    assert not (folder / "refused").exists()


@pytest.fixture(scope="module")
def update_folder(tmp_path_factory, played) -> Path:
    """The policy and its rollouts, in a folder for results."""
    return Path(shutil.copytree(played, tmp_path_factory.mktemp("update"), dirs_exist_ok=True))


def one_update(folder: Path, shares: list[int], *options: str) -> tuple[torch.Tensor, dict[str, float]]:
    """Return how the weights moved and the statistics of one update by as many processes as there are shares."""
    done = run_group(len(shares), "uneven_processes", str(folder), str(shares), *options)
    assert done.returncode == 0, done.stderr
    before, after = torch.load(folder / f"weights-{len(shares)}.pt")
    return after - before, json.loads((folder / f"stats-{len(shares)}.json").read_text())


WAYS = [
    ("micro_batch=1",),
    ("micro_batch=2", "minibatches=2", "epochs=2"),
    ("token_budget=1", "loss=grpo", "correction=token", "epochs=2"),
    ("token_budget=400", "correction=token", "minibatches=2", "epochs=3"),
]


@pytest.mark.parametrize("options", WAYS)
@pytest.mark.parametrize("shares", [[3, 1], [1, 3]])
def test_uneven_processes_take_the_step_of_one(update_folder, shares, options):
    """One of them has most of the rollouts; minibatches are those that one process draws."""
    wanted, stats = one_update(update_folder, [4], *options)
    found, found_stats = one_update(update_folder, shares, *options)
    assert wanted.abs().max() > 1e-4
    torch.testing.assert_close(found, wanted, atol=2e-6, rtol=1e-3)
    assert stats.pop("empty_passes") == stats.pop("waiting") == 0
    assert 0 <= found_stats.pop("empty_passes") <= 0.5 and 0 <= found_stats.pop("waiting") <= 0.5
    assert stats.pop("by_lag") == found_stats.pop("by_lag") == []
    assert found_stats == pytest.approx(stats, rel=1e-3, abs=1e-5, nan_ok=True)


def test_minibatches_may_have_fewer_rollouts_than_there_are_processes(update_folder):
    wanted, stats = one_update(update_folder, [4], "minibatches=4")
    found, found_stats = one_update(update_folder, [2, 2], "minibatches=4")
    torch.testing.assert_close(found, wanted, atol=2e-6, rtol=1e-3)
    assert stats["empty_passes"] == 0 and found_stats["empty_passes"] == 0.5


@pytest.mark.parametrize(
    "options", [("token_budget=400", "loss=gspo"), ("token_budget=90", "correction=token", "epochs=2")]
)
def test_processes_that_share_rows_out_take_the_step_of_one(update_folder, options):
    """Both work on the same packed rows, half of the tokens and of the heads each."""
    wanted, stats = one_update(update_folder, [4], *options)
    found, found_stats = one_update(update_folder, [3, 1], *options, "sequence_parallel=2")
    assert wanted.abs().max() > 1e-4
    torch.testing.assert_close(found, wanted, atol=2e-6, rtol=1e-3)
    assert stats.pop("by_lag") == found_stats.pop("by_lag") == []
    assert found_stats == pytest.approx(stats, rel=1e-3, abs=1e-5, nan_ok=True)


def test_a_process_without_signal_takes_part_in_the_step_of_the_other(update_folder):
    rollouts, advantages = torch.load(update_folder / "rollouts.pt", weights_only=False)
    changed = update_folder / "silent"
    shutil.copytree(update_folder / "policy", changed / "policy")
    for name, factor in (("one", torch.tensor([[1.0], [1.0], [0.0], [0.0]])), ("none", torch.zeros(4, 1))):
        torch.save((rollouts, advantages * factor), changed / "rollouts.pt")
        wanted, _ = one_update(changed, [4], "micro_batch=1")
        found, stats = one_update(changed, [2, 2], "micro_batch=1")
        torch.testing.assert_close(found, wanted, atol=2e-6, rtol=1e-3)
        assert bool(found.any()) == (name == "one") == (stats["grad_norm"] > 0)
