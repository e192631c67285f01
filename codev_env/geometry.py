"""Areas, overlaps and rounding of boxes `(x1, y1, x2, y2)`, right and bottom exclusive."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from codev_env.types import Box

Number = TypeVar("Number", int, float)


def as_box(values: Sequence[int]) -> Box:
    """Return four whole numbers, for example a list from JSON, as a box."""
    x1, y1, x2, y2 = values
    return x1, y1, x2, y2


def area(box: Sequence[Number]) -> Number:
    """Return the area of a box in pixels; 0 for one whose sides are swapped."""
    return max(0, box[2] - box[0]) * max(0, box[3] - box[1])


def overlap(a: Sequence[Number], b: Sequence[Number]) -> Number:
    """Return the area that two boxes share, in pixels."""
    return area((max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])))


def iou(a: Sequence[float], b: Sequence[float]) -> float:
    """Return intersection over union of two boxes; 0 where both are empty."""
    shared = overlap(a, b)
    union = area(a) + area(b) - shared
    return shared / union if union else 0.0


def outward(box: Sequence[float], size: tuple[int, int]) -> Box:
    """Round a box outwards to whole pixels and clip it to an image of `size` (width, height)."""
    x1, y1, x2, y2 = box
    return max(0, math.floor(x1)), max(0, math.floor(y1)), min(size[0], math.ceil(x2)), min(size[1], math.ceil(y2))
