"""The default run as a newcomer starts it, and its method from there in every way in which a run can be made."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest


def train(python: str, folder: Path, *words: str) -> str:
    """Run `codev train` in a folder; returns what it said."""
    done = subprocess.run([python, *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def default_run(tmp_path_factory) -> tuple[Path, str]:
    """The folder of the default run, and what it said."""
    return run_in(tmp_path_factory.mktemp("default"))


def run_in(folder: Path, *words: str) -> tuple[Path, str]:
    said = train(sys.executable, folder, "-m", "codev_env.app.cli", "train", "--preset", "tiny", *words)
    return folder / "runs" / "tiny", said


@pytest.mark.integration
def test_the_default_run_teaches_to_look(default_run) -> None:
    run, said = default_run
    assert "the one that comes with codev-env" in said
    assert_taught(run)
    assert (run / "report.html").stat().st_size > 100_000
    assert list((run / "tensorboard").glob("events.out.tfevents.*"))
    assert "faithful-tool rate" in said and "accuracy, contrast" in said
    assert "report.html" in said


@pytest.mark.soak
def test_so_it_does_from_random_weights(tmp_path) -> None:
    run, said = run_in(tmp_path, "--fresh")
    assert "is made again" in said
    assert_taught(run)


def assert_taught(run: Path) -> None:
    """The policy guessed before the run, and answers from faithful crops after it."""
    summary = json.loads((run / "summary.json").read_text())
    before, after = summary["before"], summary["after"]
    assert before["faithful"] <= 0.15
    assert before["accuracy"] >= 0.7
    assert after["faithful"] >= 0.6
    assert after["accuracy"] >= before["accuracy"]
    assert before["contrast_accuracy"] <= 0.4 and after["contrast_accuracy"] >= 0.75
    print(json.dumps({"before": before, "after": after, "seconds": summary["seconds"]}))


@pytest.mark.integration
@pytest.mark.parametrize("way", ["packed", "two processes", "vllm"])
def test_looks_are_imitated_in_every_way_in_which_a_run_is_made(way, default_run, tmp_path, request) -> None:
    model, python = default_run[0] / "model", sys.executable
    words = ["train", "--preset", "tiny", "--model", str(model), "--steps", "3", "--prompts", "4"]
    words += ["--eval.episodes", "8", "--threads", "1", "--max-length", "2048"]
    match way:
        case "packed":
            words += ["--token-budget", "2048"]
        case "two processes":
            words += ["--processes", "2"]
        case _:
            python = request.getfixturevalue("vllm_python")
            words += ["--engine", "vllm"]
    train(python, tmp_path, "-m", "codev_env.app.cli", *words)
    rows = [json.loads(line) for line in (tmp_path / "runs" / "tiny" / "history.jsonl").read_text().splitlines()]
    assert len(rows) == 3
    assert all(row["imitated"] > 0 and row["imitation/looks"] > 0 and math.isfinite(row["update/loss"]) for row in rows)
