"""Which parts of an output look like what the map says they show: holes that the coded run did not have are found.

The coded run shows which pixels of an output *should* stem from the image. A program that paints its target over only
when it is not probed, or replaces it by its mean colour, which codes the middle of it, looks the same there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from codev_env.provenance.agreement import box_sum
from codev_env.provenance.legibility import blank, illegible
from codev_env.provenance.regions import GRID, Bools, Bounds, OutputPart, resample, scales
from codev_env.types import Region

Array = NDArray[np.floating]

Colours = Literal["kept", "changed", "any"]

_SIDE = 160
"""Most pixels per side at which an output is compared."""
_LEVELS = 12.0
_CONTRAST = 0.35
"""A pixel is unlike if it is off by more levels than this, and this share of the contrast around it."""
_REACH = 2
_CROWD, _MOSTLY = 0.1, 0.4
"""Shares of a square of 5 x 5: of unlike pixels, so that gaps between strokes are unlike, too; of unseen ones."""
_LEAST, _MOST = 16, 0.4
_KEPT = 4.0
"""Levels by which most alike pixels differ at most where the colours were kept."""
_COARSER = 1.5
"""Power of the resolution: what is left of blurred images still differs where detail ends."""
_READ = 256
"""Most pixels per side at which it is looked for what cannot be read."""
_WINDOW, _SHAPE, _ALIKE = 3, 6.0, 0.8
"""Of shapes: pixels on each side of a place that are compared, levels by which they vary, and their correlation."""
_ROUNDS, _FITTED, _SETTLED = 8, 1500, 0.5
"""Of the fit of a change of colours: steps and pixels at most, and levels by which a last step moves any of these."""


def without_unlike(
    part: OutputPart, output: Image.Image, affine: Array, image: Image.Image, resolution: float, colours: Colours
) -> OutputPart | None:
    """Take from a part of an output what does not look like what the map says it shows.

    Both are brought to the resolution at which the output holds detail. A pixel is alike if each of both images has
    there, up to a tolerance, a value that the other takes in its neighbourhood of 3 x 3.

    Args:
        part: The part, as the coded run shows it.
        output: The image that the program returned.
        affine: The map from its pixels to the image's.
        image: The input image.
        resolution: The share of the output's resolution that holds detail.
        colours: The program's change to the colours: kept, changed everywhere alike, or anything. An output of edges or
            thresholds has no predictable colours: only what differs in kept and in changed colours is unlike then.

    Returns:
        The part; `None` if more than two fifths are unlike in such colours, of "any" in kept ones.
    """
    expected, returned = _both(part.bounds, output, affine, image, resolution)
    (height, width), (left, top, right, bottom) = expected.shape[:2], part.bounds
    if colours == "changed" and (returned == returned[..., :1]).all():
        returned = returned[..., :1]  # Grey: one channel says it all.
    grid = np.ones((min(bottom - top, GRID), min(right - left, GRID)), bool) if part.seen is None else part.seen
    within = grid[_spread(height, len(grid))[:, None], _spread(width, grid.shape[1])]
    if within.sum() < _LEAST:
        return part
    shown = _recoloured(expected, returned, within) if colours == "changed" else expected
    unlike = _unlike(shown, returned, within)
    likeness = _likeness(shown, returned, within & ~unlike)
    if colours == "changed":
        unlike &= ~_same_shapes(expected, returned)
    if unlike.sum() > _MOST * within.sum():
        return None
    if colours == "any" and np.median(np.abs(expected - returned)[within & ~unlike]) > _KEPT:
        unlike &= _unlike(_recoloured(expected, returned, within), returned, within)
    if not unlike.any():
        return part
    if colours == "any":  # Stripes are rough about single places: a place among unseen ones is not seen.
        unlike |= _around(unlike | ~within) >= _MOSTLY * _around(np.ones_like(within))
    seen = grid & ~unlike[_spread(len(grid), height)[:, None], _spread(grid.shape[1], width)]
    return OutputPart(part.bounds, part.share * float(seen.sum() / max(grid.sum(), 1)), seen, likeness)


def same_shapes(bounds: Bounds, output: Image.Image, affine: Array, image: Image.Image, resolution: float) -> Bools:
    """Where a part of an output has the shapes of what the map says it shows, in whatever colours.

    Arguments are those of `without_unlike`.

    Returns:
        Over the grid of `Region.seen`; `False` where there are no shapes.
    """
    return _on_grid(_same_shapes(*_both(bounds, output, affine, image, resolution)), bounds)


def unreadable(bounds: Bounds, output: Image.Image, affine: Array, image: Image.Image) -> Bools:
    """Where a part of an output clearly shows something else than the map says, in whatever colours.

    Both are compared in the lower of their resolutions, or a whole part of it: noise makes detail look lost, and fine
    lines are lost where pixels are mixed otherwise.

    Args:
        bounds: The part.
        output: The image that the program returned.
        affine: The map from its pixels to the image's, good to a pixel.
        image: The input image.

    Returns:
        Over the grid of `Region.seen`.
    """
    return _on_grid(illegible(*_whole_parts(bounds, output, affine, image)), bounds)


def with_blanks(region: Region, bounds: Bounds, output: Image.Image, affine: Array, image: Image.Image) -> Region:
    """Note at which places of a part of an output nothing is left of its region, though the image varies there."""
    blanks = _on_grid(blank(*_whole_parts(bounds, output, affine, image)), bounds)
    return replace(region, blank=blanks) if blanks.any() else region


def _whole_parts(bounds: Bounds, output: Image.Image, affine: Array, image: Image.Image) -> tuple[Array, Array]:
    """The same as `_both` in the lower of their resolutions, or a whole part of that."""
    left, top, right, bottom = bounds
    sides = np.array([right - left, bottom - top]) * np.minimum(1.0, scales(affine))
    return _sized(bounds, output, affine, image, sides / max(1, int(np.ceil(sides.max() / _READ))))


def _on_grid(places: Bools, bounds: Bounds) -> Bools:
    """Places of a part, over the grid of `Region.seen`."""
    left, top, right, bottom = bounds
    rows, columns = min(bottom - top, GRID), min(right - left, GRID)
    return np.asarray(places[_spread(rows, len(places))[:, None], _spread(columns, places.shape[1])])


def _both(
    bounds: Bounds, output: Image.Image, affine: Array, image: Image.Image, resolution: float
) -> tuple[Array, Array]:
    """Show what a map expects of a part of an output, and that part, in the resolution in which it holds detail."""
    left, top, right, bottom = bounds
    sides = np.array([right - left, bottom - top], float) * np.minimum(1.0, scales(affine)) * resolution**_COARSER
    return _sized(bounds, output, affine, image, sides * min(1.0, _SIDE / sides.max()))


def _sized(bounds: Bounds, output: Image.Image, affine: Array, image: Image.Image, sides: Array) -> tuple[Array, Array]:
    """The same in (width, height) pixels, to be rounded."""
    left, top, right, bottom = bounds
    width, height = np.maximum(1, np.round(sides)).astype(int).tolist()
    shown = np.array([right - left, bottom - top]) * scales(affine)
    fine = 2 if (shown > 1.2 * np.array([width, height])).any() else 1  # Else nothing is averaged.
    made = resample(image, affine, bounds, (fine * width, fine * height))
    expected = np.asarray(made.reduce(fine), np.float32)
    returned = np.asarray(output.resize((width, height), Image.Resampling.BOX, bounds, 2.0), np.float32)
    return expected, returned


def _spread(count: int, length: int) -> NDArray[np.intp]:
    """The places of the middles of so many equal cells in an array of that length."""
    return ((np.arange(count) + 0.5) * length / count).astype(np.intp)


def _unlike(expected: Array, returned: Array, within: Bools) -> Bools:
    """The places within a part at which two images differ, and those between them."""
    (low, high), (lowest, highest) = _extremes(expected), _extremes(returned)
    most = _LEVELS + _CONTRAST * np.maximum(high - low, highest - lowest)
    off = (expected < lowest - most) | (expected > highest + most) | (returned < low - most) | (returned > high + most)
    off = within & off.any(-1)
    return np.asarray(within & (_around(off) >= _CROWD * _around(within)))


def _likeness(expected: Array, returned: Array, places: Bools) -> float:
    """The correlation of two images at some places, over all channels, each less its mean; 1 where both are plain."""
    if not places.any():
        return 1.0
    a, b = (one[places] - one[places].mean(0) for one in (expected, returned))
    if max(a.std(), b.std()) < _SHAPE:
        return 1.0
    return float((a * b).sum() / max(np.sqrt(float((a * a).sum() * (b * b).sum())), 1e-6))


def _same_shapes(expected: Array, returned: Array) -> Bools:
    """The places around which two images have the same shapes, in whatever colours: a table may lead to any.

    Args:
        expected: Shape (height, width, 3).
        returned: Shape (height, width, 3) or (height, width, 1).
    """
    pairs = [(expected.mean(-1), returned.mean(-1))]
    if returned.shape[-1] == 3:
        pairs += zip(np.moveaxis(expected, 2, 0), np.moveaxis(returned, 2, 0), strict=True)
    same, shaped = np.zeros((2, *expected.shape[:2]), bool)
    count = box_sum(np.ones_like(same, np.float32), _WINDOW)
    for a, b in pairs:
        a, b = a - a.mean(), b - b.mean()
        mean_a, mean_b = box_sum(a, _WINDOW) / count, box_sum(b, _WINDOW) / count
        power_a, power_b = (
            box_sum(one * one, _WINDOW) / count - mean * mean for one, mean in ((a, mean_a), (b, mean_b))
        )
        common = box_sum(a * b, _WINDOW) / count - mean_a * mean_b
        shaped |= power_a > _SHAPE**2
        clear = np.minimum(power_a, power_b) > _SHAPE**2
        same |= clear & (common * common > _ALIKE**2 * power_a * power_b)
    # Along the edge of a hole, what is around it is the same.
    return same & (box_sum((shaped & ~same).astype(np.float32), _WINDOW) == 0)


def _extremes(pixels: Array) -> tuple[Array, Array]:
    """The least and the largest value around each pixel, over 3 x 3."""
    low = high = np.pad(pixels, [(1, 1), (1, 1), (0, 0)], mode="edge")
    low = np.minimum(np.minimum(low[:-2], low[1:-1]), low[2:])
    high = np.maximum(np.maximum(high[:-2], high[1:-1]), high[2:])
    low = np.minimum(np.minimum(low[:, :-2], low[:, 1:-1]), low[:, 2:])
    high = np.maximum(np.maximum(high[:, :-2], high[:, 1:-1]), high[:, 2:])
    return low, high


def _recoloured(expected: Array, returned: Array, within: Bools) -> Array:
    """Find, robustly, the change of colours that leads from one image to the other, and apply it.

    The fit begins at no change, or an inversion: where most of the print is gone, what is left of it shows that print
    is not made white. Values that are and should be clipped are no evidence.
    """
    pixels, target = expected[within], returned[within].astype(np.float64)
    step = max(1, len(pixels) // _FITTED)
    features, target = _features(pixels[::step].astype(np.float64)), target[::step]
    inverted = np.cov(pixels[::step].mean(1), target.mean(1))[0, 1] < 0
    channels = target.shape[1]
    change = np.zeros((features.shape[1], channels))
    identity = 255 * (np.eye(3) if channels == 3 else np.array([[0.299], [0.587], [0.114]]))
    change[0], change[1:4] = (255.0, -identity) if inverted else (0.0, identity)
    for channel in range(channels):
        one = change[:, channel]
        for _ in range(_ROUNDS):
            guess = features @ one
            known = ~(((target[:, channel] <= 1) & (guess < 0)) | ((target[:, channel] >= 254) & (guess > 255)))
            if known.sum() < 2 * len(one):
                break
            off = target[:, channel] - guess
            spread = max(float(np.median(np.abs(off[known]))), 1.0)
            by = _solve(features, off, known / (1 + (off / (2 * spread)) ** 2))
            one += by
            if np.abs(features @ by).max() < _SETTLED:
                break
    changed = np.clip(_features(expected) @ change.astype(np.float32), 0, 255)
    return np.asarray(changed.reshape(returned.shape))


def _solve(features: Array, target: Array, weight: Array) -> Array:
    weighted = features * weight[:, None]
    pull = 1e-6 * max(float(weight.sum()), 1.0) * np.eye(features.shape[1])
    return np.asarray(np.linalg.solve(weighted.T @ features + pull, weighted.T @ target))


def _features(colours: Array) -> Array:
    scaled = colours.reshape(-1, 3) / 255
    return np.concatenate([np.ones_like(scaled[:, :1]), scaled, scaled**2, np.sqrt(scaled)], 1)


def _around(pixels: Bools) -> Array:
    """How many pixels are set in the square around each."""
    return box_sum(pixels.astype(np.float32), _REACH)
