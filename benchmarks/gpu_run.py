"""A whole run of `codev` for `gpu.py`: a cold start in bf16, updates, a SIGKILL after the first, and the rest."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BIG = "--toy.hidden 2048 --toy.layers 28 --toy.heads 16 --toy.vision-hidden 1024 --toy.vision-layers 24".split()
"""A Qwen3-VL of 1.8B parameters with the toy's vocabulary."""
SMALL = "--toy.hidden 32 --toy.layers 1 --toy.heads 2 --toy.vision-hidden 32 --toy.vision-layers 1".split()
START = (
    "sft --name start --precision bf16 --env.scenes tiny --env.max-turns 2 --pool 512 --snap 56 --ground.captions 2"
    " --ground.reads 8 --ground.experts 12 --ground.optimizer.lr 2e-4 --ground.optimizer.warmup 20"
).split()
TRAIN = (
    "train --name run --precision bf16 --env.scenes tiny --env.max-turns 2 --max-tokens 48 --group 8"
    " --token-budget 8192 --gradient-checkpointing True --optimizer.lr 1e-5 --save-every 1 --keep 1"
    " --health.mismatch 0.05"
).split()
UPDATES = 3


def run(toy: bool) -> dict[str, Any]:
    """Play it; returns the seconds of its phases (means over updates), and whether each update was made once."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        size, steps, prompts = (SMALL, 2, 1) if toy else (BIG, 150, 16)
        started = time.perf_counter()
        subprocess.run(_command(out, *START, *size, "--ground.steps", str(steps)), check=True)
        cold = time.perf_counter() - started
        (model,) = (path.parent for path in out.glob("start-*/config.json"))
        given = ["--model", str(model), "--steps", str(UPDATES), "--prompts", str(prompts)]
        episodes = ["--eval.episodes", str(2 if toy else 64)]
        _kill_after_first(_command(out, *TRAIN, *given, *episodes), out / "run")
        started = time.perf_counter()
        subprocess.run(_command(None, "train", "--resume", str(out / "run")), check=True)
        resumed = time.perf_counter() - started
        rows = [json.loads(line) for line in (out / "run" / "history.jsonl").read_text().splitlines()]
        saved = sum(path.stat().st_size for path in (out / "run" / "checkpoints").rglob("*") if path.is_file())
    if [row["step"] for row in rows] != list(range(1, UPDATES + 1)):
        raise RuntimeError(f"the updates are {[row['step'] for row in rows]}")

    def mean(name: str) -> float:
        known = [row[name] for row in rows if row[name] is not None]  # an update whose groups are all alike has no gap
        return sum(known) / max(1, len(known))

    return {
        "cold_start_seconds": cold,
        "rollout_seconds": mean("seconds/rollouts"),
        "update_seconds": mean("seconds/update"),
        "rollout_tokens_per_second": mean("tokens_per_second/rollouts"),
        "calls": mean("tool_calls"),
        "gap": mean("update/sampler_gap"),
        "checkpoint_gib": saved / 2**30,
        "resumed_seconds": resumed,
        "once": True,
    }


def _command(out: Path | None, *words: str) -> list[str]:
    folder = [] if out is None else ["--out", str(out)]
    return [sys.executable, "-m", "codev_env.app.cli", *words, *folder]


def _kill_after_first(command: list[str], run: Path) -> None:
    """Start training and kill it when the first checkpoint is there; what it started ends by itself."""
    process = subprocess.Popen(command)
    while process.poll() is None and not (run / "checkpoints" / "step-000001").exists():
        time.sleep(0.2)
    if process.returncode is not None:
        raise RuntimeError(f"training ended with {process.returncode} before it was killed")
    process.kill()
    process.wait()
