"""Measures time, memory and effect of each corruption by image size: `python benchmarks/corruptions.py`.

Each row is a separate process: milliseconds per image (the second of two), MiB above the input image, and the mean
absolute difference in grey levels at severities 1 to 5 on a photograph that comes with scikit-image.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from typing import Any

import numpy as np
from PIL import Image

from codev_env.tasks.corruption_kinds import CORRUPTIONS, SEVERITIES
from codev_env.tasks.corruptions import corrupt
from codev_env.tasks.generators.photos import photographs

SIZES = ((28, 28), (672, 672), (2048, 1536), (3840, 2160), (7680, 4320))


def peak() -> float:
    """Peak memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def photograph(size: tuple[int, int]) -> Image.Image:
    path = next(path for path in photographs() if path.stem == "astronaut")
    return Image.open(path).convert("RGB").resize(size, Image.Resampling.BICUBIC)


def cost(name: str, size: tuple[int, int], severity: int, queue: Any) -> None:
    seed = np.random.SeedSequence(0)
    image = photograph(size)
    corrupt(photograph((64, 64)), name, severity, seed)
    before, began = peak(), time.perf_counter()
    corrupt(image, name, severity, seed)
    queue.put((1e3 * (time.perf_counter() - began), peak() - before))


def measure(*arguments: Any) -> tuple[float, float]:
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=cost, args=(*arguments, queue))
    process.start()
    result = queue.get()
    process.join()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", nargs="*", default=list(CORRUPTIONS), help="corruptions to measure")
    parser.add_argument("--severity", type=int, default=5, help="severity of the timed runs")
    options = parser.parse_args()
    image = photograph((672, 672))
    print(f"{'corruption':16}", *(f"{w}x{h} ms  MiB".rjust(18) for w, h in SIZES), "  mean difference at 1 to 5")
    for name in options.names:
        cells = [measure(name, size, options.severity) for size in SIZES]
        changes = []
        for severity in SEVERITIES:
            out = corrupt(image, name, severity, np.random.SeedSequence(0))
            changes.append(np.abs(np.asarray(out, float) - np.asarray(image, float)).mean())
        print(
            f"{name:16}", *(f"{ms:8.0f} {mib:4.0f}".rjust(18) for ms, mib in cells),
            "  " + " ".join(f"{change:5.1f}" for change in changes), flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    main()
