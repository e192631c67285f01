"""Images that carry their own coordinates, and how to read those back from what a program made of them.

Coordinates are of pixel centres, as everywhere in this package: pixel (column 0, row 0) is at (0.5, 0.5).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from codev_env.provenance.kept import kept

Array = NDArray[np.floating]
Indices = NDArray[np.intp]
Pixels = NDArray[np.uint8]
Size = tuple[int, int]

AMPLITUDE, PERIOD = 32.0, 1.25
"""Of the phase code: a tripled contrast does not clip it; the period, in image lengths, leaves phases unique."""
_LEVELS = 253
"""Levels of red or green for the coarse coordinate: 0 (what padding leaves) and 255 (white) mean no pixel."""
MOST_IMAGES = _LEVELS // 2
"""Images that one code holds: each takes two levels of red or more."""
_TILE_BITS = 3
"""Tiles of 2^3 levels by 2^3 levels are lighter or darker in blue: a known difference that changes of colour change."""


class PixelCode:
    """Every pixel of every input image carries its own coordinates, in a code that is exact and smooth at once.

    Red rises with x and green with y, by one level every `step` pixels; blue holds the place within the step. So a
    pixel that was only moved shows its coordinates exactly, and one that was mixed with its neighbours, as by a resize,
    still shows them to within a step. Steps begin at other columns in each row, and at other rows in each column, so
    that their rounding averages out in a fit.

    Several images are side by side in x. Where they have more pixels than there are codes (about 2^24), blocks of
    `block` x `block` pixels share a code.

    Args:
        sizes: (width, height) of the images, at most `MOST_IMAGES`.

    Raises:
        ValueError: There are more images.
    """

    def __init__(self, sizes: tuple[Size, ...]) -> None:
        if len(sizes) > MOST_IMAGES:
            raise ValueError(f"{len(sizes)} images; the pixel code holds at most {MOST_IMAGES}.")
        self.sizes = sizes
        self.block = 1
        while True:
            blocks = [(-(-w // self.block), -(-h // self.block)) for w, h in sizes]
            step_x = max(-(-sum(w for w, _ in blocks) // (_LEVELS - len(sizes))), 1)
            while sum(-(-w // step_x) + 1 for w, _ in blocks) > _LEVELS:
                step_x += 1
            step_y = -(-max(h for _, h in blocks) // (_LEVELS - 1))
            if step_x * step_y <= 256:
                break
            self.block += 1
        self._step_x, self._step_y = step_x, step_y
        self.step = np.array([step_x, step_y]) * self.block
        self._places = step_x * step_y
        self._stretch = max(1, 128 // self._places)
        self.contrast = 255 - self._stretch * (self._places - 1)
        """Levels of blue between light and dark tiles."""
        self._starts = np.cumsum([1] + [-(-w // step_x) + 1 for w, _ in blocks])
        self.images = tuple(self._draw(i) for i in range(len(sizes)))

    def decode(self, pixels: Pixels) -> tuple[Indices, Array]:
        """Read pixels of shape (n, 3) that were moved, but not changed.

        Returns:
            The index of the input image, -1 for a pixel that codes none, shape (n,); and (x, y), the centre of the
            pixel it shows, shape (n, 2).
        """
        red, green, blue = pixels.T.astype(np.int32)
        place, rest = np.divmod(blue - self.contrast * self._tile(red, green), self._stretch)
        valid = (place >= 0) & (place < self._places) & (rest == 0) & (red > 0) & (green > 0)
        x, y = np.divmod(place, self._step_y)
        index = np.searchsorted(self._starts, red, side="right") - 1
        index = np.clip(index, 0, len(self.sizes) - 1)
        left = red - self._starts[index] - (x + self._early(y, self._step_x, self._step_y)) // self._step_x
        above = green - 1 - (y + self._early(x, self._step_y, self._step_x)) // self._step_y
        x, y = left * self._step_x + x, above * self._step_y + y
        limits = -(-np.array(self.sizes) // self.block)[index]
        valid &= (x >= 0) & (y >= 0) & (x < limits[:, 0]) & (y < limits[:, 1])
        return np.where(valid, index, -1), (np.stack([x, y], 1) + 0.5) * self.block

    def decode_smooth(self, pixels: Pixels) -> tuple[Indices, Array]:
        """Read pixels of shape (n, 3) that were mixed with their neighbours; returns what `decode` does, roughly."""
        red, green = pixels[:, 0].astype(float), pixels[:, 1].astype(float)
        index = np.searchsorted(self._starts - 0.5, red, side="right") - 1
        valid = (index >= 0) & (index < len(self.sizes)) & (green > 0.5)
        index = np.clip(index, 0, len(self.sizes) - 1)
        early_x = self._early(np.arange(self._step_y), self._step_x, self._step_y).mean()
        early_y = self._early(np.arange(self._step_x), self._step_y, self._step_x).mean()
        x = (red - self._starts[index]) * self._step_x + (self._step_x - 1) / 2 - early_x
        y = (green - 1) * self._step_y + (self._step_y - 1) / 2 - early_y
        return np.where(valid, index, -1), (np.stack([x, y], 1) + 0.5) * self.block

    def colours_kept(self, index: int, xy: Array, pixels: Pixels) -> bool:
        """Whether pixels that show the points (x, y) of an image still have the code's colours, by its tiles in blue.

        A changed contrast would make the red and green of one region those of another; it changes blue as well.

        Args:
            index: Of the image.
            xy: Shape (n, 2).
            pixels: Shape (n, 3).

        Returns:
            False also if too few points lie well inside light and dark tiles.
        """
        if self.contrast < 64:
            return False
        levels = xy / self.step + (self._starts[index], 1)
        tiles, inside = np.divmod(levels / 2**_TILE_BITS, 1)
        clear = (np.abs(inside - 0.5) < 0.3).all(-1)
        light = tiles.sum(-1) % 2 == 1
        blues = [pixels[clear & side, 2] for side in (~light, light)]
        if min(len(blue) for blue in blues) < 100:
            return False
        dark, bright = (float(blue.mean()) for blue in blues)
        middle = self._stretch * (self._places - 1) / 2
        noise = 2 * self._stretch * self._places / math.sqrt(12 * min(len(blue) for blue in blues))
        return abs(bright - dark - self.contrast) <= 2 + noise and abs(dark - middle) <= 2 + noise

    @staticmethod
    def _early(place: Any, step: int, others: int) -> Any:
        """By how many pixels a step begins earlier, at a place within the steps of the other axis."""
        return place * step // others

    @staticmethod
    def _tile(red: NDArray[Any], green: NDArray[Any]) -> NDArray[Any]:
        return (red ^ green) >> _TILE_BITS & 1

    def _draw(self, index: int) -> Image.Image:
        width, height = self.sizes[index]
        columns, rows = np.arange(width) // self.block, np.arange(height) // self.block
        x, y = columns % self._step_x, rows % self._step_y
        # Computed once for each place within a step: values that depend on one coordinate and on that place alone.
        early = [self._early(k, self._step_x, self._step_y) for k in range(self._step_y)]
        reds = np.stack([(columns + k) // self._step_x for k in early]) + self._starts[index]
        red = reds.astype(np.uint8)[y]
        early = [self._early(k, self._step_y, self._step_x) for k in range(self._step_x)]
        greens = np.stack([(rows + k) // self._step_y for k in early], 1) + 1
        green = greens.astype(np.uint8).take(x, 1)
        place = (np.arange(self._step_x)[None, :] * self._step_y + np.arange(self._step_y)[:, None]) * self._stretch
        blue = self._tile(red, green)
        blue *= np.uint8(self.contrast % 256)
        blue += place.astype(np.uint8).take(x, 1)[y]
        return Image.merge("RGB", [Image.fromarray(channel) for channel in (red, green, blue)])


@kept(lambda sizes: sum(width * height for width, height in sizes))
def pixel_code(sizes: tuple[Size, ...]) -> PixelCode:
    """The pixel code for input images of these (width, height); cached."""
    return PixelCode(sizes)


def phase_images(sizes: Sequence[Size], coded: int, axis: int) -> tuple[Image.Image, ...]:
    """The wave images of one input; the other inputs are flat, so that only this one is seen."""
    return tuple(
        phase_image(size, axis) if index == coded else Image.new("RGB", size, (128, 128, 128))
        for index, size in enumerate(sizes)
    )


@kept(lambda size, axis: size[0] * size[1])
def phase_image(size: Size, axis: int) -> Image.Image:
    """An image whose colours are three cosines of one coordinate, a third of a period apart (phase-shift profilometry).

    The coordinate survives what interpolates, blurs, or scales and offsets the colours.

    Args:
        size: (width, height).
        axis: 0 codes x, 1 codes y.
    """
    length = size[axis]
    phase = 2 * math.pi * (np.arange(length) + 0.5) / (PERIOD * length)
    waves = np.stack([_wave(phase - 2 * math.pi * k / 3) for k in range(3)], -1)
    line = waves[None, :] if axis == 0 else waves[:, None]
    # Dithered, so that rounding is noise that a fit averages out, not steps that a small crop shows one of.
    dither = np.random.default_rng(0).random((64, 64, 1), np.float32)
    tiles = np.tile(dither, (-(-size[1] // 64), -(-size[0] // 64), 1))[: size[1], : size[0]]
    return Image.fromarray((line + tiles).astype(np.uint8))


def _wave(phase: Array) -> NDArray[np.float32]:
    return (127.5 + AMPLITUDE * np.cos(phase)).astype(np.float32)


def decode_phase(waves: Pixels, length: int) -> tuple[Array, Array]:
    """Read three cosines, shape (n, 3): the coordinate in pixels and the amplitude in grey levels, each shape (n,)."""
    red, green, blue = waves.T.astype(np.float64)
    real, imaginary = red - (green + blue) / 2, (green - blue) * math.sqrt(3) / 2
    coordinate = (np.arctan2(imaginary, real) / (2 * math.pi)) % 1.0 * PERIOD * length
    return coordinate, np.hypot(real, imaginary) * 2 / 3
