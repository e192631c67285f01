"""Whether an output can be read: everywhere, or with places that a program has scattered or covered with noise.

Each pixel of such a place still depends on one of the image, so that no trace of it is lost, but nobody sees it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]
Bools = NDArray[np.bool_]

PLAIN, FEWEST = 3.0, 16
"""Levels by which an image varies if there is something to read; pixels that it takes."""
_LEGIBLE, _CHANCE = 0.18, 1.5
"""Correlation with the image's edges above which an output can be read; what chance alone makes of it is that over the
root of the number of pixels."""
_WINDOW, _SHOWS, _ROUGH = 8, 4.0, 8.0
"""Of single places: pixels on each side over which they are read; levels by which image and output vary there."""
_NEAR, _VANISHED = 4, 1.0
"""Pixels around a place at which nothing is left, and levels by which the output varies there at most."""
_FINE = 2
"""Pixels around a place against which its fine detail is lighter or darker."""
_AROUND, _MOSTLY = 2, 0.9
"""Pixels around a place, and the share of these that cannot be read either: single ones are chance."""


def legible(expected: Array, returned: Array, weight: Array | None = None) -> bool:
    """Whether a reader could find in an image what it is said to show, however its colours were changed.

    An image has edges where what it shows has edges, or is light or dark there, as an image of edges is, of all or of
    those along one axis; that is looked at in its resolution and in half of it. A table that scatters near colours
    covers an image with edges of its own, and so does strong noise, although a program that knows the table could take
    them back.

    Args:
        expected: What is said to be shown, in grey, shape (height, width).
        returned: The image, in grey, the same shape.
        weight: 1 for the pixels that count, 0 for others; all count by default.
    """
    weight = np.ones_like(expected) if weight is None else weight
    if expected[weight > 0].size < FEWEST or expected[weight > 0].std() < PLAIN:
        return True
    for _ in range(2):
        count, drawn = weight.sum(), (normalized(steepness(returned), weight), normalized(returned, weight))
        for edges in (steepness(expected), *map(np.abs, slopes(expected))):
            alike = [(weight * normalized(edges, weight) * part).sum() for part in drawn]
            if max(alike[0], abs(alike[1])) >= _LEGIBLE * count + _CHANCE * np.sqrt(count):
                return True
        expected, returned, weight = _halved(expected), _halved(returned), _halved(weight) // 1
        if weight.sum() < FEWEST:
            break
    return False


def illegible(expected: Array, returned: Array) -> Bools:
    """The places of an image that show clearly something that is not what they are said to show, in any colours.

    Around such a place neither the brightness of the image nor its edges are found in the output, in no channel,
    neither in its resolution nor in half of it. Places that are plain in either image are not among them.

    Args:
        expected: What is said to be shown, shape (height, width, 3).
        returned: The image, of the same shape.

    Returns:
        Shape (height, width).
    """
    grey = expected.mean(-1)
    channels = [returned.mean(-1), *np.moveaxis(returned, 2, 0)][: 1 if np.ptp(returned, axis=-1).max() == 0 else 4]
    plain = [_deviation(channel, _WINDOW) <= _ROUGH for channel in channels]
    left = ~np.logical_and.reduce(plain) & (_deviation(grey, _WINDOW) > _SHOWS)
    for like in _alike([grey, *_colours(expected)], channels, plain):
        left &= ~like
        crowded = left & (_mean_around(left.astype(np.float32), _AROUND) >= _MOSTLY)
        if not crowded.any():  # As a rule after one or two looks.
            return crowded
    return _mean_around(crowded.astype(np.float32), _WINDOW) > 0


def blank(expected: Array, returned: Array) -> Bools:
    """The places at which nothing is left of what an image is said to show: it varies in no channel, the image did.

    Places that are plain in both images belong to these where they lie beside them.

    Args:
        expected: What is said to be shown, shape (height, width, 3).
        returned: The image, of the same shape.

    Returns:
        Shape (height, width).
    """
    before, after = (
        np.maximum.reduce([_deviation(channel, _NEAR) for channel in np.moveaxis(pixels, 2, 0)])
        for pixels in (expected, returned)
    )
    lost = (before > _SHOWS) & (after < _VANISHED)
    return np.asarray((_mean_around(lost.astype(np.float32), _WINDOW) > 0) & (after < _VANISHED))


def _alike(kinds: list[Array], channels: list[Array], plain: list[Bools]) -> Iterator[Bools]:
    """Where one channel of an image is, around each place, like one thing that is to be seen there; for all pairs.

    Args:
        kinds: What is to be seen: brightness, and what else the colours show.
        channels: The image.
        plain: Where each channel is plain: nothing is like anything there.
    """
    height, width = kinds[0].shape
    for step in (1, 2):
        window = -(-_WINDOW // step)
        if step == 2:
            if min(height, width) < 4 * window:
                return
            kinds, channels = [_halved(one) for one in kinds], [_halved(one) for one in channels]
        signed = [*slopes(kinds[0]), kinds[0] - _mean_around(kinds[0], _FINE)]
        edges = [steepness(kinds[0]), *map(np.abs, signed)]
        for channel, nothing in zip(channels, plain, strict=True):
            drawn = steepness(channel)
            pairs = [*((one, channel) for one in kinds), *((one, drawn) for one in edges)]
            for pair in (*pairs, *((one, channel) for one in (*signed, *edges))):
                like = np.abs(_correlation(*pair, window)) >= _LEGIBLE + _CHANCE / (2 * window + 1)
                if step == 2:
                    like = like.repeat(2, 0).repeat(2, 1)
                    like = np.pad(like, [(0, height - len(like)), (0, width - like.shape[1])], mode="edge")
                yield like & ~nothing


def _colours(pixels: Array) -> list[Array]:
    """The colours of an image besides its brightness: red against green, blue against both, and saturation."""
    red, green, blue = np.moveaxis(pixels, 2, 0)
    kinds = [red - green, blue - (red + green) / 2, np.ptp(pixels, axis=-1)]
    return [one for one in kinds if one.std() > PLAIN]


def _correlation(a: Array, b: Array, window: int) -> Array:
    """The correlation of two images around each place."""
    a, b = a - a.mean(), b - b.mean()
    common = _mean_around(a * b, window) - _mean_around(a, window) * _mean_around(b, window)
    return np.asarray(common / np.maximum(_deviation(a, window) * _deviation(b, window), 1e-3))


def _deviation(pixels: Array, window: int) -> Array:
    """The standard deviation around each place."""
    centred = pixels - pixels.mean()
    return np.sqrt(np.maximum(_mean_around(centred * centred, window) - _mean_around(centred, window) ** 2, 0.0))


def _mean_around(pixels: Array, window: int) -> Array:
    """The mean of the square around each place, as far as it lies in the image."""
    for axis in (0, 1):
        length = pixels.shape[axis]
        sums = np.cumsum(np.pad(pixels, [(1, 0), (0, 0)][:: 1 - 2 * axis]), axis, np.float64)
        low, high = np.maximum(np.arange(length) - window, 0), np.minimum(np.arange(length) + window + 1, length)
        pixels = (sums.take(high, axis) - sums.take(low, axis)) / np.expand_dims(high - low, 1 - axis)
    return pixels


def _halved(pixels: Array) -> Array:
    """The means of squares of 2 x 2 pixels."""
    height, width = pixels.shape[0] // 2, pixels.shape[1] // 2
    return np.asarray(pixels[: 2 * height, : 2 * width].reshape(height, 2, width, 2).mean((1, 3)))


def steepness(pixels: Array) -> Array:
    """The length of an image's gradient."""
    return np.asarray(np.hypot(*slopes(pixels)))


def slopes(pixels: Array) -> tuple[Array, Array]:
    """An image's gradient, down and across; along an axis of a single pixel, as of a strip, nothing changes."""
    down, across = (
        np.gradient(pixels, axis=axis) if pixels.shape[axis] > 1 else np.zeros_like(pixels) for axis in (0, 1)
    )
    return down, across


def normalized(pixels: Array, weight: Array) -> Array:
    """An image with mean 0 and variance 1 under weights of 0 and 1."""
    total = max(float(weight.sum()), 1.0)
    centred = pixels - (pixels * weight).sum() / total
    return np.asarray(centred / max(float(np.sqrt((centred**2 * weight).sum() / total)), 1.0))
