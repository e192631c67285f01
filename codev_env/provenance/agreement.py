"""Whether an output looks like the region it is said to show: a copy may be enhanced, turned or resized."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from codev_env.provenance import coordinates as geometry
from codev_env.provenance.regions import resample

Array = NDArray[np.floating]
Bools = NDArray[np.bool_]

CELLS = 48
_LEVELS = 24.0
_SAME = 3.0
_FLAT = 1.5
_CORRELATION, _BLURRED = 0.6, 0.8


def agrees(
    output: Image.Image,
    affine: Array,
    image: Image.Image,
    explained: Bools,
    inverted: bool = False,
    recoloured: bool = True,
) -> bool:
    """Whether an output looks like the region of the image that a map says it shows, up to a change of colours.

    Both are shrunk to 48 cells on the longer side; only cells that the map explains and that lie in the image count.
    They agree

    - if each cell is within 24 levels of what the other has in its neighbourhood of 3 x 3 (so that a shift of less than
      a cell does not matter, but a small mark that one lacks does), or
    - if their brightness, less its local mean over 5 x 5 cells, is correlated by 0.6 or more (so that soft gradients,
      which look alike everywhere, do not count), or by 0.8 after a blur over 3 x 3 cells, or
    - if both are flat in that sense: then there is nothing to see that could be claimed wrongly.

    Args:
        output: The image that the program returned.
        affine: The map from its pixels to the image's, shape (2, 3).
        image: The input image.
        explained: Which parts of the output the map explains; a grid of any shape over the output.
        inverted: The output's colours are said to be inverted: only correlations below zero count.
        recoloured: The output's colours may be changed at all; else only the first of the rules above counts, and the
            mean of each channel must be the same to within 3 levels.
    """
    small, middle = _small_size(output.size)
    expected = resample(image, affine, (0, 0, *output.size), middle)
    mask = Image.fromarray(explained.astype(np.uint8) * 255).resize(small, Image.Resampling.BOX)
    covered = _inside(affine, image.size, output.size, small) & (np.asarray(mask) > 254)
    # Next to what is not explained, such as padding, cells may hold some of it: the grid is coarse, and misses slivers
    # of it along the output's border.
    inner = np.logical_and.reduce(list(_shifts(covered, 1, bool(explained.all()))))
    covered = inner if inner.sum() >= 0.5 * covered.sum() else covered
    if covered.sum() < 4:
        return False
    a, b = (np.asarray(one.resize(small, Image.Resampling.BOX), float) for one in (expected, output))
    alike = not inverted and _alike(a, b, covered) and _alike(b, a, covered)
    if not recoloured:
        return alike and float(np.abs((a - b)[covered].mean(0)).max()) <= _SAME
    if alike:
        return True
    sign = -1 if inverted else 1
    fine_a, fine_b = (_details(cells.mean(-1), covered, 0) for cells in (a, b))
    if not inverted and max(fine_a.std(), fine_b.std()) < _FLAT:
        return True
    coarse_a, coarse_b = (_details(cells.mean(-1), covered, 1) for cells in (a, b))
    return _correlated(sign * fine_a, fine_b, _CORRELATION) or _correlated(sign * coarse_a, coarse_b, _BLURRED)


def _correlated(a: Array, b: Array, least: float) -> bool:
    energy = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return min(a.std(), b.std()) >= _FLAT / 3 and float((a * b).sum()) >= least * energy


def _small_size(size: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """(width, height) in cells, and at four times the resolution: less would leave details out between its points."""
    shrink = min(1.0, CELLS / max(size))
    width, height = max(1, round(size[0] * shrink)), max(1, round(size[1] * shrink))
    return (width, height), (min(size[0], 4 * width), min(size[1], 4 * height))


def _inside(affine: Array, image_size: tuple[int, int], size: tuple[int, int], small: tuple[int, int]) -> Bools:
    """Which cells of an output show a place in the image with all four corners."""
    u, v = (np.linspace(0, length, cells + 1) for length, cells in zip(size, small, strict=True))
    corners = geometry.apply(affine, np.stack(np.meshgrid(u, v), -1).reshape(-1, 2)).reshape(len(v), len(u), 2)
    fits = np.asarray(((corners > -0.5) & (corners < np.array(image_size) + 0.5)).all(-1))
    return np.asarray(fits[1:, 1:] & fits[1:, :-1] & fits[:-1, 1:] & fits[:-1, :-1])


def _shifts(cells: NDArray[Any], radius: int, fill: float) -> Iterator[NDArray[Any]]:
    """The array shifted by every step up to a radius, in rows and columns."""
    padded = np.pad(cells, [(radius, radius)] * 2 + [(0, 0)] * (cells.ndim - 2), constant_values=fill)
    rows, columns = cells.shape[:2]
    for v in range(2 * radius + 1):
        for u in range(2 * radius + 1):
            yield padded[v : v + rows, u : u + columns]


def _alike(a: Array, b: Array, covered: Bools) -> bool:
    """Whether each covered cell of `a` is near a value that `b` takes around it."""
    low = np.minimum.reduce(list(_shifts(np.where(covered[..., None], b, np.inf), 1, np.inf)))
    high = np.maximum.reduce(list(_shifts(np.where(covered[..., None], b, -np.inf), 1, -np.inf)))
    near = ((a >= low - _LEVELS) & (a <= high + _LEVELS)).all(-1)
    return bool((near | ~covered).all())


def _details(cells: Array, covered: Bools, blur: int) -> Array:
    """The covered cells, blurred by a box of that radius, without their local mean; shape (n,)."""
    return (_local_mean(cells, covered, blur) - _local_mean(cells, covered, 2 + blur))[covered]


def _local_mean(cells: Array, covered: Bools, radius: int) -> Array:
    total = box_sum(np.where(covered, cells, 0.0), radius)
    return np.asarray(total / np.maximum(box_sum(covered.astype(float), radius), 1.0))


def box_sum(cells: Array, radius: int) -> Array:
    """The sum over the square of that radius around each cell, by rows, then by columns."""
    padded, (rows, columns) = np.pad(cells, radius), cells.shape
    lines = np.add.reduce([padded[k : k + rows] for k in range(2 * radius + 1)])
    return np.asarray(np.add.reduce([lines[:, k : k + columns] for k in range(2 * radius + 1)]))
