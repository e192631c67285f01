"""Makes the record of the region that an output shows, from the map of its pixels and the original ones among them."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from codev_env.provenance import coordinates as geometry
from codev_env.types import Region

Array = NDArray[np.floating]
Bools = NDArray[np.bool_]
Indices = NDArray[np.intp]
Originals = Callable[[Indices, Indices], Bools]
"""From rows and columns of pixels of the output, arrays of one shape: which of them stem from where the map says."""
Bounds = tuple[int, int, int, int]
"""Left, top, right, bottom of a part of the output."""

GRID = 64
"""Points per side at which an output is read."""
_NEAR = 2.0
"""Pixels of the image within which two regions have the same corners."""
_BLACK = 8
"""Levels up to which a pixel counts as black."""


class Grid:
    """Up to 64 x 64 points of a part of an output, one in each of as many equal cells, at a place drawn at random.

    A program cannot know where it is looked at: the places depend on a secret and on the output itself.

    Args:
        bounds: The part.
        rng: Draws the places.

    Attributes:
        v: Rows, shape (rows, columns).
        u: Columns, of the same shape.
    """

    def __init__(self, bounds: Bounds, rng: np.random.Generator) -> None:
        left, top, right, bottom = bounds
        rows, columns = min(bottom - top, GRID), min(right - left, GRID)
        v, u = np.mgrid[:rows, :columns] + rng.random((2, rows, columns))
        self.v = top + (v * (bottom - top) / rows).astype(np.intp)
        self.u = left + (u * (right - left) / columns).astype(np.intp)

    @property
    def uv(self) -> Array:
        """The centres of the pixels, shape (rows * columns, 2)."""
        return np.column_stack([self.u.ravel(), self.v.ravel()]) + 0.5


def dice(output: Image.Image, secret: int) -> np.random.Generator:
    """Seed a generator by an output's pixels and a secret: the same for a repeated episode, and for no program."""
    pixels = np.asarray(output)
    few = pixels[:: max(1, output.height // 64), :: max(1, output.width // 64)]
    return np.random.default_rng((secret, zlib.crc32(few.tobytes()), *output.size))


class OutputPart(NamedTuple):
    """The part of an output that shows the image."""

    bounds: Bounds
    share: float
    """Of all pixels of the output, how many stem from the image."""
    seen: Bools | None
    """As in `Region`."""
    likeness: float = 1.0
    """Correlation of the places that look like the image with it, in the colours that fit best."""


def shown_part(
    output: Image.Image, affine: Array, size: tuple[int, int], originals: Originals, rng: np.random.Generator
) -> OutputPart:
    """Find the part of an output that shows an image.

    A frame around what stems from the image, such as the margins of a plot, does not belong to it. Black bands that
    the map puts outside the image do: a crop out of range leaves them.

    Args:
        output: The image that the program returned.
        affine: The map from its pixels to the image's, shape (2, 3).
        size: (width, height) of the image.
        originals: Which pixels of the output stem from where the map says.
        rng: Draws where the output is looked at.
    """
    everything = 0, 0, *output.size
    whole = Grid(everything, rng)
    found = originals(whole.v, whole.u)
    if found.all():
        return OutputPart(everything, 1.0, None)
    bounds, seen = _with_black_bands(output, affine, size, _bounds(found, everything, originals)), found
    if bounds != everything:
        part = Grid(bounds, rng)
        seen = originals(part.v, part.u)
    return OutputPart(bounds, float(found.mean()), None if seen.all() else seen)


def make_region(
    affine: Array,
    bounds: Bounds,
    image_size: tuple[int, int],
    image_index: int,
    share: float,
    how: str = "probe",
    seen: Bools | None = None,
) -> Region:
    """Make the record of a part of an output by the map from its pixels to those of an image of (width, height)."""
    polygon = geometry.polygon_of(affine, bounds)
    return Region(
        polygon=polygon,
        box=geometry.box_of(polygon, image_size),
        image_index=image_index,
        orientation=geometry.orientation_of(affine),
        scale=1 / max(*scales(affine), 1e-9),
        original_share=share,
        how="match" if how == "match" else "probe",
        seen=seen,
    )


def united(region: Region, other: Region | None) -> Region:
    """A region with the places of another that are seen, where both show one place of an image alike.

    The pixel code does not show what is in other colours, the weave not all that lines were drawn on.
    """
    if other is None or other.polygon is None or region.polygon is None or region.seen is None:
        return region
    near = np.abs(np.subtract(region.polygon, other.polygon)).max() <= _NEAR
    if region.image_index != other.image_index or not near:
        return region
    seen = np.ones_like(region.seen) if other.seen is None else other.seen
    if seen.shape != region.seen.shape:
        return region
    both = region.seen | seen
    share = min(1.0, region.original_share * float(both.sum() / max(region.seen.sum(), 1)))
    return replace(region, seen=None if both.all() else both, original_share=share)


def affine_over(region: Region, bounds: Bounds) -> Array:
    """The map from an output to the image by which a part of the output shows a region with a polygon."""
    left, top, right, bottom = bounds
    origin, across, _, down = np.array(region.polygon)
    by_u, by_v = (across - origin) / (right - left), (down - origin) / (bottom - top)
    return np.column_stack([by_u, by_v, origin - left * by_u - top * by_v])


def area_of(bounds: Bounds) -> int:
    """The pixels of a part."""
    left, top, right, bottom = bounds
    return (right - left) * (bottom - top)


def scales(affine: Array) -> tuple[float, float]:
    """Original pixels per output pixel along the output's rows and along its columns."""
    return math.hypot(*affine[:, 0].tolist()), math.hypot(*affine[:, 1].tolist())


def _bounds(found: Bools, everything: Bounds, originals: Originals) -> Bounds:
    """The smallest part that holds all original pixels, to the pixel; everything where there are none."""
    if not found.any():
        return everything
    _, _, width, height = everything
    top, bottom = _extent(found, 0, height)
    left, right = _extent(found, 1, width)
    columns, rows = _spread(left, right), _spread(top, bottom)

    def any_in_row(v: Indices) -> Bools:
        return np.asarray(originals(*np.meshgrid(v, columns, indexing="ij")).any(1))

    def any_in_column(u: Indices) -> Bools:
        return np.asarray(originals(*np.meshgrid(rows, u, indexing="ij")).any(0))

    v_step, u_step = -(-height // len(found)), -(-width // found.shape[1])
    top, bottom = _refine(top, bottom, height, 2 * v_step, any_in_row)
    left, right = _refine(left, right, width, 2 * u_step, any_in_column)
    return left, top, right, bottom


def _extent(found: Bools, axis: int, length: int) -> tuple[int, int]:
    """First and last pixel that may belong to cells with an original point, by the grid."""
    hit = np.flatnonzero(found.any(1 - axis))
    cells = found.shape[axis]
    return int(hit[0] * length / cells), math.ceil((hit[-1] + 1) * length / cells)


def _refine(start: int, end: int, length: int, step: int, hit: Callable[[Indices], Bools]) -> tuple[int, int]:
    """Move both ends of a range to the first and last line with an original pixel, looking a step around them."""
    first = np.arange(max(0, start - step), min(start + step, length))
    last = np.arange(max(0, end - step), min(end + step, length))
    hits, ends = first[hit(first)], last[hit(last)]
    return int(hits[0]) if len(hits) else start, int(ends[-1]) + 1 if len(ends) else end


def _spread(start: int, end: int) -> Indices:
    """Up to 256 whole numbers, evenly spread over a range, its ends included."""
    return np.unique(np.linspace(start, end - 1, 256).astype(np.intp))


def _with_black_bands(output: Image.Image, affine: Array, size: tuple[int, int], bounds: Bounds) -> Bounds:
    """Extend a part by the black bands next to it that the map puts outside an image of (width, height)."""
    left, top, right, bottom = bounds
    blend = 2 + math.ceil(4 / min(*scales(affine), 1.0))  # Pixels in which a resize mixes content and black.
    if top > 0 or bottom < output.height:
        lines = _dark(output.crop((left, 0, right, output.height)), 1)
        middles = np.column_stack([np.full(output.height, (left + right) / 2), np.arange(output.height) + 0.5])
        lines &= _outside(geometry.apply(affine, middles), size)
        top, bottom = top - _run(lines[:top][::-1], blend), bottom + _run(lines[bottom:], blend)
    if left > 0 or right < output.width:
        lines = _dark(output.crop((0, bounds[1], output.width, bounds[3])), 0)
        middles = np.column_stack([np.arange(output.width) + 0.5, np.full(output.width, (top + bottom) / 2)])
        lines &= _outside(geometry.apply(affine, middles), size)
        left, right = left - _run(lines[:left][::-1], blend), right + _run(lines[right:], blend)
    return left, top, right, bottom


def _dark(part: Image.Image, axis: int) -> Bools:
    """Which rows (axis 1) or columns (axis 0) are black all along."""
    return np.asarray((np.asarray(part) <= _BLACK).all((axis, 2)))


def _outside(points: Array, size: tuple[int, int]) -> Bools:
    return np.asarray(((points < 0) | (points > size)).any(-1))


def _run(lines: Bools, blend: int) -> int:
    """Length of the run of lines that are set, from the first on; up to `blend` others may come before it."""
    start = int(np.argmax(lines)) if lines.any() else len(lines)
    if start > blend or start == len(lines):
        return 0
    unset = np.flatnonzero(~lines[start:])
    return start + (int(unset[0]) if len(unset) else len(lines) - start)


def resample(image: Image.Image, affine: Array, bounds: tuple[float, float, float, float], size: Any) -> Image.Image:
    """Show what a part of an output, scaled to (width, height), should be; black outside the image.

    Args:
        image: The input image.
        affine: The map from the output's pixels to the image's.
        bounds: Left, top, right, bottom of the part.
        size: (width, height) of the result.
    """
    to_image = to_size(affine, bounds, size)
    return Around(image, to_image, size).show(to_image, size)


def to_size(affine: Array, bounds: tuple[float, float, float, float], size: Any) -> Array:
    """The map from a part of an output, scaled to (width, height), to the image."""
    left, top, right, bottom = bounds
    across, down = (right - left) / size[0], (bottom - top) / size[1]
    return np.column_stack([affine[:, 0] * across, affine[:, 1] * down, affine @ (left, top, 1.0)])


class Around:
    """The part of an image around what a map shows of it, reduced to about that resolution.

    Args:
        image: The input image.
        to_image: The map from what is shown, of (width, height), to the image.
        size: (width, height).
        grey: In grey.
        spare: Pixels of that by which the map may still be shifted.
    """

    def __init__(self, image: Image.Image, to_image: Array, size: Any, grey: bool = False, spare: int = 0) -> None:
        self._image, self._step = image, max(1, int(min(scales(to_image))))
        low, high = self._range(to_image, size, 3 + spare)
        self._low, self._high = low, high
        part = image.reduce(self._step, (*low.tolist(), *high.tolist()))
        self._part = part.convert("L") if grey else part

    def holds(self, image: Image.Image, to_image: Array, size: Any) -> bool:
        """Whether this is the part that another map shows of an image."""
        if image is not self._image or self._step != max(1, int(min(scales(to_image)))):
            return False
        low, high = self._range(to_image, size, 3)
        return bool((low >= self._low).all() and (high <= self._high).all())

    def show(self, to_image: Array, size: Any) -> Image.Image:
        """The part that a map shows, in (width, height) pixels; black outside the image."""
        linear, offset = to_image[:, :2], to_image[:, 2] - self._low
        data = (np.column_stack([linear, offset]) / self._step).ravel().tolist()
        return self._part.transform(tuple(size), Image.Transform.AFFINE, data, Image.Resampling.BICUBIC)

    def _range(self, to_image: Array, size: Any, margin: int) -> tuple[Indices, Indices]:
        corners = np.array(geometry.polygon_of(to_image, (0, 0, *size)))
        low = np.clip(np.floor(corners.min(0)) - margin * self._step, 0, np.array(self._image.size) - 1).astype(int)
        return low, np.clip(np.ceil(corners.max(0)) + margin * self._step, low + 1, self._image.size).astype(int)
