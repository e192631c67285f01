"""Times a step of Muon on this CPU: ours, which orthogonalises in fp32, and PyTorch's, which does so in bf16.

Run `python benchmarks/muon.py [--rounds 10]`; it takes some seconds. The matrices are those of the toy policy of preset
`tiny`. The two alternate, with one thread. The ratio depends on whether the processor has instructions for bf16.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from codev_train.learn.muon import Muon
from codev_train.learn.optimizer import CombinedOptimizer
from codev_train.run.config import read_request
from codev_train.run.options import SFTOptions
from codev_train.sft.cold_start import toy_policy


def matrices() -> list[torch.nn.Parameter]:
    """Return the matrices of the toy that Muon steps, with gradients."""
    torch.manual_seed(0)
    options = read_request(["--preset", "tiny"]).parse("sft", SFTOptions, "codev sft")
    muon = CombinedOptimizer(toy_policy(options).model, options.ground.optimizer).parts[0]
    found = [parameter for group in muon.param_groups for parameter in group["params"]]
    for parameter in found:
        parameter.grad = torch.randn_like(parameter)
    return found


def seconds_of(step: Callable[[], object]) -> float:
    """Return the seconds of one call."""
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


def main() -> None:
    """Measure, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    theirs = torch.optim.Muon(matrices(), lr=1e-3, weight_decay=0.01, adjust_lr_fn="match_rms_adamw")
    contenders = {"fp32 (ours)": Muon(matrices(), lr=1e-3, weight_decay=0.01), "bf16 (PyTorch)": theirs}
    took: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 2):
        for name, optimizer in contenders.items():
            seconds = seconds_of(optimizer.step)
            if number >= 2:
                took[name].append(seconds)
    least = statistics.median(took["fp32 (ours)"])
    for name, values in took.items():
        middle = statistics.median(values)
        print(f"{name:16} {1000 * middle:8.1f} ms a step   x {middle / least:.1f}")


if __name__ == "__main__":
    main()
