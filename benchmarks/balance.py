"""Measures the gain of balancing: `python benchmarks/balance.py [--processes 8] [--skew 1.0] [--budget 32768]`.

Draws the lengths of trajectories as a process samples them, whole groups of `--group` of one task each: log-normal over
tasks (`--skew`) and within a group (half of it), so that a process may have several long groups. Plans the forward
passes of an update as the trainer does, with each trajectory where it was sampled ("as sampled") and shared out over
the processes ("balanced"). The output has the means over `--updates`: passes per process, the share of passes that are
empty, the share of the time in which processes wait for the passes of others, the time of the update relative to one
without waiting, and the share of tokens that change process. Nothing is timed: the unit of time is
`codev_train.learn.balance.cost`.
"""

from __future__ import annotations

import argparse

import numpy as np

from codev_train.learn.balance import cost, idle, schedule, share_out
from codev_train.learn.packing import plan


def draw(given: argparse.Namespace, rng: np.random.Generator) -> tuple[list[int], list[int]]:
    """Draw lengths, and the process that samples each trajectory."""
    tasks = rng.lognormal(0.0, given.skew, (given.processes, given.tasks, 1))
    lengths = given.median * tasks * rng.lognormal(0.0, given.skew / 2, (*tasks.shape[:2], given.group))
    homes = np.repeat(np.arange(given.processes), given.tasks * given.group)
    return np.clip(lengths, 300, given.longest).astype(int).flatten().tolist(), homes.tolist()


def first_fit(lengths: list[int], homes: list[int], processes: int, budget: int) -> list[list[list[int]]]:
    """Let every process pack its own, and run empty passes while others go on."""
    table = []
    for process in range(processes):
        own = [row for row, home in enumerate(homes) if home == process]
        table.append([[own[i] for i in part] for part in plan([lengths[row] for row in own], budget)])
    most = max(map(len, table))
    return [[*made, *[[] for _ in range(most - len(made))]] for made in table]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--tasks", type=int, default=32, help="per process")
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--median", type=int, default=3000, help="tokens of a trajectory")
    parser.add_argument("--longest", type=int, default=32768)
    parser.add_argument("--skew", type=float, default=1.0, help="standard deviation of the logarithm over tasks")
    parser.add_argument("--budget", type=int, default=32768)
    parser.add_argument("--updates", type=int, default=20)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    found: dict[str, list[list[float]]] = {"as sampled": [], "balanced": []}
    for _ in range(given.updates):
        lengths, homes = draw(given, rng)
        costs = [cost(length) for length in lengths]
        moved = share_out(costs, homes, given.processes)
        tables = {
            "as sampled": (homes, first_fit(lengths, homes, given.processes, given.budget)),
            "balanced": (moved, schedule(range(len(lengths)), lengths, moved, given.processes, given.budget, 1)),
        }
        for way, (places, table) in tables.items():
            empty, waiting = idle(lengths, table)
            leaving = sum(n for n, a, b in zip(lengths, homes, places, strict=True) if a != b) / sum(lengths)
            found[way].append([len(table[0]), 100 * empty, 100 * waiting, 1 / (1 - waiting), 100 * leaving])
    means = {way: np.mean(values, axis=0) for way, values in found.items()}
    print("| | passes | empty % | waiting % | time | moved % |\n| --- | --- | --- | --- | --- | --- |")
    for way, (passes, empty, waiting, time, leaving) in means.items():
        print(f"| {way} | {passes:.1f} | {empty:.1f} | {waiting:.1f} | {time:.3f} | {leaving:.1f} |")
    print(f"\nbalanced / as sampled: {means['balanced'][3] / means['as sampled'][3]:.2f} of the time")


if __name__ == "__main__":
    main()
