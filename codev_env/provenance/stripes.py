"""Stripes of slightly disturbed pixels in the original itself: they place what depends on its pixels.

The program runs on the original with some of its pixels disturbed, and the changes in its output show where those
pixels went. The first run disturbs all of them: it shows which parts of the output depend on the image. Each further
run disturbs stripes, of columns or of rows, that are one bit of a Gray code of x or y. And since the image is nearly as
it was, a program that decides by its pixels does as it did.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageChops

from codev_env.provenance import coordinates as geometry
from codev_env.provenance.mixed import mixed_region
from codev_env.provenance.regions import GRID, Bools, Indices, Originals, dice
from codev_env.types import Region

Array = NDArray[np.floating]

_MOST_BITS = 9
FEWEST_PLANES = 9
"""Runs without which no output can be placed: all pixels, and four bits of x and of y."""
_LEAST_CELLS = 20
"""Cells of the code that an output shows along each axis of the image when it is fine enough."""
_LEAST_STRIPE = 3
_LEVELS = 4
"""So few that what a program decides by the pixels stays as it is."""
_LOW, _HIGH = 0.35, 0.65
"""Shares of the change under full disturbance up to which, and from which, a place counts as undisturbed or not."""
_LEAST_CHANGE = 2.0
"""Sums of the changes of the three channels, in levels."""


class Plane(NamedTuple):
    """Which pixels are disturbed: those whose bit of the code of x (axis 0) or y (axis 1) is set; all for bit -1."""

    axis: int
    bit: int


def planes() -> Iterator[Plane]:
    """The planes in the order in which they are needed."""
    yield Plane(0, -1)
    for bit in range(_MOST_BITS):
        yield Plane(0, bit)
        yield Plane(1, bit)


class Stripes:
    """An input image and its disturbed versions.

    Args:
        image: The image.
        seed: Decides which of two disturbances each block of pixels gets: where blocks meet, there are edges to see.
    """

    def __init__(self, image: Image.Image, seed: int) -> None:
        self.image = image
        width, height = image.size
        side = max(3, round(max(image.size) / 220))  # A blur must not average a few neighbours out.
        rng = np.random.default_rng((seed, width, height))
        coarse = rng.integers(0, 2, (-(-height // side), -(-width // side)), dtype=np.uint8)
        blocks = Image.fromarray(coarse * 255).resize((coarse.shape[1] * side, coarse.shape[0] * side), 0)
        blocks = blocks.crop((0, 0, width, height))
        changes = [lambda i: i + _LEVELS, lambda i: i - _LEVELS]
        one, other = (image.point([min(255, max(0, change(i))) for i in range(256)] * 3) for change in changes)
        self._disturbed = Image.composite(one, other, blocks)

    def draw(self, plane: Plane) -> Image.Image:
        """The image with the stripes of a plane disturbed."""
        if plane.bit < 0:
            return self._disturbed
        length = self.image.size[plane.axis]
        line = Image.fromarray(gray_bits(np.arange(length), length, plane.bit)[None].astype(np.uint8) * 255)
        mask = (line if plane.axis == 0 else line.transpose(Image.Transpose.TRANSPOSE)).resize(self.image.size, 0)
        return Image.composite(self._disturbed, self.image, mask)


def gray_bits(places: Array | Indices, length: int, bit: int) -> Bools:
    """One bit of the Gray code of places from 0 to `length`; bit 0 is the coarsest."""
    cell = np.floor(np.asarray(places) * 2.0 ** (bit + 1) / length).astype(np.int64)
    return np.asarray(((cell ^ (cell >> 1)) & 1).astype(bool))


def _not_outermost(cells: Indices, valid: Bools) -> Bools:
    """Leave out the first and the last cell, of which an output may show only a part, where others are left."""
    ordered = np.unique(cells[valid])
    return (cells > ordered[0]) & (cells < ordered[-1]) if len(ordered) > 5 else valid


def _straight(affine: Array, uv: Array, xy: Array) -> Array:
    """Fit a map without its cross terms, which are noise unless the output is turned by an odd angle."""
    if geometry.orientation_of(affine) is None:
        return affine
    straight = np.zeros((2, 3))
    for axis in (0, 1):
        along = int(np.argmax(np.abs(affine[axis, :2])))
        straight[axis, [along, 2]] = np.polynomial.polynomial.polyfit(uv[:, along], xy[:, axis], 1)[::-1]
    return straight


class StripeReader:
    """Follows the stripes of one image into one output.

    Args:
        output: The image that the program really returned.
        stripes: The image.
    """

    def __init__(self, output: Image.Image, stripes: Stripes) -> None:
        self._output, self._stripes = output, stripes
        self._size = min(output.width, GRID), min(output.height, GRID)
        self._all: Array | None = None
        self._bits: tuple[list[Bools], list[Bools]] = [], []
        self._clear: tuple[list[Bools], list[Bools]] = [], []
        self._done = [False, False]
        self._failed = False

    def wants(self, plane: Plane) -> bool:
        """Whether a plane would give more information."""
        return not self._failed and not self._done[plane.axis]

    def read(self, plane: Plane, probe: Image.Image | None) -> None:
        """Take in what the program returned from an image with that plane; `None` if nothing of the same size."""
        if probe is None:
            self._failed = True
            return
        change = self._change(probe)
        if self._all is None:
            self._all = change
            self._failed = float((change >= _LEAST_CHANGE).mean()) < 0.5
            return
        sensitive = self._all >= _LEAST_CHANGE
        ratio = change[sensitive] / self._all[sensitive]
        clear = (ratio <= _LOW) | (ratio >= _HIGH)
        if clear.mean() < 0.75:  # The stripes are finer than what the program left of the image.
            self._done[plane.axis] = True
            self._failed |= plane.bit < 2
            return
        self._bits[plane.axis].append(ratio >= 0.5)
        self._clear[plane.axis].append(clear)
        cells = len(np.unique(self._cells(plane.axis)[clear]))
        finest = self._stripes.image.size[plane.axis] / 2.0 ** (plane.bit + 2) < _LEAST_STRIPE
        self._done[plane.axis] = cells >= _LEAST_CELLS or finest

    def fit(self) -> tuple[Array, Originals] | None:
        """The map from the output to the image, and which pixels it explains."""
        if self._failed or self._all is None or not all(self._bits):
            return None
        sensitive = self._all >= _LEAST_CHANGE
        valid = np.logical_and.reduce([*self._clear[0], *self._clear[1]])
        if valid.sum() < max(12, 0.15 * len(valid)):
            return None
        v, u = np.nonzero(sensitive)
        uv = (np.column_stack([u, v]) + 0.5) * (np.array(self._output.size) / self._size)
        steps = np.array([self._stripes.image.size[axis] / 2.0 ** len(self._bits[axis]) for axis in (0, 1)])
        xy = np.column_stack([self._cells(axis) + 0.5 for axis in (0, 1)]) * steps
        for axis in (0, 1):
            valid &= _not_outermost(self._cells(axis), valid)
        fit = geometry.fit_affine(uv[valid], xy[valid], 0.8 * steps)
        if fit is None or fit[1].mean() < 0.7:
            return None
        if (np.ptp(xy[valid][fit[1]], axis=0) < 3 * steps).any():
            return None  # Too few cells to place the output's edges within them.
        affine = _straight(fit[0], uv[valid][fit[1]], xy[valid][fit[1]])
        if abs(np.linalg.det(affine[:, :2])) < 1e-6:
            return None
        explained = np.zeros(self._all.shape, bool)
        explained[v[valid][fit[1]], u[valid][fit[1]]] = True
        # Between stripes, places are not clear; they belong to what is around them.
        near = (np.abs(geometry.apply(affine, uv[~valid]) - xy[~valid]) <= 2.5 * steps).all(-1)
        explained[v[~valid][near], u[~valid][near]] = True
        return affine, self._originals(explained)

    def _originals(self, explained: Bools) -> Originals:
        rows, columns = explained.shape
        width, height = self._output.size

        def originals(v: Indices, u: Indices) -> Bools:
            return np.asarray(explained[v * rows // height, u * columns // width])

        return originals

    def _cells(self, axis: int) -> Indices:
        """The number of the cell along an axis of the image that each sensitive place shows, by the bits so far."""
        cell = np.zeros(len(self._bits[axis][0]), np.intp)
        for bit in self._bits[axis]:
            cell = 2 * cell + (bit ^ (cell & 1))
        return cell

    def _change(self, probe: Image.Image) -> Array:
        """How much a probe differs from the output, over a grid, in levels."""
        change = ImageChops.difference(self._output, probe).point([min(255, 8 * i) for i in range(256)] * 3)
        return np.asarray(change.resize(self._size, Image.Resampling.BOX), float).sum(-1)


def read_stripes(
    output: Image.Image, reader: StripeReader, image: Image.Image, image_index: int, secret: int
) -> Region | None:
    """Read the region off stripes; `None` if they were destroyed, or do not fit together.

    Args:
        output: The image that the program returned.
        reader: Followed the stripes of the image into it.
        image: The input image.
        image_index: Its index.
        secret: Decides with the output where it is looked at.
    """
    fit = reader.fit()
    if fit is None:
        return None
    affine, originals = fit
    return mixed_region(output, affine, image, image_index, originals, dice(output, secret), 0.01 * max(image.size))
