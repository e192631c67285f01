"""`codev train` at the real vocabulary, in bf16 and packed, its weights shared out by FSDP2: killed and resumed."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from importlib import resources
from pathlib import Path

import pytest
from models import NARROWEST, make_policy
from real_vocabulary import VOCABULARY

from codev_train.learn.checkpoint import checkpoints

pytestmark = pytest.mark.integration
HERE = Path(__file__).parent
CONFIG = resources.files("codev_train.run.launch") / "fsdp2.yaml"
PATIENCE_S = 500
OPTIONS = (
    *(
        "--preset",
        "smoke",
        "--sharding",
        "fsdp2",
        "--name",
        "run",
        "--model",
        "policy",
        "--precision",
        "bf16",
        "--token-budget",
        "16384",
    ),
    *("--max-tokens", "8", "--gradient-checkpointing", "True", "--prompts", "4", "--group", "2", "--steps", "2"),
    *("--save-every", "1", "--eval.episodes", "4", "--health.mismatch", "0.05", "--correction", "token"),
    *("--entropy", "0.001"),  # a gradient, whatever the rewards are
)


def start(processes: int, folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start `codev train` in some processes that share the weights, on CPUs."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    launch = ["-m", "accelerate.commands.launch", "--config_file", str(CONFIG), "--num_processes", str(processes)]
    codev = [str(HERE.parent / "train" / "sharded_process.py"), "codev_env.app.cli", "train", *arguments]
    command = [sys.executable, *launch, "--main_process_port", "0", *codev]
    with (folder / "log.txt").open("ab") as log:
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)


def wait(process: subprocess.Popen[bytes], folder: Path, kill: bool) -> None:
    """Wait for the end, or kill all processes at once as soon as an update is saved."""
    end = time.monotonic() + PATIENCE_S
    try:
        while process.poll() is None:
            assert time.monotonic() < end, log(folder)
            if kill and checkpoints(folder / "runs" / "run"):
                return
            time.sleep(0.2)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == 0, log(folder)


def log(folder: Path) -> str:
    return (folder / "log.txt").read_text(errors="replace")[-5000:]


@pytest.mark.parametrize("processes", [2, 4])
def test_a_run_is_killed_and_goes_on(tmp_path, processes):
    """Every update is in the history once, its numbers are finite, and the model at the end is one that loads."""
    make_policy(NARROWEST).save(tmp_path / "policy")
    wait(start(processes, tmp_path, *OPTIONS), tmp_path, kill=True)
    run = tmp_path / "runs" / "run"
    assert checkpoints(run), log(tmp_path)
    wait(start(processes, tmp_path, "--resume", str(run)), tmp_path, kill=False)
    rows = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2]
    # Random weights hardly prefer any token: the entropy is near that of a uniform choice.
    assert all(abs(row["update/entropy"] - math.log(VOCABULARY)) < 1 for row in rows)
    assert all(math.isfinite(row[f"update/{name}"]) for row in rows for name in ("loss", "grad_norm", "sampler_gap"))
    assert (run / "model" / "config.json").is_file() and (run / "summary.json").is_file()
