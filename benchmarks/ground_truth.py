"""Times the ground-truth judge for one tool call: `python benchmarks/ground_truth.py`."""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
from PIL import Image

from codev_env.judges import GroundTruthJudge
from codev_env.provenance.coordinates import box_polygon
from codev_env.types import Box, Code, Execution, Region, Step, Task

SIZES = {"672": (672, 672), "2K": (2048, 1365), "4K": (3840, 2160)}


def main() -> None:
    """Print the median and the slowest of many scores, in milliseconds, by image size and kind of step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=200, help="calls per row")
    calls = parser.parse_args().calls
    print(f"{'image':6} {'step':34} {'median ms':>10} {'slowest ms':>11}")
    for name, size in SIZES.items():
        rng = np.random.default_rng(0)
        image = Image.fromarray(rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))
        targets = [_box(size, 0.02, rng) for _ in range(4)]
        small = [make_step(image, _box(size, 0.1, rng)) for _ in range(6)]
        large = [make_step(image, _box(size, 0.45, rng)) for _ in range(6)]
        kinds = {
            "a crop": (small[0], ()),
            "a crop after five, four targets": (small[5], tuple(small[:5])),
            "five crops, four targets": (make_step(image, *(_box(size, 0.1, rng) for _ in range(5))), ()),
            "a fifth of the image, after five": (large[5], tuple(large[:5])),
            "the same fifth again": (large[0], (large[0],)),
            "the image unchanged": (make_step(image, (0, 0, *size)), ()),
        }
        for kind, (step, history) in kinds.items():
            task = Task("t", (image,), "?", "a", targets=tuple(targets if "four" in kind else targets[:1]))
            times = [1e3 * measure(task, step, history) for _ in range(calls)]
            print(f"{name:6} {kind:34} {statistics.median(times):10.2f} {max(times):11.2f}")


def measure(task: Task, step: Step, history: tuple[Step, ...]) -> float:
    """Score once and return the seconds."""
    start = time.perf_counter()
    GroundTruthJudge().score(task, step, history)
    return time.perf_counter() - start


def make_step(image: Image.Image, *boxes: Box) -> Step:
    """A program that returned these crops."""
    regions = tuple(Region(box_polygon(box), box, 0, "rot0", 1.0, 1.0, "probe") for box in boxes)
    return Step("", Code(""), Execution(images=tuple(image.crop(box) for box in boxes)), regions)


def _box(size: tuple[int, int], share: float, rng: np.random.Generator) -> Box:
    width, height = (round(share * length) for length in size)
    x, y = int(rng.integers(size[0] - width)), int(rng.integers(size[1] - height))
    return x, y, x + width, y + height


if __name__ == "__main__":
    main()
