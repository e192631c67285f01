"""Draws the curves that examples/sb3_ppo.py wrote, and prints the table of docs/adapters_rl.md.

    python benchmarks/ppo_curve.py runs/ppo --out docs/images/ppo.svg

The thick curve is the mean over the seeds, the band goes from the lowest seed to the highest.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from codev_env.scoring.metrics import wilson

AT_RANDOM, ANY_SHAPE, WINDOW = 1 / 9, 1 / 3, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    runs = [json.loads(path.read_text()) for path in sorted(args.folder.glob("seed*.json"))]
    print("| seed | crops | score of greedy crops on test scenes | faithful [95 %] |\n| --- | --- | --- | --- |")
    for run in runs:
        test = run["test"]
        low, high = wilson(round(test["faithful"] * test["scenes"]), test["scenes"])
        print(
            f"| {run['seed']} | {run['curve'][-1][0]} | {test['score']:.2f} "
            f"| {test['faithful']:.1%} [{low:.1%}, {high:.1%}] |"
        )
    steps = np.array([step for step, _ in runs[0]["curve"]])[WINDOW - 1 :]
    means = np.array([np.convolve([y for _, y in run["curve"]], np.ones(WINDOW) / WINDOW, "valid") for run in runs])
    plt.rcParams["svg.hashsalt"] = "ppo"
    figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
    axes.fill_between(steps, means.min(0), means.max(0), alpha=0.25, linewidth=0)
    axes.plot(steps, means.mean(0), linewidth=2, label=f"PPO, {len(runs)} seeds")
    for value, name in ((ANY_SHAPE, "any shape"), (AT_RANDOM, "at random")):
        axes.axhline(value, color="grey", linestyle=":")
        axes.text(steps[-1], value + 0.01, name, ha="right", color="grey")
    axes.set(xlabel="crops", ylabel=f"mean score of the last {WINDOW} updates", ylim=(0, 1.02))
    axes.legend(loc="center right", frameon=False)
    figure.savefig(args.out, metadata={"Date": None})


if __name__ == "__main__":
    main()
