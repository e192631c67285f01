"""Drawing helpers of the generated scenes: named shapes as cached sprites, bitmap glyphs, badges."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import cos, pi, sin

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

RGB = tuple[int, int, int]

# Glyphs are rows of dots, written here as one number per row, the leftmost dot being the highest bit.
DIGITS_3X5: dict[str, tuple[int, ...]] = {
    "0": (7, 5, 5, 5, 7),
    "1": (2, 6, 2, 2, 7),
    "2": (7, 1, 7, 4, 7),
    "3": (7, 1, 7, 1, 7),
    "4": (5, 5, 7, 1, 1),
    "5": (7, 4, 7, 1, 7),
    "6": (7, 4, 7, 5, 7),
    "7": (7, 1, 1, 1, 1),
    "8": (7, 5, 7, 5, 7),
    "9": (7, 5, 7, 1, 7),
}
"""Digits on 3 x 5 dots."""

GLYPHS_5X7: dict[str, tuple[int, ...]] = {
    "0": (14, 17, 19, 21, 25, 17, 14),
    "1": (4, 12, 4, 4, 4, 4, 14),
    "2": (14, 17, 1, 2, 4, 8, 31),
    "3": (31, 2, 4, 2, 1, 17, 14),
    "4": (2, 6, 10, 18, 31, 2, 2),
    "5": (31, 16, 30, 1, 1, 17, 14),
    "6": (6, 8, 16, 30, 17, 17, 14),
    "7": (31, 1, 2, 4, 8, 8, 8),
    "8": (14, 17, 17, 14, 17, 17, 14),
    "9": (14, 17, 17, 15, 1, 2, 12),
    "F": (31, 16, 16, 30, 16, 16, 16),
    "H": (17, 17, 17, 31, 17, 17, 17),
    "K": (17, 18, 20, 24, 20, 18, 17),
    "L": (16, 16, 16, 16, 16, 16, 31),
    "M": (17, 27, 21, 21, 17, 17, 17),
    "P": (30, 17, 17, 30, 16, 16, 16),
    "R": (30, 17, 17, 30, 20, 18, 17),
    "T": (31, 4, 4, 4, 4, 4, 4),
    "U": (17, 17, 17, 17, 17, 17, 14),
    "W": (17, 17, 17, 21, 21, 21, 10),
    "X": (17, 17, 10, 4, 10, 17, 17),
    "Z": (31, 1, 2, 4, 8, 16, 31),
}
"""Digits, and letters other than the option letters A to D, on 5 x 7 dots."""

GLYPH_SIZE = {"3x5": (3, 5), "5x7": (5, 7)}
_FONTS = {"3x5": DIGITS_3X5, "5x7": GLYPHS_5X7}


@lru_cache(maxsize=1)
def telling() -> str:
    """Return the glyphs of the 5x7 font that show which way is up: no glyph is one of them mirrored or upside down."""
    drawn = {glyph: dots(glyph, "5x7") for glyph in GLYPHS_5X7}
    turned = {np.asarray(t).tobytes() for d in drawn.values() for t in (d[::-1], d[:, ::-1], d[::-1, ::-1])}
    return "".join(glyph for glyph, dots in drawn.items() if dots.tobytes() not in turned)


def dots(glyph: str, font: str) -> NDArray[np.uint8]:
    """Return the dots of a glyph, 1 where it is white, rows first."""
    columns, _ = GLYPH_SIZE[font]
    rows = [[row >> (columns - 1 - x) & 1 for x in range(columns)] for row in _FONTS[font][glyph]]
    return np.array(rows, dtype=np.uint8)


@lru_cache(maxsize=512)
def badge(glyph: str, dot: int, font: str = "5x7") -> Image.Image:
    """Draw a glyph in white on a dark plate with a rim of one dot.

    Args:
        glyph: One character of the font.
        dot: Pixels per dot.
        font: `"3x5"` or `"5x7"`.

    Returns:
        An RGB image; treat it as read-only.
    """
    plate = np.pad(dots(glyph, font) * 235 + 20, 1, constant_values=20)
    grey = np.kron(plate, np.ones((dot, dot), dtype=np.uint8))
    return Image.fromarray(np.repeat(grey[..., None], 3, axis=2))


Points = list[tuple[float, float]]


def _star() -> Points:
    return [
        (0.5 + r * sin(k * pi / 5), 0.52 - r * cos(k * pi / 5))
        for k in range(10)
        for r in [0.5 if k % 2 == 0 else 0.21]
    ]


# Polygons on the unit square, y downwards.
_POLYGONS: dict[str, Points] = {
    "square": [(0.06, 0.06), (0.94, 0.06), (0.94, 0.94), (0.06, 0.94)],
    "triangle": [(0.5, 0), (1, 1), (0, 1)],
    "diamond": [(0.5, 0), (0.95, 0.5), (0.5, 1), (0.05, 0.5)],
    "star": _star(),
    "arrow": [(0, 0.3), (0.52, 0.3), (0.52, 0.05), (1, 0.5), (0.52, 0.95), (0.52, 0.7), (0, 0.7)],
    "house": [(0.5, 0), (1, 0.45), (0.88, 0.45), (0.88, 1), (0.12, 1), (0.12, 0.45), (0, 0.45)],
    "cross": [
        *[(0.33, 0), (0.67, 0), (0.67, 0.33), (1, 0.33), (1, 0.67), (0.67, 0.67)],
        *[(0.67, 1), (0.33, 1), (0.33, 0.67), (0, 0.67), (0, 0.33), (0.33, 0.33)],
    ],
}

Scale = Callable[..., list[float]]


def _circle(d: ImageDraw.ImageDraw, s: Scale) -> None:
    d.ellipse(s(0, 0, 1, 1), fill=255)


def _ring(d: ImageDraw.ImageDraw, s: Scale) -> None:
    d.ellipse(s(0, 0, 1, 1), fill=255)
    d.ellipse(s(0.24, 0.24, 0.76, 0.76), fill=0)


def _crescent(d: ImageDraw.ImageDraw, s: Scale) -> None:
    d.ellipse(s(0, 0, 1, 1), fill=255)
    d.ellipse(s(0.52, -0.02, 1.3, 0.76), fill=0)


def _heart(d: ImageDraw.ImageDraw, s: Scale) -> None:
    d.ellipse(s(0, 0.05, 0.53, 0.58), fill=255)
    d.ellipse(s(0.47, 0.05, 1, 0.58), fill=255)
    d.polygon(s(0.05, 0.45, 0.95, 0.45, 0.5, 1), fill=255)


def _mug(d: ImageDraw.ImageDraw, s: Scale) -> None:
    d.ellipse(s(0.5, 0.2, 1, 0.76), fill=255)
    d.ellipse(s(0.62, 0.34, 0.88, 0.62), fill=0)
    d.rounded_rectangle(s(0.02, 0.04, 0.74, 0.96), radius=s(0.1)[0], fill=255)


def _umbrella(d: ImageDraw.ImageDraw, s: Scale) -> None:
    d.pieslice(s(0, 0.02, 1, 1.1), 180, 360, fill=255)
    d.rectangle(s(0.44, 0.5, 0.56, 0.9), fill=255)
    d.arc(s(0.24, 0.74, 0.56, 1), 0, 180, fill=255, width=round(s(0.1)[0]))


def _fish(d: ImageDraw.ImageDraw, s: Scale) -> None:
    d.ellipse(s(0.22, 0.14, 1, 0.86), fill=255)
    d.polygon(s(0, 0.16, 0.4, 0.5, 0, 0.84), fill=255)


def _flag(d: ImageDraw.ImageDraw, s: Scale) -> None:
    d.rectangle(s(0.04, 0, 0.16, 1), fill=255)
    d.polygon(s(0.16, 0.03, 1, 0.03, 0.82, 0.33, 1, 0.64, 0.16, 0.64), fill=255)


def _bottle(d: ImageDraw.ImageDraw, s: Scale) -> None:
    d.rectangle(s(0.4, 0, 0.6, 0.4), fill=255)
    d.rounded_rectangle(s(0.22, 0.28, 0.78, 1), radius=s(0.14)[0], fill=255)


def _boat(d: ImageDraw.ImageDraw, s: Scale) -> None:
    d.polygon(s(0, 0.68, 1, 0.68, 0.82, 0.98, 0.18, 0.98), fill=255)
    d.polygon(s(0.46, 0, 0.46, 0.62, 0.04, 0.62), fill=255)
    d.polygon(s(0.52, 0.08, 0.92, 0.62, 0.52, 0.62), fill=255)
    d.rectangle(s(0.46, 0, 0.52, 0.7), fill=255)


def _car(d: ImageDraw.ImageDraw, s: Scale) -> None:
    d.polygon(s(0.22, 0.4, 0.34, 0.14, 0.7, 0.14, 0.84, 0.4), fill=255)
    d.rounded_rectangle(s(0, 0.36, 1, 0.74), radius=s(0.08)[0], fill=255)
    d.ellipse(s(0.12, 0.56, 0.4, 0.86), fill=255)
    d.ellipse(s(0.6, 0.56, 0.88, 0.86), fill=255)


_DRAWN: dict[str, Callable[[ImageDraw.ImageDraw, Scale], None]] = {
    "circle": _circle,
    "ring": _ring,
    "crescent": _crescent,
    "heart": _heart,
    "mug": _mug,
    "umbrella": _umbrella,
    "fish": _fish,
    "flag": _flag,
    "bottle": _bottle,
    "boat": _boat,
    "car": _car,
}

SHAPES: tuple[str, ...] = (*_POLYGONS, *_DRAWN)
"""The names of all shapes."""

_SUPERSAMPLING = 4


@lru_cache(maxsize=4096)
def mask(shape: str, side: int) -> Image.Image:
    """Draw a shape as an 8-bit coverage mask.

    Args:
        shape: One of `SHAPES`.
        side: Side in pixels of the square the shape is drawn into.

    Returns:
        The mask, trimmed to the shape: its size is that of the shape's bounding box. Treat it as read-only.
    """
    full = side * _SUPERSAMPLING

    def scale(*values: float) -> list[float]:
        return [v * (full - 1) for v in values]

    drawn = Image.new("L", (full, full), 0)
    canvas = ImageDraw.Draw(drawn)
    if shape in _POLYGONS:
        canvas.polygon([(x * (full - 1), y * (full - 1)) for x, y in _POLYGONS[shape]], fill=255)
    else:
        _DRAWN[shape](canvas, scale)
    # A pixel with less than an eighth of coverage is invisible and must not widen the bounding box.
    small = drawn.resize((side, side), Image.Resampling.BOX).point([0] * 32 + list(range(32, 256)))
    return small.crop(small.getbbox())


@lru_cache(maxsize=4096)
def sticker(shape: str, side: int, color: RGB) -> Image.Image:
    """Draw a shape as a shaded object with a dark contour, visible on any background.

    Args:
        shape: One of `SHAPES`.
        side: Side in pixels of the square the shape is drawn into.
        color: Its colour.

    Returns:
        An RGBA image, trimmed to the object. Treat it as read-only.
    """
    outer = mask(shape, side)
    contour = 3 if side < 64 else 5
    inner = Image.new("L", (outer.width + 2 * contour, outer.height + 2 * contour), 0)
    inner.paste(outer, (contour, contour))
    inner = inner.filter(ImageFilter.MinFilter(contour)).crop(
        (contour, contour, contour + outer.width, contour + outer.height)
    )
    light = np.linspace(1.08, 0.82, outer.height, dtype=np.float32)[:, None, None]
    body = np.clip(np.array(color, np.float32) * light, 0, 255)
    weight = np.asarray(inner, np.float32)[..., None] / 255
    rim = np.array(color, np.float32) * 0.25 if sum(color) > 150 else np.full(3, 140, np.float32)
    rgb = body * weight + rim * (1 - weight)
    rgba = np.dstack([np.broadcast_to(rgb, (*weight.shape[:2], 3)).astype(np.uint8), np.asarray(outer)])
    return Image.fromarray(rgba)
