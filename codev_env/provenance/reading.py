"""Reads regions off the outputs that a program made of coded images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageChops

from codev_env.provenance import codes, detail
from codev_env.provenance import coordinates as geometry
from codev_env.provenance.agreement import agrees
from codev_env.provenance.regions import Bools, Grid, Indices, Originals, dice, make_region, shown_part
from codev_env.provenance.seen import Colours, without_unlike
from codev_env.provenance.stripes import StripeReader
from codev_env.types import Region

Pixels = NDArray[np.uint8]
Decode = Callable[[Pixels], tuple[Indices, NDArray[np.floating]]]
Array = NDArray[np.floating]

_UNLIKE = 0.3
"""Kinship with what a map says is shown, below which an output does not show it, whatever its colours."""
_COPIED = 16
"""Colour levels by which a copied pixel may differ."""
_LEAST_AMPLITUDE = 4.0
"""Grey levels; waves weaker than that are taken for no wave."""
_MOST_BEND = 0.15
_LIKE = 0.8
"""Correlation with what it shows of an output in unchanged colours."""
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
    """A region read off the pixel code; not `sure` where most of the output is something else."""

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
    """Read the region off the pixel code and check it against the output.

    Args:
        output: What the program returned.
        probe: What it returned, at the same place and of the same size, from `code.images`.
        code: The code of the input images.
        images: The input images.
        secret: Decides with the output where it is looked at.

    Returns:
        `None` if the code was destroyed, or if the output's pixels are not those of the region.
    """
    region = _read_crop(output, probe, code, images)
    if region is not None:
        return Reading(region, True)
    return _Coded(output, probe, code, images, secret).read()


def _read_crop(
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
            scale = detail.of_codes(self.probe[..., order], affine, self.code, self.rng)
            region = replace(region, scale=min(scale, region.scale or scale))
        sure = float((right | self.same | (copied & (index >= 0))).mean()) >= 0.9
        return Reading(region, sure)

    def _smooth(self, order: slice) -> Reading | None:
        """Pixels mixed with their neighbours, as by a resize, in colours that the program did not change."""
        samples = self.samples[:, order]
        index, xy = self.code.decode_smooth(samples)
        index[self.same] = -1
        fit = _fit_majority(self.grid.uv, index, xy, 1.6 * self.code.step + 0.6)
        if fit is None or fit.right.sum() < 0.5 * (~self.same).sum():
            return None
        image, right = self.images[fit.image_index], fit.right
        affine = geometry.snap(fit.affine, self.output.size)
        if not self.code.colours_kept(fit.image_index, geometry.apply(affine, self.grid.uv[right]), samples[right]):
            return None
        output = self._ordered(order)
        if not agrees(output, affine, image, right.reshape(self.grid.u.shape), recoloured=False):
            return None
        originals = self._originals(fit, self.code.decode_smooth, order)
        # Truncated values, as some libraries leave them, shift the map by half a step.
        most = 1.5 * float(self.code.step.max())
        region = _with_detail(output, fit.affine, image, fit.image_index, originals, self.rng, most, _LIKE, "kept")
        return None if region is None else Reading(region, True)

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


def _with_detail(
    output: Image.Image,
    affine: Array,
    image: Image.Image,
    image_index: int,
    originals: Originals,
    rng: np.random.Generator,
    most: float,
    like: float = -1.0,
    colours: Colours = "any",
) -> Region | None:
    """Describe an output whose pixels were mixed: its scale is as small as the detail that is left.

    Args:
        output: What the program returned.
        affine: The map from its pixels to the image's.
        image: The input image.
        image_index: Its index.
        originals: Which pixels of the output stem from where the map says.
        rng: Draws where the output is looked at.
        most: Pixels by which the map may be wrong, to be put right by what the output shows.
        like: How much the output must be correlated with what the map says, where that is not too plain to tell.
        colours: What the program did to them.

    Returns:
        `None` if the output does not look like that.
    """
    part = shown_part(output, affine, image.size, originals, rng)
    grey = image.convert("L")
    overview = detail.overview(output, part.bounds, originals)
    aligned = detail.align(affine, grey, [overview], most)
    if aligned is None:
        return None
    expected = overview.expected(aligned, grey)
    alike = detail.likeness(expected, overview)
    if not detail.visible(expected, overview):
        return None
    if alike is not None and (alike < like or detail.kinship(expected, overview) < _UNLIKE):
        return None
    patches = detail.patches(output, aligned, part.bounds, originals)
    finer = detail.align(aligned, grey, patches, 2.0)
    affine = geometry.snap(aligned if finer is None else finer, output.size)
    left = detail.kept(affine, grey, patches)
    without = without_unlike(part, output, affine, image, left, colours)
    if without is None and colours != "any":
        return None
    part = without or part
    region = make_region(affine, part.bounds, image.size, image_index, part.share, seen=part.seen)
    assert region.scale is not None
    return replace(region, scale=region.scale * left)


def read_phase(
    output: Image.Image, waves_x: Pixels, waves_y: Pixels, image: Image.Image, image_index: int, secret: int
) -> Region | None:
    """Read the region off phase-coded outputs and check it against the output.

    Args:
        output: What the program returned.
        waves_x: What it made of the image that codes x: the three waves, shape (height, width, 3).
        waves_y: The same for y.
        image: The input image.
        image_index: Its index.
        secret: Decides with the output where it is looked at.

    Returns:
        `None` if the waves were destroyed, or if the output does not look like the region.
    """
    rng = dice(output, secret)
    grid = Grid((0, 0, *output.size), rng)
    for inverted in (False, True):  # Inverted colours shift the phase by half a period.
        waves = _Waves(waves_x, waves_y, image.size, inverted)
        xy, valid, clipped = waves.decode(grid.v, grid.u)
        fit = geometry.fit_affine(grid.uv[valid], xy[valid], waves.tolerance, 0.5)
        if fit is None:
            continue
        waves = waves.straightened(grid.v.ravel()[valid][fit[1]], grid.u.ravel()[valid][fit[1]])
        xy, valid, clipped = waves.decode(grid.v, grid.u)
        fit = geometry.fit_affine(grid.uv[valid], xy[valid], waves.tolerance, 0.5)
        if fit is None or abs(waves.bend) > _MOST_BEND:
            continue
        affine = geometry.snap(fit[0], output.size)
        explained = clipped
        explained[valid] = fit[1]
        if agrees(output, affine, image, explained.reshape(grid.u.shape), inverted):
            originals = waves.originals(fit[0])
            return _with_detail(output, fit[0], image, image_index, originals, rng, waves.tolerance, colours="changed")
    return None


def read_stripes(
    output: Image.Image, reader: StripeReader, image: Image.Image, image_index: int, secret: int
) -> Region | None:
    """Read the region off stripes; `None` if they were destroyed, or do not fit together.

    Args:
        output: What the program returned.
        reader: Followed the stripes of the image into it.
        image: The input image.
        image_index: Its index.
        secret: Decides with the output where it is looked at.
    """
    fit = reader.fit()
    if fit is None:
        return None
    affine, originals = fit
    return _with_detail(output, affine, image, image_index, originals, dice(output, secret), 0.01 * max(image.size))


class _Waves(NamedTuple):
    """The phase-coded outputs for x and y, and how to read them."""

    x: Pixels
    y: Pixels
    size: tuple[int, int]
    inverted: bool
    bend: float = 0.0
    """Second harmonic over first that a curved change of colours, such as a gamma, gave the waves."""

    @property
    def tolerance(self) -> float:
        """Error in pixels, in x and in y, up to which a point counts as right."""
        return max(3.0, 0.01 * max(self.size))

    def straightened(self, v: Indices, u: Indices) -> _Waves:
        """Take back what a curved change of colours did to the phases, by pixels whose reading is right.

        A second harmonic of strength r leaves the amplitude 1 + r cos(3 phase), and the phase off by -r sin(3 phase).
        """
        tops, strengths = [], []
        for wave, length in zip((self.x, self.y), self.size, strict=True):
            where, amplitude = codes.decode_phase(wave[v, u].reshape(-1, 3), length)
            phase = 2 * np.pi * where / (codes.PERIOD * length) + np.pi * self.inverted
            tops.append(np.cos(3 * phase))
            strengths.append(amplitude)
        top, strength = np.concatenate(tops), np.concatenate(strengths)
        if np.ptp(top) < 0.2:
            return self  # Too little of a period to tell.
        slope, mean = np.polynomial.polynomial.polyfit(top, strength, 1)[::-1]
        return self._replace(bend=float(slope / mean))

    def decode(self, v: Indices, u: Indices) -> tuple[Array, Bools, Bools]:
        """Read pixels by row and column.

        Returns:
            The coordinates, shape (n, 2); which of them are valid; which pixels depend on the input, but clip.
        """
        coordinates, samples = [], [wave[v, u].reshape(-1, 3) for wave in (self.x, self.y)]
        clipped = np.any([((wave == 0) | (wave == 255)).any(-1) for wave in samples], axis=0)
        valid = ~clipped
        for wave, length in zip(samples, self.size, strict=True):
            where, amplitude = codes.decode_phase(wave, length)
            phase = 2 * np.pi * where / (codes.PERIOD * length) + np.pi * self.inverted
            phase += self.bend * np.sin(3 * (phase + self.bend * np.sin(3 * phase)))
            coordinates.append(phase / (2 * np.pi) % 1.0 * codes.PERIOD * length)
            valid &= amplitude >= _LEAST_AMPLITUDE
        # Padding and drawings are the same whatever is coded.
        return np.column_stack(coordinates), valid, clipped & (samples[0] != samples[1]).any(-1)

    def originals(self, affine: Array) -> Originals:
        """Which pixels stem from where a map says."""

        def originals(v: Indices, u: Indices) -> Bools:
            xy, valid, clipped = self.decode(v, u)
            points = geometry.apply(affine, np.column_stack([u.ravel(), v.ravel()]) + 0.5)
            right = valid & geometry.both_within(points - xy, self.tolerance)
            return np.asarray((right | clipped).reshape(v.shape))

        return originals
