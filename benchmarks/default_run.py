"""Print the table of `docs/results.md` from the summaries of finished runs.

for s in 0 1 2; do make train ARGS="--seed $s --name tiny-seed$s"; done
.venv/bin/python benchmarks/default_run.py runs/tiny-seed0 runs/tiny-seed1 runs/tiny-seed2
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

METRICS = (
    ("accuracy", "accuracy"),
    ("contrast_accuracy", "cue-free accuracy"),
    ("faithful", "faithful-tool rate"),
    ("faithful_given_correct", "faithful given correct"),
    ("tool_calls", "tool calls per episode"),
)
PHASES = ("cold start", "evaluation before", "training", "evaluation after", "total")


def cell(metrics: dict, name: str) -> str:
    if name not in metrics:  # of a run without contrast scenes
        return "–"
    scale, digits, unit = (1, 2, "") if name == "tool_calls" else (100, 1, " %")
    value, *interval = (f"{scale * x:.{digits}f}" for x in (metrics[name], *(metrics["ci95"][name] or ())))
    return f"{value}{unit}" + (f" [{', '.join(interval)}]" if interval else "")


def main(folders: list[str]) -> None:
    runs = [json.loads((Path(folder) / "summary.json").read_text()) for folder in folders]
    seeds = [f"seed {run['seed']}" for run in runs]
    print(f"| | | {' | '.join(seeds)} |\n| --- | --- |{' --- |' * len(runs)}")
    for name, label in METRICS:
        for when in ("before", "after"):
            print(f"| {label} | {when} | {' | '.join(cell(run[when], name) for run in runs)} |")
    print(f"\n| seconds | {' | '.join(seeds)} |\n| --- |{' --- |' * len(runs)}")
    for phase in PHASES:
        print(f"| {phase} | {' | '.join(str(run['seconds'][phase]) for run in runs)} |")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
