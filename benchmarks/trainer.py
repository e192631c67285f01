"""Compares the cost of a training step with TRL's `GRPOTrainer`: same model, environment, tasks and lengths.

Run `python benchmarks/trainer.py [--cases short long mixed] [--repeats 1] [--steps 3] [--checkpointing]` with a Python
that has TRL (`pip install trl -e ".[train]"`); it prints the table of `docs/trainer_benchmark.md`. Each measurement
runs in its own process, and the trainers alternate, so that all see the same machine. The first step of each process
is a warm-up; medians are over the other steps and the repeats. Only ratios within one run are meaningful; on a shared
machine, CPU seconds are more reliable than seconds.

Every trainer computes in fp32 with the same number of threads. `trainer_play.py` defines the episodes and
`trainer_ways.py` the setup of the trainers.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1", "TOKENIZERS_PARALLELISM": "false"}

WAYS = {"trl": "TRL", "padded": "ours, padded", "packed": "ours, packed"}
Numbers = dict[str, float]
ROWS = {
    "seconds": ("seconds per step", 2),
    "cpu": ("CPU seconds per step", 2),
    "rollouts_cpu": ("of these for rollouts", 2),
    "update_cpu": ("of these for the update", 2),
    "sampled_rate": ("tokens sampled per second of the rollouts", 0),
    "update_rate": ("tokens per second of the update", 0),
    "waiting": ("share of the rollouts in which nothing is sampled", 2),
    "peak": ("peak memory above the loaded model, MiB", 0),
    "rollouts_positions": ("positions computed in the rollouts", 0),
    "update_positions": ("positions computed in the update", 0),
    "rollouts_patches": ("image patches computed in the rollouts", 0),
}


def save_policy(case: str, folder: Path) -> None:
    """Make the toy policy of a case from random weights."""
    from trainer_play import CASES, ENV

    from codev_train.run.options import SFTOptions
    from codev_train.sft import cold_start as sft

    sft.CORPUS_SCENES = 40
    policy = sft.toy_policy(SFTOptions(env=ENV, toy=CASES[case].toy))
    policy.save(folder)


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Take steps in this process."""
    import torch
    from trainer_play import CASES
    from trainer_ways import run_ours, run_trl

    torch.set_num_threads(given.threads)
    case, model = CASES[given.case], str(Path(given.model))
    if given.way == "trl":
        return run_trl(case, model, given.steps, given.checkpointing, json.loads(given.tasks))
    return run_ours(case, model, given.steps, given.checkpointing, given.way == "packed")


def measure_apart(given: argparse.Namespace, way: str, case: str, model: Path, tasks: list[int]) -> dict[str, Any]:
    """Take steps in a separate process."""
    command = [sys.executable, __file__, "--way", way, "--case", case, "--model", str(model)]
    command += ["--steps", str(given.steps), "--threads", str(given.threads), "--tasks", json.dumps(tasks)]
    command += ["--checkpointing"] if given.checkpointing else []
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def summary(runs: list[dict[str, Any]]) -> Numbers:
    """Return the medians over repeats and steps, without the warm-up."""
    steps = [step for run in runs for step in run["steps"][1:]]
    for step in steps:
        step["seconds"] = step["rollouts_seconds"] + step["update_seconds"]
        step["cpu"] = step["rollouts_cpu"] + step["update_cpu"]
        step["sampled_rate"] = step["sampled"] / step["rollouts_seconds"]
        step["update_rate"] = step["tokens"] / step["update_seconds"]
        step["waiting"] = 1 - step["sampling_seconds"] / step["rollouts_seconds"]
    found = {
        name: statistics.median(step[name] for step in steps) for name in (*ROWS, "sampled", "tokens") if name != "peak"
    }
    return found | {"peak": statistics.median(max(run["rollouts_mib"], run["update_mib"]) for run in runs)}


def write_case(name: str, found: dict[str, Numbers]) -> None:
    from trainer_play import CASES

    case, ours = CASES[name], found["packed"]
    print(
        f"\n**{name}**: {case.prompts} tasks x {case.group} rollouts of {case.about}, {case.tokens} tokens sampled in "
        f"each; {ours['tokens'] / case.rows:.0f} tokens per rollout, {ours['sampled']:.0f} sampled per step\n"
    )
    labels = [*WAYS.values(), "TRL / padded", "TRL / packed"]
    print(f"| | {' | '.join(labels)} |\n| --- |{' --- |' * len(labels)}", flush=True)
    for row, (label, digits) in ROWS.items():
        values = [found[way][row] for way in WAYS]
        ratios = [f"{values[0] / value:.2f}" if value and row != "waiting" else "" for value in values[1:]]
        print(f"| {label} | {' | '.join([f'{value:.{digits}f}' for value in values] + ratios)} |", flush=True)


def compare(given: argparse.Namespace) -> None:
    """Measure all ways, alternating, and print the tables."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("trl", "torch", "transformers"))
    print(
        f"{versions}, Python {platform.python_version()}, {platform.machine()}, {given.threads} of {os.cpu_count()} "
        f"cores, fp32, gradient checkpointing {'on' if given.checkpointing else 'off'}; "
        f"medians of {given.repeats} x {given.steps - 1} steps"
    )
    with tempfile.TemporaryDirectory() as folder:
        for case in given.cases:
            model = Path(folder) / case
            save_policy(case, model)
            runs: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
            for _ in range(given.repeats):
                tasks: list[int] = []
                for way in ("packed", "padded", "trl"):  # ours first: it returns the tasks it used
                    runs[way].append(measure_apart(given, way, case, model, tasks))
                    tasks = runs[way][-1].get("tasks", tasks)
            write_case(case, {way: summary(found) for way, found in runs.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=["short", "long", "mixed"])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3, help="steps of each process; the first is a warm-up")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--checkpointing", action="store_true", help="gradient checkpointing in all")
    parser.add_argument("--way", choices=[*WAYS, "save"], help=argparse.SUPPRESS)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--tasks", default="[]", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way == "save":
        save_policy(given.case, Path(given.model))
    elif given.way:
        print(json.dumps(measure(given)))
    else:
        compare(given)


if __name__ == "__main__":
    main()
