"""Reads regions off the outputs that a program made of smooth waves, whose phase codes x or y."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from codev_env.provenance import codes
from codev_env.provenance import coordinates as geometry
from codev_env.provenance.agreement import agrees
from codev_env.provenance.mixed import mixed_region
from codev_env.provenance.regions import Bools, Grid, Indices, Originals, dice
from codev_env.types import Region

Pixels = NDArray[np.uint8]
Array = NDArray[np.floating]

_LEAST_AMPLITUDE = 4.0
"""Grey levels; waves weaker than that are taken for no wave."""
_MOST_BEND = 0.15


def read_phase(
    output: Image.Image, waves_x: Pixels, waves_y: Pixels, image: Image.Image, image_index: int, secret: int
) -> Region | None:
    """Read the region off phase-coded outputs and check it against the output.

    Args:
        output: The image that the program returned.
        waves_x: Its result for the image that codes x: the three waves, shape (height, width, 3).
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
            return mixed_region(output, fit[0], image, image_index, originals, rng, waves.tolerance, colours="changed")
    return None


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
            return self  # Too little of a period for a fit.
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
