"""Joins parts of an output that continue each other: halves of one crop that were read as if they were a collage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from codev_env.provenance import coordinates as geometry
from codev_env.provenance.regions import GRID, Bools, Bounds, affine_over, area_of
from codev_env.types import Region

Array = NDArray[np.floating]
Part = tuple[Bounds, Region | None]

_FILLED = 0.95
"""Share of a part that its region's polygon fills, at least, so that the corners of both are the same."""
_OFF, _PIXELS = 0.02, 2.0
"""Of a part's diagonal, and pixels of the image: how far a part may lie from where another one says it continues."""
_SPARE = 2
"""Pixels of the output that even layouts leave out between two parts."""


def joined(parts: Sequence[Part]) -> list[Part]:
    """Return the parts of an output, those joined that side by side show one place of an input in one piece.

    Args:
        parts: Bounds and region of each part, the region as if the part had been returned alone.
    """
    for one, other in combinations(parts, 2):
        both = _join(one, other)
        if both is not None:
            return joined([both if part is one else part for part in parts if part is not other])
    return list(parts)


def _join(one: Part, other: Part) -> Part | None:
    """One part of both; `None` unless they continue each other."""
    if one[0][:2] > other[0][:2]:
        one, other = other, one
    (a, first), (b, second) = one, other
    if first is None or second is None or first.polygon is None or second.polygon is None:
        return None
    if (first.image_index, first.orientation) != (second.image_index, second.orientation):
        return None
    # Sides that they share: the right one of the first part is the left one of the second, or the lower one the upper.
    axis = 0 if abs(a[2] - b[0]) <= _SPARE else 1
    level = max(abs(a[1 - axis] - b[1 - axis]), abs(a[3 - axis] - b[3 - axis]))
    if abs(a[2 + axis] - b[axis]) > _SPARE or level > _SPARE or not (_is_filled(first) and _is_filled(second)):
        return None
    for (bounds, region), (beside, expected) in ((one, other), (other, one)):
        assert region is not None and expected is not None and expected.polygon is not None
        corners = np.array(expected.polygon)
        most = max(_PIXELS, _OFF * float(np.linalg.norm(np.ptp(corners, axis=0))))
        if np.abs(np.array(geometry.polygon_of(affine_over(region, bounds), beside)) - corners).max() > most:
            return None
    bounds = min(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3])
    p, q = first.polygon, second.polygon
    polygon = (p[0], q[1], q[2], p[3]) if axis == 0 else (p[0], p[1], q[2], q[3])
    boxes = [region.box for region in (first, second) if region.box is not None]
    lows, highs = (np.array([box[side : side + 2] for box in boxes]) for side in (0, 2))
    shares = first.original_share * area_of(a) + second.original_share * area_of(b)
    return bounds, replace(
        first,
        polygon=polygon,
        box=(*lows.min(0).tolist(), *highs.max(0).tolist()) if boxes else None,
        scale=min(first.scale or 0.0, second.scale or 0.0) or None,
        original_share=min(1.0, shares / (area_of(a) + area_of(b))),
        seen=_seen(first, second, axis, (a[2 + axis] - bounds[axis]) / (bounds[2 + axis] - bounds[axis])),
    )


def _is_filled(region: Region) -> bool:
    seen = 1.0 if region.seen is None else float(region.seen.mean())
    return region.original_share >= _FILLED * seen


def _seen(first: Region, second: Region, axis: int, start: float) -> Bools | None:
    """The grids of two parts as one; the second part begins at that share of both."""
    if first.seen is None and second.seen is None:
        return None
    places = (np.arange(GRID) + 0.5) / GRID
    of_first = places < start
    along = np.where(of_first, places / start, (places - start) / (1 - start))
    found = np.ones((GRID, GRID), bool)  # The second axis is the one along which they lie.
    for region, where in ((first, of_first), (second, ~of_first)):
        if region.seen is not None:
            seen = region.seen if axis == 0 else region.seen.T
            rows, columns = (
                (part * length).astype(np.intp).clip(0, length - 1)
                for part, length in zip((places, along[where]), seen.shape, strict=True)
            )
            found[:, where] = seen[np.ix_(rows, columns)]
    return found if axis == 0 else found.T
