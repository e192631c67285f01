r"""How well a region of an image shows a box of evidence: coverage, compactness, detail.

With A the area of the original, T a target box and R the region shown (a polygon clipped to the original):

    coverage = |T ∩ R| / |T|, of which only what `Region.seen` does not mark as painted over counts
    limit    = max(min(max(4 |T|, A / 100), A / 8), 1.5 |T|), at most 0.9 A
    lazy     = max(A / 4, min(2 limit, (A + limit) / 2))
    compact  = 1 up to |R| = limit, 0 from |R| = lazy on, between them linear in log |R|
    detail   = min(1, output pixels per original pixel)
    share    = min(1, original_share / 0.1)          a stamp on a large drawing is not the main content
    value    = coverage · compact · detail · share

So a crop twice as wide and high as its target, or a tenth of the image's width and height, is as good as a
tighter one; a quarter of the image shows no small target as its main content.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from codev_env.provenance.coordinates import area, box_polygon, clip
from codev_env.types import Box, Region

CLEAR_COVERAGE, CLEAR_VALUE = 0.75, 0.5
_PROMINENT = 0.1
_SLACK = 1.01  # Half a pixel more on each side must not decide: boxes are whole pixels, fits are not.
_GRID = 64
_SAMPLES = 16


@dataclass(frozen=True)
class Showing:
    """How a region shows one target; formulas in the module's docstring. All are 0 to 1.

    Attributes:
        coverage: Share of the target that is seen.
        compact: 1 if the target is the main content, 0 if the region is lazy.
        detail: Output pixels per original pixel, at most 1.
        share: 1 unless next to nothing of the output stems from the original.
    """

    coverage: float
    compact: float
    detail: float
    share: float

    @property
    def value(self) -> float:
        """The product of all four."""
        return self.coverage * self.compact * self.detail * self.share

    @property
    def clear(self) -> bool:
        """The target is clearly shown as the main content: coverage at least 0.75, the others at least 0.5."""
        return self.coverage >= CLEAR_COVERAGE and min(self.compact, self.detail, self.share) >= CLEAR_VALUE


def showing(region: Region, target: Box, size: tuple[int, int]) -> Showing:
    """Measure how a region shows a target.

    Args:
        region: The region that an image shows; its polygon must be known.
        target: The evidence, in pixels of the original.
        size: (width, height) of the original.
    """
    if region.polygon is None:
        raise ValueError("showing needs a region with a polygon")
    shown = clip(region.polygon, (0, 0, *size))
    coverage = area(clip(shown, target)) / area(box_polygon(target))
    if coverage and region.seen is not None:
        coverage *= _seen_share(region, target)
    return Showing(
        coverage=coverage,
        compact=compactness(area(shown), target, size),
        detail=min(1.0, region.scale or 1.0),
        share=min(1.0, region.original_share / _PROMINENT),
    )


def compactness(shown_area: float, target: Box, size: tuple[int, int]) -> float:
    """Return 1 if a region of that area, in pixels of the original, has the target as its main content, 0 if lazy."""
    whole, target_area = float(size[0] * size[1]), area(box_polygon(target))
    limit = min(max(min(max(4 * target_area, whole / 100), whole / 8), 1.5 * target_area), 0.9 * whole)
    lazy = max(whole / 4, min(2 * limit, (whole + limit) / 2))
    if shown_area <= limit * _SLACK:
        return 1.0
    return max(0.0, math.log(lazy / shown_area) / math.log(lazy / limit))


def area_share(region: Region, size: tuple[int, int]) -> float:
    """Return the share of the original, of (width, height), that a region with a polygon shows."""
    return area(clip(region.polygon or (), (0, 0, *size))) / (size[0] * size[1])


def union_share(regions: Iterable[Region], size: tuple[int, int]) -> float:
    """Return the share of the original that several regions show together, to about 1/64 of a side."""
    xs, ys = ((np.arange(_GRID) + 0.5) * length / _GRID for length in size)
    covered = np.zeros((_GRID, _GRID), np.bool_)
    for region in regions:
        if region.polygon is not None:
            covered |= _inside(np.array(region.polygon), xs[None, :], ys[:, None])
    return float(covered.mean())


def _inside(polygon: NDArray[np.floating], x: NDArray[np.floating], y: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Which points lie in a convex polygon, whichever way round it goes."""
    ends = np.roll(polygon, -1, 0)
    sides = [
        (bx - ax) * (y - ay) - (by - ay) * (x - ax)
        for (ax, ay), (bx, by) in zip(polygon.tolist(), ends.tolist(), strict=True)
    ]
    return np.logical_and.reduce([side >= 0 for side in sides]) | np.logical_and.reduce([side <= 0 for side in sides])


def _seen_share(region: Region, target: Box) -> float:
    """Share of the part of a target that a region shows which stems from the original."""
    assert region.polygon is not None and region.seen is not None
    xs, ys = (
        low + (np.arange(_SAMPLES) + 0.5) * (high - low) / _SAMPLES
        for low, high in ((target[0], target[2]), (target[1], target[3]))
    )
    points = np.stack(np.meshgrid(xs, ys), -1).reshape(-1, 2)
    origin, right, _, down = (np.array(corner, float) for corner in region.polygon)
    try:  # From the original to (0, 0) .. (1, 1) over the part shown.
        uv = np.linalg.solve(np.column_stack([right - origin, down - origin]), (points - origin).T).T
    except np.linalg.LinAlgError:
        return 0.0
    uv = uv[((uv >= 0) & (uv < 1)).all(1)]
    if not len(uv):
        return 1.0  # smaller than the samples' distance
    rows, columns = region.seen.shape
    return float(region.seen[(uv[:, 1] * rows).astype(int), (uv[:, 0] * columns).astype(int)].mean())
