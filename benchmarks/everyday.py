"""Tasks for the benchmark of provenance: scenes of five kinds at two sizes, a box around a target, and chains."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache

import numpy as np
from everyday_programs import EVERYDAY

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


_BEGIN, _END = EVERYDAY["plain"].split("pass")
_SIZED = ("plain", "resize", "shrink", "thumbnail", "expand", "pad", "labelled", "outlined")
COLOURS = {
    name: program.removeprefix(_BEGIN).removesuffix(_END)
    for name, program in EVERYDAY.items()
    if program.startswith(_BEGIN) and "plt" not in program and not name.startswith((*_SIZED, "rot", "flipped"))
}
"""Everyday changes of a crop's colours, by name."""
_RGB = "im = im.convert('RGB')\n"
SHAPES = {
    "zoomed x2": "im = im.resize((im.width * 2, im.height * 2), Image.LANCZOS)\n",
    "zoomed x3": "im = im.resize((im.width * 3, im.height * 3), Image.BICUBIC)\n",
    "shrunk": "im = im.resize((im.width * 2 // 3, im.height * 2 // 3), Image.LANCZOS)\n",
    "turned": "im = im.rotate(90, expand=True)\n",
    "mirrored": "im = ImageOps.mirror(im)\n",
    **{
        f"tilted by {degrees}": f"{_RGB}im = im.rotate({degrees}, resample=Image.BICUBIC, expand=True)\n"
        for degrees in (-4, 3, 15)
    },
    "bordered": _RGB + "im = ImageOps.expand(im, 15, fill='white')\n",
    "padded": _RGB + "im = ImageOps.pad(im, (640, 640), color='black')\n",
}
"""Everyday changes of a crop's shape, by name."""


def chain(rng: np.random.Generator) -> tuple[str, str]:
    """A name and a program: a crop, one or two changes of its colours, and changes of its shape before and after."""
    names, lines = [], []
    for changes, share in ((SHAPES, 0.4), (COLOURS, 1.0), (COLOURS, 0.3), (SHAPES, 0.6)):
        if rng.random() < share:
            names.append(str(rng.choice(list(changes))))
            lines.append((_RGB if changes is COLOURS else "") + changes[names[-1]])
    return ", ".join(names), _BEGIN + "\n".join(lines) + _END
