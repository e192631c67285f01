"""Outputs that a program turned by an odd angle: found by the edges of `weave`, and turned back to be read."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from codev_env.provenance import coordinates as geometry
from codev_env.provenance.regions import Bools, Indices, dice, make_region, shown_part
from codev_env.provenance.seen import with_blanks
from codev_env.types import Region

Array = NDArray[np.floating]

_SIDE, _LEAST_SIDE = 320, 16
"""Pixels of the longer side at which the angle is looked for, and of the shorter side that it takes."""
_STEPS = (0.5, 0.1)
"""Degrees between the directions that are told apart at first, and then."""
_NEAR, _LEAST = 6.0, 1.0
"""Degrees up to which a turn of a small output may look like none, and from which on an output counts as turned."""
_BAND = (0.03, 0.45)
"""Cycles per pixel of the edges that are looked at."""


@dataclass(frozen=True)
class Tilt:
    """A turn of an output, and how to take it back.

    Attributes:
        degrees: By how much the output is turned, counter-clockwise, from -45 to 45.
        size: (width, height) of the output.
    """

    degrees: float
    size: tuple[int, int]

    @property
    def upright_size(self) -> tuple[int, int]:
        """(width, height) of the output when it is turned back: it holds all of it."""
        a, b = abs(math.cos(math.radians(self.degrees))), abs(math.sin(math.radians(self.degrees)))
        width, height = self.size
        return math.ceil(width * a + height * b), math.ceil(width * b + height * a)

    @property
    def _to_output(self) -> Array:
        """The map from the upright image to the output."""
        turn = math.radians(self.degrees)
        linear = np.array([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]])
        middle = linear @ (np.array(self.upright_size) / 2)
        return np.column_stack([linear, np.array(self.size) / 2 - middle])

    def upright(self, image: Image.Image) -> Image.Image:
        """Turn an image of the output's size back; what is around it gets the colour of its first pixel."""
        fill = image.getpixel((0, 0))
        data = self._to_output.ravel().tolist()
        return image.transform(
            self.upright_size, Image.Transform.AFFINE, data, Image.Resampling.BICUBIC, fillcolor=fill
        )

    def region(self, upright: Region, affine: Array, output: Image.Image, image: Image.Image, secret: int) -> Region:
        """Describe, for the output, the region that was found in the upright image.

        Args:
            upright: That region.
            affine: The map from the upright image to the input image.
            output: The output.
            image: The input image.
            secret: Decides with the output where it is looked at.
        """
        to_upright = geometry.inverse(self._to_output)
        whole = np.vstack([affine, (0, 0, 1)]) @ np.vstack([to_upright, (0, 0, 1)])
        corners = np.array(upright.polygon)
        into = np.linalg.inv(np.column_stack([corners[1] - corners[0], corners[3] - corners[0]]))
        seen = np.ones((1, 1), bool) if upright.seen is None else upright.seen

        def originals(v: Indices, u: Indices) -> Bools:
            places = (geometry.apply(whole[:2], np.stack([u.ravel(), v.ravel()], 1) + 0.5) - corners[0]) @ into.T
            inside = ((places >= 0) & (places < 1)).all(1)
            across, down = (places.clip(0, 1 - 1e-9) * seen.shape[::-1]).astype(np.intp).T
            return np.asarray((inside & seen[down, across]).reshape(v.shape))

        part = shown_part(output, whole[:2], image.size, originals, dice(output, secret))
        found = make_region(whole[:2], part.bounds, image.size, upright.image_index, part.share, seen=part.seen)
        return with_blanks(replace(found, scale=upright.scale), part.bounds, output, whole[:2], image)


def find_tilt(probe: Image.Image, thorough: bool = False) -> Tilt | None:
    """Find out by how much an output that shows the weave is turned; `None` if it is upright.

    Edges lie along two directions: their spectrum says roughly which, and how they gather on lines, to half a degree.

    Args:
        probe: What the program returned for the weave.
        thorough: Also look for a turn by a few degrees where the output is small.
    """
    grey = np.asarray(probe.convert("L").reduce(max(1, round(max(probe.size) / _SIDE))), np.float32)
    if min(grey.shape) < _LEAST_SIDE:
        return None
    # Weights that fade towards the borders: these are edges, too, and always upright.
    weight = np.outer(*map(np.hanning, grey.shape)).astype(np.float32)
    edges = np.hypot(*np.gradient(grey)) * weight
    if edges.sum() <= 0:
        return None
    degrees = _direction(edges)
    if not (thorough or degrees):
        return None
    reach = 2 * _STEPS[0] if abs(degrees) >= _NEAR else abs(degrees) + _NEAR
    for step in _STEPS:
        around = degrees + np.arange(-reach, reach + step / 2, step)
        degrees = float(around[int(np.argmax([_clearness(edges, weight, one) for one in around]))])
        reach = step
    return Tilt(degrees, probe.size) if abs(degrees) >= _LEAST else None


def _direction(edges: Array) -> float:
    """The direction in degrees, -45 to 45, along which or across which most of the edges' spectrum lies."""
    power = np.abs(np.fft.rfft2(edges - edges.mean())) ** 2
    down, across = np.fft.fftfreq(edges.shape[0])[:, None], np.fft.rfftfreq(edges.shape[1])[None]
    radius = np.hypot(down, across)
    keep = (radius > _BAND[0]) & (radius < _BAND[1])
    angles = np.degrees(np.arctan2(-down + 0 * across, across + 0 * down))[keep] % 90
    count = round(90 / _STEPS[0])
    bins = np.bincount((angles / _STEPS[0] + 0.5).astype(np.intp) % count, power[keep], count)
    degrees = int(bins.argmax()) * _STEPS[0]
    return degrees - 90 if degrees > 45 else degrees


def _clearness(edges: Array, weight: Array, degrees: float) -> float:
    """How much more edges there are on some lines of a direction than on others, and on those across it."""
    rows, columns = edges.shape
    turn, size = math.radians(degrees), 3 * (rows + columns)
    v, u = np.arange(rows, dtype=np.float32)[:, None], np.arange(columns, dtype=np.float32)[None]
    clear = 0.0
    for places in (u * math.cos(turn) - v * math.sin(turn), u * math.sin(turn) + v * math.cos(turn)):
        at = (places + rows + columns).ravel()
        line = at.astype(np.intp)
        # Each place belongs to the lines on both sides of it, or the pixels' own grid would show.
        next_share = at - line
        sums, weights = (
            np.bincount(line, values * (1 - next_share), size) + np.bincount(line + 1, values * next_share, size)
            for values in (edges.ravel(), weight.ravel())
        )
        on = weights > 1
        means = sums[on] / weights[on]
        clear += float((weights[on] * (means - sums[on].sum() / weights[on].sum()) ** 2).sum())
    return clear
