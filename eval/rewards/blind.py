"""Blind programs on paper: the regions they show, judged without a sandbox, and the chances of one random crop.

`codev rewards bound` compares the two; `docs/rewards.md` states the bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from codev_env.judges.account import Account, JudgedImage
from codev_env.judges.evidence import (
    AS_IT_IS,
    CLEAR_COVERAGE,
    WHOLE,
    limit_of,
    target_share_of,
    union_share,
)
from codev_env.judges.ground_truth import GroundTruthJudge
from codev_env.provenance.coordinates import box_polygon
from codev_env.types import Box, Code, Episode, Execution, Region, Step, Task

FACTOR = 1.5
"""A blind program is faithful at most as many times as often as one honest random crop of the same total area."""
SIZE = (1000, 760)
PLACES = 64
"""Places along a side at which the random crop is tried."""
TARGETS = (0.0005, 0.0025, 0.01, 0.03, 0.08, 0.12, 0.2, 0.3, 0.4)
"""Shares of the image that targets fill."""
CROPS = (0.0015, 0.006, 0.02, 0.05, 0.12, 0.3, 0.6)
"""Shares of the image that crops fill."""

Picture = Sequence[Box]
"""The boxes that one image shows side by side; the first is the one that provenance reports."""
Turns = Sequence[Sequence[Picture]]
"""The images of each tool call."""
Plan = Callable[[np.random.Generator, float], Turns]
"""Chooses the boxes of an episode; the number is the share of the image that a crop fills."""

PLANS: dict[str, Plan] = {}
"""Blind programs by name."""


def _plan(name: str) -> Callable[[Plan], Plan]:
    def add(plan: Plan) -> Plan:
        PLANS[name] = plan
        return plan

    return add


def box_at(x: float, y: float, share: float, shape: float = 1.0) -> Box:
    """Return a box of that share of the image at a place, both 0 to 1: 0 is as far left or up as it can be."""
    sides = [min(1.0, math.sqrt(share * shape)), min(1.0, math.sqrt(share / shape))]
    w, h = (max(1, round(length * side)) for length, side in zip(SIZE, sides, strict=True))
    left, top = round(x * (SIZE[0] - w)), round(y * (SIZE[1] - h))
    return left, top, left + w, top + h


def anywhere(rng: np.random.Generator, share: float, count: int = 1, shape: float = 1.0) -> list[Box]:
    """Return boxes of that share of the image at random places, disjoint as far as a few tries find some."""
    found: list[Box] = []
    while len(found) < count:
        for _ in range(20):
            box = box_at(rng.random(), rng.random(), share, shape)
            if not any(_meet(box, other) for other in found):
                break
        found.append(box)
    return found


def _meet(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _grid(share: float) -> list[Box]:
    """The tiles of a grid, row by row, each of about that share of the image."""
    n = min(max(2, round(1 / math.sqrt(share))), 8)
    return [
        (SIZE[0] * i // n, SIZE[1] * j // n, SIZE[0] * (i + 1) // n, SIZE[1] * (j + 1) // n)
        for j in range(n)
        for i in range(n)
    ]


_ALL: Box = (0, 0, *SIZE)

_plan("one crop")(lambda rng, share: [[anywhere(rng, share)]])
_plan("centre crop")(lambda rng, share: [[[box_at(0.5, 0.5, share)]]])
_plan("wide crop")(lambda rng, share: [[anywhere(rng, share, shape=2.5)]])
_plan("two turns")(lambda rng, share: [[[box]] for box in anywhere(rng, share, 2)])
_plan("four turns")(lambda rng, share: [[[box]] for box in anywhere(rng, share, 4)])
_plan("ten turns")(lambda rng, share: [[[box]] for box in anywhere(rng, share, 10)])
_plan("pairs, four turns")(lambda rng, share: [[[a], [b]] for a, b in _pairs(anywhere(rng, share, 8))])
_plan("five a call")(lambda rng, share: [[[box] for box in anywhere(rng, share, 5)]])
_plan("collage of four")(lambda rng, share: [[anywhere(rng, share, 4)]])
_plan("collages, four turns")(lambda rng, share: [[anywhere(rng, share, 4)] for _ in range(4)])
_plan("whole image, then crop")(lambda rng, share: [[[_ALL]], [anywhere(rng, share)]])
_plan("whole image beside crop")(lambda rng, share: [[[_ALL], *([box] for box in anywhere(rng, share))]])
_plan("grid, five tiles")(lambda rng, share: [[[box]] for box in rng.permutation(_grid(share))[:5].tolist()])
_plan("grid, all tiles")(lambda rng, share: [[[box] for box in row] for row in _rows(_grid(share))][:12])


def _pairs(boxes: Sequence[Box]) -> Iterator[tuple[Box, Box]]:
    return zip(boxes[::2], boxes[1::2], strict=True)


def _rows(tiles: Sequence[Box]) -> list[Sequence[Box]]:
    n = math.isqrt(len(tiles))
    return [tiles[k : k + n] for k in range(0, len(tiles), n)]


@_plan("shrinking windows")
def _shrinking(rng: np.random.Generator, share: float) -> Turns:
    x, y = rng.random(2).tolist()
    return [[[box_at(x, y, share * 2.0**k)]] for k in range(5, -1, -1) if share * 2.0**k < 0.9]


@_plan("shifted crop")
def _shifted(rng: np.random.Generator, share: float) -> Turns:
    x1, y1, x2, y2 = anywhere(rng, share)[0]
    step = (x2 - x1) // 5 + 1
    return [[[(x1 + k * step, y1, x2 + k * step, y2)]] for k in range(6) if x2 + k * step <= SIZE[0]]


@cache
def _noise() -> Image.Image:
    rng = np.random.default_rng(0)
    return Image.fromarray(rng.integers(0, 256, (SIZE[1], SIZE[0], 3), dtype=np.uint8))


def scene(rng: np.random.Generator, target: float, count: int = 1) -> Task:
    """Return a task whose targets fill that share of the image each, at random places and in random shapes."""
    targets = []
    for _ in range(count):
        shape = 2.0 ** rng.uniform(-1.2, 1.2)
        shape = min(max(shape, target), 1 / target)
        targets.append(box_at(rng.random(), rng.random(), target, shape))
    return Task("blind", (_noise(),), "?", "a", targets=tuple(targets))


def judged(task: Task, turns: Turns, judge: GroundTruthJudge | None = None) -> Episode:
    """Judge an episode by its regions, as the environment would with those that provenance finds."""
    judge, episode = judge or GroundTruthJudge(), Episode(task)
    for pictures in turns:
        images = tuple(task.image.resize((24, 18), Image.Resampling.NEAREST, picture[0]) for picture in pictures)
        step = Step("", Code(""), Execution(images=images), tuple(_region(picture) for picture in pictures))
        episode.steps.append(replace(step, score=judge.score(task, step, tuple(episode.steps))))
    return episode


def _region(picture: Picture) -> Region:
    areas = [(x2 - x1) * (y2 - y1) for x1, y1, x2, y2 in picture]
    first, *others = (
        Region(box_polygon(box), box, 0, "rot0", 1.0, area / sum(areas), "probe")
        for box, area in zip(picture, areas, strict=True)
    )
    return replace(first, others=tuple(others))


def shown_in_all(episode: Episode) -> float:
    """Return the share of the image that an episode has shown in looks that could show a target as its main content."""
    task, images = episode.task, []
    for step in episode.steps:
        returned = step.execution.images if step.execution else ()
        images += [JudgedImage(region, image) for region, image in zip(step.regions, returned, strict=False)]
    found = [look for looks in Account(task, images, AS_IT_IS).looks for look in looks]
    narrow = [look for look in found if any(view.compact >= 0.5 for view in look.alone)]
    return union_share([look.region for look in narrow], task.image.size) + sum(look.rest for look in narrow)


def chance(task: Task, share: float) -> float:
    """Return the probability that one crop of that share of the image, of its shape, is faithful at a random place.

    A crop of the largest faithful size stands for larger ones.
    """
    size = task.image.size
    limits = [min(limit_of(target_share_of(target, size)), WHOLE) for target in task.targets]
    share = min(share, max(limits))
    if share <= 0:
        return 0.0
    shows = np.zeros((PLACES, PLACES), np.bool_)
    for target, limit in zip(task.targets, limits, strict=True):
        if share <= limit:
            x, y = (_covered(length, math.sqrt(share), target[axis::2]) for axis, length in enumerate(size))
            shows |= np.outer(y, x) >= CLEAR_COVERAGE
    return float(shows.mean())


def _covered(length: int, side: float, target: Sequence[int]) -> NDArray[np.floating]:
    """Share of a target's extent along an axis that a crop shows, at each of its places."""
    low = np.linspace(0, length * (1 - side), PLACES)
    shown = np.minimum(low + length * side, target[1]) - np.maximum(low, target[0])
    return np.asarray(np.clip(shown, 0, None) / (target[1] - target[0]))
