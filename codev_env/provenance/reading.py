"""Reads regions off the outputs that a program made of images whose pixels carry their coordinates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageChops

from codev_env.provenance import codes, detail
from codev_env.provenance import coordinates as geometry
from codev_env.provenance.agreement import agrees, box_sum
from codev_env.provenance.mixed import mixed_region
from codev_env.provenance.regions import Bools, Grid, Indices, Originals, dice, make_region, scales, shown_part
from codev_env.provenance.seen import without_unlike
from codev_env.types import Region

Pixels = NDArray[np.uint8]
Decode = Callable[[Pixels], tuple[Indices, NDArray[np.floating]]]
Array = NDArray[np.floating]

_COPIED = 16
"""Colour levels by which a copied pixel may differ."""
_LIKE = 0.8
"""Correlation with what it shows of an output in unchanged colours."""
_EXPLAINED = 0.9
"""Share of the samples from which on a region accounts for an output."""
_LINES = 16
"""Rows and columns in which the pixels that are repeated are counted."""
_ORDERS = (slice(None), slice(None, None, -1))
"""The channels as they are, and with red and blue exchanged."""
_TURNS = {
    "rot90": Image.Transpose.ROTATE_90,
    "rot180": Image.Transpose.ROTATE_180,
    "rot270": Image.Transpose.ROTATE_270,
    "flip_h": Image.Transpose.FLIP_LEFT_RIGHT,
    "flip_v": Image.Transpose.FLIP_TOP_BOTTOM,
    "transpose": Image.Transpose.TRANSPOSE,
    "transverse": Image.Transpose.TRANSVERSE,
}


class Reading(NamedTuple):
    """A region read off the pixel code; not `sure` where some of the output is something else, or in other colours."""

    region: Region
    sure: bool


class _Fit(NamedTuple):
    affine: Array
    right: Bools
    """Which samples it explains, shape (n,)."""
    image_index: int


def read_code(
    output: Image.Image, probe: Image.Image, code: codes.PixelCode, images: tuple[Image.Image, ...], secret: int
) -> Reading | None:
    """Read the region off the pixel code and check it against the output, where it is no plain crop.

    Args:
        output: The image that the program returned.
        probe: The image it returned, at the same place and of the same size, from `code.images`.
        code: The code of the input images.
        images: The input images.
        secret: Decides with the output where it is looked at.

    Returns:
        `None` if the code was destroyed, or if the output's pixels are not those of the region.
    """
    return _Coded(output, probe, code, images, secret).read()


def read_crop(
    output: Image.Image, probe: Image.Image, code: codes.PixelCode, images: tuple[Image.Image, ...]
) -> Region | None:
    """The common case, fast: whole pixels of one image, turned or mirrored, nothing else."""
    width, height = output.size
    if code.block > 1 or width < 2 or height < 2:
        return None
    corners = [probe.getpixel(p) for p in ((0, 0), (width - 1, 0), (0, height - 1))]
    index, xy = code.decode(np.array(corners, np.uint8))
    if index[0] < 0 or (index != index[0]).any():
        return None
    linear = np.stack([(xy[1] - xy[0]) / (width - 1), (xy[2] - xy[0]) / (height - 1)], 1)
    affine = np.column_stack([linear, xy[0] - linear @ (0.5, 0.5)])
    orientation = geometry.orientation_of(affine)
    if orientation is None or np.abs(linear).max() != 1:
        return None
    image = images[index[0]]
    region = make_region(affine, (0, 0, width, height), image.size, int(index[0]), 1.0)
    for made, source in ((probe, code.images[index[0]]), (output, image)):
        crop = source if region.box == (0, 0, *source.size) else source.crop(region.box)
        crop = crop.transpose(_TURNS[orientation]) if orientation in _TURNS else crop
        # Comparing bytes, which have to be packed first, takes many times as long.
        if crop.size != made.size or ImageChops.difference(crop, made).getbbox() is not None:
            return None
    return region


class _Coded:
    """An output beside what the program made of the coded images, for all but plain crops."""

    def __init__(
        self,
        output: Image.Image,
        probe: Image.Image,
        code: codes.PixelCode,
        images: tuple[Image.Image, ...],
        secret: int,
    ) -> None:
        self.output, self.code, self.images = output, code, images
        self.out, self.probe = np.asarray(output), np.asarray(probe)
        self.rng = dice(output, secret)
        self.grid = Grid((0, 0, *output.size), self.rng)
        at = self.grid.v.ravel(), self.grid.u.ravel()
        self.samples, self.returned = self.probe[at], self.out[at]
        self.same = (self.samples == self.returned).all(-1)
        self._arrays: dict[int, Pixels] = {}

    def read(self) -> Reading | None:
        if self.same.all() and np.array_equal(self.out, self.probe):
            return Reading(Region(how="probe"), True)  # Drawn or generated, or only padding.
        for order in _ORDERS:
            for read in (self._exact, self._smooth):
                reading = read(order)
                if reading is not None:
                    return reading
        # Edges and the like make few pixels, and none of a smooth image: later stages may find them.
        return Reading(Region(how="probe"), False) if self.same.mean() > 0.99 else None

    def _exact(self, order: slice) -> Reading | None:
        """Whole pixels, repeated, left out, turned by any angle, drawn over or put side by side."""
        index, xy = self.code.decode(self.samples[:, order])
        fit = _fit_majority(self.grid.uv, index, xy, 0.6 + 0.6 * np.full(2, self.code.block))
        if fit is None:
            return None
        copied = self._copied(index, xy, self.returned, order)
        right, image = fit.right, self.images[fit.image_index]
        # Chance finds a few pixels in anything: it takes a good part of those that depend on the input.
        if right.sum() < 0.25 * (~self.same).sum() or copied[right].mean() < 0.9995:
            return None
        affine = geometry.snap(fit.affine, self.output.size)
        if self.code.block > 1 and not agrees(self._ordered(order), affine, image, right.reshape(self.grid.u.shape)):
            return None
        part = shown_part(self.output, affine, image.size, self._originals(fit, self.code.decode, order), self.rng)
        if self.code.block > 1:
            alike = without_unlike(part, self._ordered(order), affine, image, 1.0, "kept")
            if alike is None:
                return None
            part = alike
        region = make_region(affine, part.bounds, image.size, fit.image_index, part.share, seen=part.seen)
        if self.code.block == 1:
            scale = _scale_of_codes(self.probe[..., order], affine, self.code, self.rng)
            region = replace(region, scale=min(scale, region.scale or scale))
        return Reading(region, self._is_explained(right | (copied & (index >= 0))))

    def _smooth(self, order: slice) -> Reading | None:
        """Pixels mixed with their neighbours, as by a resize, in colours that the program did not change."""
        samples = self.samples[:, order]
        index, xy = self.code.decode_smooth(samples)
        index[self.same] = -1
        fit = _fit_majority(self.grid.uv, index, xy, 1.6 * self.code.step + 0.6)
        if fit is None or fit.right.sum() < 0.5 * (~self.same).sum():
            return None
        image, right = self.images[fit.image_index], fit.right
        if not self.code.colours_kept(fit.image_index, geometry.apply(fit.affine, self.grid.uv[right]), samples[right]):
            return None
        output, explained = self._ordered(order), right.reshape(self.grid.u.shape)
        originals = self._originals(fit, self.code.decode_smooth, order)
        most = 1.5 * float(self.code.step.max())
        for affine in self._maps(fit, output, originals):
            if agrees(output, geometry.snap(affine, output.size), image, explained, recoloured=False):
                break
        else:
            return None
        region = mixed_region(output, affine, image, fit.image_index, originals, self.rng, most, _LIKE, "kept")
        return None if region is None else Reading(region, self._is_explained(right))

    def _is_explained(self, right: Bools) -> bool:
        """Whether nearly all samples are right or drawn, and no place of 3 x 3 is neither, as in colours of its own."""
        explained = (right | self.same).reshape(self.grid.u.shape)
        return explained.mean() >= _EXPLAINED and not (box_sum((~explained).astype(np.float32), 1) >= 9).any()

    def _maps(self, fit: _Fit, output: Image.Image, originals: Originals) -> Iterator[Array]:
        """The map of a fit to mixed pixels, and others: values truncated on the way are up to half a level too low."""
        yield fit.affine
        for level in (0.5, 0.25):
            affine = fit.affine.copy()
            affine[:, 2] += level * self.code.step
            yield affine
        overview = detail.overview(output, (0, 0, *output.size), originals)
        aligned = detail.align(affine, self.images[fit.image_index], [overview], float(self.code.step.max()))
        if aligned is not None:
            yield aligned

    def _copied(self, index: Indices, xy: Array, returned: Pixels, order: slice) -> Bools:
        """Which returned pixels are the pixels of the images at the places they claim; all, where places are blocks."""
        if self.code.block > 1:
            return np.ones(len(index), bool)
        near = np.zeros(len(index), bool)
        columns, rows = xy.astype(int).T
        for i in range(len(self.images)):
            of = index == i
            original = self._array(i)[rows[of], columns[of]].astype(int)
            near[of] = np.abs(original - returned[of][:, order]).max(-1) <= _COPIED
        return near

    def _array(self, index: int) -> Pixels:
        """An input image's pixels; a copy of 4K takes a step's time, so it is made once."""
        if index not in self._arrays:
            self._arrays[index] = np.asarray(self.images[index])
        return self._arrays[index]

    def _originals(self, fit: _Fit, decode: Decode, order: slice) -> Originals:
        tolerance = 0.6 + (0.6 * self.code.block if decode == self.code.decode else 2.5 * self.code.step)

        def originals(v: Indices, u: Indices) -> Bools:
            samples = self.probe[v, u].reshape(-1, 3)
            index, xy = decode(samples[:, order])
            points = geometry.apply(fit.affine, np.column_stack([u.ravel(), v.ravel()]) + 0.5)
            right = (index == fit.image_index) & geometry.both_within(points - xy, tolerance)
            returned = self.out[v, u].reshape(-1, 3)
            right &= (samples != returned).any(-1)
            if decode == self.code.decode:
                right &= self._copied(index, xy, returned, order)
            return np.asarray(right.reshape(v.shape))

        return originals

    def _ordered(self, order: slice) -> Image.Image:
        return self.output if order == _ORDERS[0] else Image.merge("RGB", self.output.split()[order])


def _fit_majority(uv: Array, index: Indices, xy: Array, tolerance: Array) -> _Fit | None:
    """Fit the map of the input image that most samples come from; `None` if the samples make no map."""
    valid = index >= 0
    if not valid.any():
        return None
    image_index = int(np.bincount(index[valid]).argmax())
    chosen = index == image_index
    fit = geometry.fit_affine(uv[chosen], xy[chosen], tolerance, 0.25)
    if fit is None:
        return None
    right = chosen.copy()
    right[chosen] = fit[1]
    return _Fit(fit[0], right, image_index)


def _scale_of_codes(probe: Pixels, affine: Array, code: codes.PixelCode, rng: np.random.Generator) -> float:
    """The effective scale of an output of whole pixels, some of which may be repeated: distinct pixels per pixel.

    Args:
        probe: The result for the coded images, shape (height, width, 3).
        affine: The map from the output to the image.
        code: The code.
        rng: Draws the rows and columns that are looked at.
    """
    effective = []
    for axis, step in enumerate(scales(affine)):
        lines = probe if axis == 0 else probe.transpose(1, 0, 2)
        chosen = lines[rng.integers(0, len(lines), min(len(lines), _LINES))]
        index, xy = code.decode(chosen.reshape(-1, 3))
        index, xy = index.reshape(chosen.shape[:2]), xy.reshape(*chosen.shape[:2], 2)
        both = (index[:, 1:] >= 0) & (index[:, :-1] >= 0)
        changes = (xy[:, 1:] != xy[:, :-1]).any(-1)[both]
        fresh = float(changes.mean()) / min(1.0, step) if len(changes) > 8 else 1.0
        # Turned by an odd angle, some neighbours come from one pixel though none was lost.
        effective.append((1.0 if fresh > 0.8 else fresh) / max(step, 1e-9))
    return min(effective)
