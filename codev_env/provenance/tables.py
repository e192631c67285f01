"""Changes of colour that a table makes: of each channel, or of one value of a pixel, such as its grey.

Grey, contrast, brightness, gamma, equalisation, inversion, stretches and colour maps are of this kind. If an output is
such a function of a cut, it shows that cut: pixels of one value everywhere in it have one colour in the output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from codev_env.provenance.agreement import box_sum
from codev_env.provenance.legibility import legible

Values = NDArray[np.uint8]
Pixels = NDArray[np.uint8]

_SAMPLE = 32
"""Points per side at which a change is looked for first."""
_LIKELY = 0.4
"""Share of the variance of a part that a cut explains at least, if the output shows it."""
_REPEATED, _WIDE = 24, 32
"""Pixels that share a value, on average, and of the shorter side: fewer would let a table fit anything."""
_NARROW = 12
"""Pixels of the shorter side that are enough if every table keeps the order of values, or turns it round."""
_SHIFTS = ((3, 2), (-2, 3), (9, -7))
_OTHER = 0.04
"""Share of pixels that contradict the table where the cut is shifted against the output."""
_SIDE, _CELL = 320, 4
"""Pixels per side, and of a cell, at which it is compared how much both images vary."""
_VARIES, _LEAST, _FADED = 24, 4, 12
"""Levels by which a cell of the cut varies if it shows anything, and by which the output then does at least; less by
that factor is faded, too."""
_READ = 192
"""Pixels per side, at most, in which it is read."""
_SLIM, _REACH = 48, 2
"""Pixels of the shorter side up to which an ordered table may move the contrast of a cell by so many pixels: strokes of
print end where a threshold says, and no other means says what such a cut shows."""
_CROWD = 4
"""Faded cells of 3 x 3: single ones are edges between two colours that the change makes one."""


class Recoloured:
    """Compares outputs with a cut in other colours.

    Args:
        cut: The part of an input, RGB.
        enlarged: It was enlarged by so much, along the side that was enlarged more. Neighbours are alike then, and only
            tables that keep the order of values or turn it round count.
    """

    def __init__(self, cut: Image.Image, enlarged: float = 1.0) -> None:
        self._cut, self._enlarged = cut, enlarged
        few = cut.resize((_SAMPLE, _SAMPLE), Image.Resampling.NEAREST)
        self._few = [value(few) for value in _VALUES]

    def shows(self, output: Image.Image) -> bool:
        """Whether an output is the cut in other colours, everything in it still to be seen.

        Args:
            output: The image that the program returned, turned back, of the same size.

        Returns:
            False also if some place has lost its contrast, as under most thresholds: then it takes other means to say
            what is seen.
        """
        few = np.asarray(output.resize((_SAMPLE, _SAMPLE), Image.Resampling.NEAREST))
        for value, shown in zip(_VALUES, self._few, strict=True):
            if not _fits(shown, few):
                continue
            values, pixels = value(self._cut), np.asarray(output)
            if values.shape[2] == 1 and (few == few[..., :1]).all() and (pixels == pixels[..., :1]).all():
                pixels = pixels[..., :1]  # One channel says it all.
            if not _fits(values, pixels):
                continue
            ordered = all(map(_is_ordered, _by_channel(values, pixels)))
            if _is_no_chance(values, pixels, ordered, self._enlarged):
                step = max(-(-max(self._cut.size) // _SIDE), int(self._enlarged))  # The cut's own resolution.
                reach = _REACH if ordered and min(self._cut.size) < _SLIM * self._enlarged else 0
                visible = _is_visible(np.asarray(self._cut)[::step, ::step], pixels[::step, ::step], reach)
                return visible and _is_legible(self._cut, output)
        return False


def may_show(part: Image.Image, shown: Image.Image) -> bool:
    """Whether an output may be a cut, enlarged by any filter and put in other colours, by a part of both.

    Args:
        part: Of the cut, enlarged by one filter.
        shown: The same part of the output.
    """
    pixels = np.asarray(shown)
    return any(_explained(value(part), pixels) >= _LIKELY for value in _VALUES)


def _explained(values: Values, pixels: Pixels) -> float:
    """The share of the variance of pixels that values explain, by one mean for each: 1 if a table leads there."""
    explained = total = 0.0
    for key, channel in _by_channel(values, pixels):
        off = channel.ravel() - channel.mean()
        sums, counts = np.bincount(key.ravel(), off, 256), np.bincount(key.ravel(), minlength=256)
        explained += float((sums**2 / np.maximum(counts, 1)).sum())
        total += float(off @ off)
    return explained / total if total else 1.0


def _fits(values: Values, pixels: Pixels) -> bool:
    """Whether pixels are a function of values, shape (height, width, 1) for all channels or (height, width, 3)."""
    return all(bool((_table(key, channel)[key] == channel).all()) for key, channel in _by_channel(values, pixels))


def _by_channel(values: Values, pixels: Pixels) -> Iterator[tuple[Values, Values]]:
    for channel in range(pixels.shape[2]):
        yield values[..., channel % values.shape[2]], pixels[..., channel]


def _table(values: Values, channel: Values) -> Values:
    table = np.zeros(256, np.uint8)
    table[values] = channel
    return table


def _is_no_chance(values: Values, pixels: Pixels, ordered: bool, enlarged: float) -> bool:
    """Whether values repeat or keep their order, and the same tables contradict the output where the cut is shifted."""
    height, width = pixels.shape[:2]
    tables = [_table(key, channel) for key, channel in _by_channel(values, pixels)]
    used = sum(int((np.bincount(key.ravel(), minlength=256) > 0).sum()) for key, _ in _by_channel(values, pixels))
    repeated = enlarged == 1 and pixels.size >= _REPEATED * used and min(height, width) >= _WIDE
    if not repeated and (not ordered or min(height, width) < _NARROW * enlarged):
        return False
    step = max(1, min(height, width) // (2 * _SAMPLE))
    for x, y in _SHIFTS:
        x, y = round(x * enlarged), round(y * enlarged)
        one = slice(max(y, 0), height + min(y, 0), step), slice(max(x, 0), width + min(x, 0), step)
        other = slice(max(-y, 0), height + min(-y, 0), step), slice(max(-x, 0), width + min(-x, 0), step)
        pairs = zip(tables, _by_channel(values[one], pixels[other]), strict=True)
        wrong = np.logical_or.reduce([table[key] != channel for table, (key, channel) in pairs])
        if wrong.mean() < _OTHER:
            return False
    return True


def _is_ordered(pair: tuple[Values, Values]) -> bool:
    """Whether the table that leads from values to a channel never falls, or never rises."""
    values, channel = pair
    steps = np.diff(_table(values, channel)[np.unique(values)].astype(np.int16))
    return bool((steps >= 0).all() or (steps <= 0).all())


def _is_visible(cut: Pixels, pixels: Pixels, reach: int) -> bool:
    """Whether the places that vary in a cut vary in the output, there or in reach of so many pixels."""
    before, after = _ranges(cut, 0), _ranges(pixels, reach)
    faded = (before >= _VARIES) & (after < np.maximum(_LEAST, before / _FADED))
    return not (faded & (box_sum(faded.astype(np.float32), 1) >= _CROWD)).any()


def _is_legible(cut: Image.Image, output: Image.Image) -> bool:
    """Whether what the cut shows can still be read, which a table that scatters near colours hides."""
    factor = -(-max(cut.size) // _READ)
    before, after = (np.asarray(image.convert("L").reduce(factor), np.float32) for image in (cut, output))
    return legible(before, after)


def _ranges(pixels: Pixels, reach: int) -> NDArray[np.int16]:
    """By how much cells, with so many pixels around them, vary in the channel that varies most."""
    height, width = (side // _CELL * _CELL for side in pixels.shape[:2])
    found = []
    for extreme, merge in ((np.min, np.minimum), (np.max, np.maximum)):
        around = pixels
        for axis in (0, 1) * reach:
            around = merge.reduce([around, *(_moved(around, axis, by) for by in (-1, 1))])
        rows = around[:height, :width].reshape(height // _CELL, _CELL, width, -1)
        found.append(extreme(extreme(rows, 1).reshape(-1, width // _CELL, _CELL, pixels.shape[2]), 2))
    return np.asarray((found[1].astype(np.int16) - found[0]).max(-1))


def _moved(pixels: Pixels, axis: int, by: int) -> Pixels:
    """Pixels moved along an axis by 1 or -1; the line at the border is repeated."""
    places = np.clip(np.arange(pixels.shape[axis]) + by, 0, pixels.shape[axis] - 1)
    return np.take(pixels, places, axis)


def _grey_of_pillow(image: Image.Image) -> Values:
    return np.asarray(image.convert("L"))[..., None]


def _grey_of_opencv(image: Image.Image) -> Values:
    red, green, blue = (np.asarray(band).astype(np.uint32) for band in image.split())
    return ((red * 9798 + green * 19235 + blue * 3735 + (1 << 14)) >> 15).astype(np.uint8)[..., None]


def _mean(image: Image.Image) -> Values:
    return np.asarray(image).mean(-1, keepdims=True).astype(np.uint8)


def _largest(image: Image.Image) -> Values:
    return np.asarray(image).max(-1, keepdims=True)


def _channel(number: int) -> Callable[[Image.Image], Values]:
    return lambda image: np.asarray(image.getchannel(number))[..., None]


_VALUES: tuple[Callable[[Image.Image], Values], ...] = (
    np.asarray,
    _grey_of_pillow,
    _grey_of_opencv,
    *map(_channel, range(3)),
    _largest,
    _mean,
)
