"""Finds the parts of a collage: places of an output that show other places of the inputs, side by side.

Each part is then read as if the program had returned it alone, with the same checks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from codev_env.geometry import iou
from codev_env.provenance import codes
from codev_env.provenance import coordinates as geometry
from codev_env.provenance.regions import Bools, Bounds, Grid, Indices, affine_over, area_of, dice
from codev_env.types import Region

Array = NDArray[np.floating]
Size = tuple[int, int]

MOST = 8
"""Parts of one output that are read."""
WHOLE = 0.9
"""Share of an output's pixels from which on a region describes the whole output."""
_LEAST, _SOLID, _FIRST = 0.04, 0.8, 0.08
"""Shares: of the output that a part fills, of a part that its map explains, of the places that a fit begins with."""
_MANY = 0.3
"""Share of what the line with most explained places has, from which on a line belongs to the part."""
_NEARLY, _HALF = 0.85, 0.5
"""Shares: of an output, from which on a claim is about all of it; of the rest of a claim beside a part, to be seen."""
_BEYOND = 1.05
"""Of the area of a claim within the image: the area of one that goes beyond it."""
_OFF = 0.25
"""Of a part's diagonal: how far from where a claim says it may show."""
_SAME = 0.9
"""Overlap of two regions, from which on they show the same place."""


def panels(output: Image.Image, probe: Image.Image, code: codes.PixelCode, secret: int) -> list[Bounds]:
    """Find the parts of an output that each show a place, by the pixel code; largest first.

    Args:
        output: The image that the program returned.
        probe: The one it returned for `code.images`.
        code: The code of the input images.
        secret: Decides with the output where it is looked at.
    """
    grid = Grid((0, 0, *output.size), dice(output, secret))
    at = grid.v.ravel(), grid.u.ravel()
    samples = np.asarray(probe)[at]
    same = (samples == np.asarray(output)[at]).all(-1)
    found: list[Bounds] = []
    free = ~same
    for decode, tolerance in (
        (code.decode, 0.6 + 0.6 * np.full(2, code.block)),
        (code.decode_smooth, 1.6 * code.step + 0.6),
    ):
        index, xy = decode(samples)
        index[~free] = -1
        found += _solid_parts(grid, index, xy, tolerance, output.size, free)
    return sorted(found, key=area_of, reverse=True)[:MOST]


def parts_of(
    bounds: Sequence[Bounds], found: Sequence[Region | None], main: Region, size: Size, doubtful: bool = False
) -> Region:
    """Join what the parts of an output of (width, height) show with what the output was found to show as a whole.

    Args:
        bounds: The parts.
        found: The region of each part, alone.
        main: The region of the output.
        size: (width, height) of the output.
        doubtful: The region of the whole may be wrong.
    """
    regions = [
        replace(region, original_share=region.original_share * area_of(part) / (size[0] * size[1]))
        for part, region in zip(bounds, found, strict=True)
        if region is not None and region.polygon is not None
    ]
    if regions and (main.polygon is None or (doubtful and not _stands(main, bounds, found, size))):
        main = regions[0]
    others = (region for region in regions if not _same_view(region, main))
    return replace(main, others=tuple(others))


def _stands(main: Region, bounds: Sequence[Bounds], found: Sequence[Region | None], size: Size) -> bool:
    """Whether a claim of a whole output may be right beside what its parts show.

    A map that explains one of two crops side by side claims a place beside it for the other one, which chance and plain
    areas make half seen. It is given up for parts that are clear, if one of them shows another place than the claim
    says, or if just one shows the same and little is seen of what the claim says around it. Of a claim about less than
    the output, no more may be seen than the clear parts show.
    """
    own = 1.0 if main.seen is None else float(main.seen.mean())
    if main.polygon is None or main.box is None or own >= WHOLE:
        return main.polygon is not None
    clear = [
        (part, region, area_of(part) / (size[0] * size[1]))
        for part, region in zip(bounds, found, strict=True)
        if region is not None and region.polygon is not None and region.original_share >= WHOLE
    ]
    covers = main.original_share / max(own, 1e-9)
    rest = covers - sum(share for *_, share in clear)
    seen = main.original_share - sum(region.original_share * share for _, region, share in clear)
    x1, y1, x2, y2 = main.box
    # Black bands of a crop out of range are no part of the image, and belong to the claim.
    beyond = geometry.area(main.polygon) > _BEYOND * (x2 - x1) * (y2 - y1)
    if covers < _NEARLY:  # Which part of the output it is about is not known.
        return beyond or seen > 0
    for part, region, _ in clear:
        corners = np.array(region.polygon)
        off = np.linalg.norm(corners.mean(0) - _claimed(main, part, size).mean(0))
        if region.image_index != main.image_index or off > _OFF * np.linalg.norm(np.ptp(corners, axis=0)):
            return False
    return beyond or len(clear) != 1 or rest <= _LEAST or seen >= _HALF * rest


def _claimed(main: Region, part: Bounds, size: Size) -> Array:
    """The points that a claim of a whole output says the corners of a part show, shape (4, 2)."""
    return np.array(geometry.polygon_of(affine_over(main, (0, 0, *size)), part))


def same_place(one: Region, other: Region) -> bool:
    """Return whether two regions show the same place, in whatever orientation; an unknown place is like no other."""
    if one.box is None or other.box is None:
        return False
    return one.image_index == other.image_index and iou(one.box, other.box) >= _SAME


def _same_view(one: Region, other: Region) -> bool:
    """Whether two regions are one; the same place in another known orientation is another view."""
    if one.box is None or other.box is None:
        return True
    turned = None not in (one.orientation, other.orientation) and one.orientation != other.orientation
    return same_place(one, other) and not turned


def _solid_parts(grid: Grid, index: Indices, xy: Array, tolerance: Array, size: Size, free: Bools) -> list[Bounds]:
    """The bounds of the places that one map explains, one map after the other; they are no longer `free`."""
    found: list[Bounds] = []
    open_ = index >= 0
    while len(found) < MOST and open_.mean() >= _LEAST:
        chosen = open_ & (index == int(np.bincount(index[open_]).argmax()))
        fit = geometry.fit_affine(grid.uv[chosen], xy[chosen], tolerance, _FIRST)
        if fit is None:
            break
        right = np.zeros(len(index), bool)
        right[chosen] = fit[1]
        rows, columns = (_extent(right.reshape(grid.u.shape), axis) for axis in (0, 1))
        inside = np.zeros(grid.u.shape, bool)
        inside[slice(*rows), slice(*columns)] = True
        open_ &= ~(right | inside.ravel())
        if inside.mean() >= _LEAST and right[inside.ravel()].mean() >= _SOLID:
            free &= ~inside.ravel()
            (top, bottom), (left, right_) = (
                (int(start * length / cells), math.ceil(end * length / cells))
                for (start, end), length, cells in zip((rows, columns), size[::-1], grid.u.shape, strict=True)
            )
            found.append((left, top, right_, bottom))
    return found


def _extent(right: Bools, axis: int) -> tuple[int, int]:
    """First and last line, and one more, of a grid in which a map explains many places."""
    counts = right.sum(1 - axis)
    lines = np.flatnonzero(counts >= _MANY * counts.max())
    return int(lines[0]), int(lines[-1]) + 1
