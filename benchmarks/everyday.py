"""Tasks for the benchmark of provenance: scenes of five kinds at two sizes, and a box around a target of each."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache

import numpy as np

from codev_env.tasks import ChartOptions, DocumentOptions, SceneTaskSet, SearchOptions, load_tasks
from codev_env.types import Box, Task

SIZES = {"2K": ((2048, 1536), 1.0), "4K": ((3840, 2160), 1.8)}
"""By name: (width, height) in pixels, and the scale of the print."""


def _set(options: object, wrap: str | None = None) -> Callable[[int], Task]:
    tasks = SceneTaskSet(options, "test", 1000)  # type: ignore[arg-type]
    return tasks.__getitem__


def _corrupted(name: str) -> Callable[[int], Task]:
    wrapped = load_tasks("synthetic", "test", scenes="vstar" if name == "2K" else "vstar-4k", wrap="jpeg:3")
    return wrapped.__getitem__


@cache
def task(kind: str, size: str, index: int) -> Task:
    """A task whose targets are the evidence to look at."""
    pixels, scale = SIZES[size]
    font = (round(22 * scale), round(24 * scale))
    turned = (pixels[1], pixels[0])
    makers: dict[str, Callable[[], Callable[[int], Task]]] = {
        "vstar": lambda: _set(SearchOptions(sizes=(pixels,))),
        "documents": lambda: _set(DocumentOptions(sizes=(turned,), font=font)),
        "charts": lambda: _set(ChartOptions(sizes=(pixels,), font=font)),
        "turned": lambda: (
            load_tasks(
                "synthetic", "test", scenes="vstar" if size == "2K" else "vstar-4k", wrap="rotate_90"
            ).__getitem__
        ),
        "corrupted": lambda: _corrupted(size),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return makers[kind]()(index)


SCENES = ("vstar", "documents", "charts", "turned", "corrupted")


def look(task: Task, rng: np.random.Generator) -> Box:
    """A crop around the first target, 1.4 to 2 times its sides, at least 96 pixels wide and high, not centred."""
    width, height = task.image.size
    x1, y1, x2, y2 = task.targets[0]
    sides = [
        min(max(96.0, rng.uniform(1.4, 2.0) * (high - low)), n) for low, high, n in ((x1, x2, width), (y1, y2, height))
    ]
    starts = []
    for low, high, side, n in ((x1, x2, sides[0], width), (y1, y2, sides[1], height)):
        start = low - rng.uniform(0.3, 0.7) * max(side - (high - low), 0)
        starts.append(int(np.clip(start, 0, n - side)))
    return starts[0], starts[1], int(starts[0] + sides[0]), int(starts[1] + sides[1])
