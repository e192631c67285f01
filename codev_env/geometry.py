"""Areas, overlaps and rounding of boxes `(x1, y1, x2, y2)`, right and bottom exclusive, and unions of polygons."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from codev_env.types import Box, Point, Region

Number = TypeVar("Number", int, float)
_LINES = 8
"""Lines between two heights at which corners lie, along which the union of tilted polygons is measured."""


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


def grow_box(box: Box, size: tuple[int, int], least: int) -> Box:
    """Grow a box about its middle until no side is shorter than `least` pixels, or than the image.

    Args:
        box: (x1, y1, x2, y2) in pixels, within the image.
        size: (width, height) of the image.
        least: The shortest side, in pixels.
    """
    x1, y1, x2, y2 = box
    (left, right), (top, bottom) = _grow(x1, x2, size[0], least), _grow(y1, y2, size[1], least)
    return left, top, right, bottom


def _grow(low: int, high: int, end: int, least: int) -> tuple[int, int]:
    if high - low >= least:
        return low, high
    start = max(0, min(low - (least - (high - low)) // 2, end - least))
    return start, min(end, start + least)


def union_area(polygons: Sequence[Sequence[Point]]) -> float:
    """Return the area that convex polygons cover together: exact for upright rectangles, to about 1 % for tilted ones.

    Args:
        polygons: The corners of each, in order, whichever way round; those with fewer than three are empty.
    """
    found = [np.array(polygon, float) for polygon in polygons if len(polygon) > 2]
    if not found:
        return 0.0
    heights = np.unique(np.concatenate([polygon[:, 1] for polygon in found]))
    upright = all((np.diff(np.vstack([polygon, polygon[:1]]), axis=0) == 0).any(1).all() for polygon in found)
    parts = 1 if upright else _LINES
    steps = np.diff(heights)
    lines = (heights[:-1, None] + steps[:, None] * (np.arange(parts) + 0.5) / parts).ravel()
    low, high = np.stack([_along(polygon, lines) for polygon in found], axis=-1)
    order = np.argsort(low, axis=1)
    low, high = np.take_along_axis(low, order, 1), np.take_along_axis(high, order, 1)
    reached = np.maximum.accumulate(high, axis=1)
    start = np.maximum(low, np.concatenate([np.full((len(lines), 1), -np.inf), reached[:, :-1]], axis=1))
    lengths = np.maximum(high - start, 0.0).sum(1)
    return float(lengths @ np.repeat(steps / parts, parts))


def _along(polygon: NDArray[np.floating], lines: NDArray[np.floating]) -> NDArray[np.floating]:
    """The first and last x of a polygon on horizontal lines, shape (2, lines); infinite, swapped where it has none."""
    ends = np.roll(polygon, -1, 0)
    y, to_y = polygon[:, 1, None], ends[:, 1, None]
    crossed = (np.minimum(y, to_y) <= lines) & (lines < np.maximum(y, to_y))
    share = (lines - y) / np.where(to_y == y, 1.0, to_y - y)
    x = polygon[:, :1] + share * (ends[:, :1] - polygon[:, :1])
    return np.stack([np.where(crossed, x, np.inf).min(0), np.where(crossed, x, -np.inf).max(0)])


class ImageBox(tuple[int, int, int, int]):
    """A box that knows which of the task's images it is on; equal to the plain tuple.

    Attributes:
        image: Number of the image, from 0.
    """

    image: int

    def __new__(cls, box: Sequence[int], image: int = 0) -> ImageBox:
        """Make one of `(x1, y1, x2, y2)`."""
        made = super().__new__(cls, box)
        made.image = image
        return made

    def __getnewargs__(self) -> tuple[tuple[int, ...], int]:
        """Return the arguments that make a copy."""
        return tuple(self), self.image

    def __repr__(self) -> str:
        return f"{tuple(self)!r}" if not self.image else f"ImageBox({tuple(self)!r}, image={self.image})"


def image_of(box: Box | None) -> int:
    """Return the number of the image that a box is on; 0 for a plain tuple, and where it is unknown."""
    return box.image if isinstance(box, ImageBox) else 0


def numbered(box: Box) -> list[int]:
    """Return a box as four numbers for a file, and a fifth for its image where that is not the first."""
    return [*box, image_of(box)] if image_of(box) else list(box)


def boxes_on(image: int, boxes: Iterable[Box | None]) -> list[Box]:
    """Return the boxes on one image."""
    return [box for box in boxes if box is not None and image_of(box) == image]


def same_image(box: Box, other: Box) -> Box:
    """Return a box as one on the image of another box."""
    return ImageBox(box, other.image) if isinstance(other, ImageBox) else box


def shown_box(region: Region) -> Box | None:
    """Return the box of a region, which knows its image where that is not the first; `None` where unknown."""
    if region.box is None or region.image_index == 0:
        return region.box
    return ImageBox(region.box, region.image_index)
