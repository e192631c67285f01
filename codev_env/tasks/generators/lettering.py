"""Text in generated scenes: words as cached masks with exact boxes, in Pillow's built-in font."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont

from codev_env.tasks.generators.drawing import RGB
from codev_env.types import Box

# A pixel with less than an eighth of coverage is invisible and must not widen a word's box.
_VISIBLE = [0] * 32 + list(range(32, 256))


class Lettering(NamedTuple):
    """A rendered text.

    Attributes:
        mask: Its ink as an 8-bit coverage mask, trimmed: the mask's size is that of the ink's bounding box.
        left: Pixels from the pen's position to the left side of the ink.
        top: Pixels from the base line down to the top of the ink, so negative.
        advance: Pixels from the pen's position to the start of the next text.
    """

    mask: Image.Image
    left: int
    top: int
    advance: int


@lru_cache(maxsize=64)
def _font(size: int) -> ImageFont.FreeTypeFont:
    font = ImageFont.load_default(size)
    if not isinstance(font, ImageFont.FreeTypeFont):
        raise RuntimeError("this Pillow was built without FreeType; install one with it to generate scenes with text.")
    return font


@lru_cache(maxsize=32768)
def lettering(text: str, size: int) -> Lettering:
    """Render a text; treat the mask as read-only.

    Args:
        text: Printable ASCII, all that the font has.
        size: Font size in pixels.
    """
    font = _font(size)
    x1, y1, x2, y2 = (round(v) for v in font.getbbox(text, anchor="ls"))
    drawn = Image.new("L", (max(1, x2 - x1) + 2, max(1, y2 - y1) + 2), 0)
    ImageDraw.Draw(drawn).text((1 - x1, 1 - y1), text, fill=255, font=font, anchor="ls")
    drawn = drawn.point(_VISIBLE)
    ink = drawn.getbbox() or (0, 0, 1, 1)
    return Lettering(drawn.crop(ink), x1 - 1 + ink[0], y1 - 1 + ink[1], math.ceil(font.getlength(text)))


def write_text(image: Image.Image, text: str, size: int, pen: tuple[int, int], color: RGB) -> Box:
    """Write a text on an image, starting at a pen position on the base line.

    Returns:
        The box of its ink in pixels, exact.
    """
    word = lettering(text, size)
    x, y = pen[0] + word.left, pen[1] + word.top
    image.paste(color, (x, y, x + word.mask.width, y + word.mask.height), word.mask)
    return x, y, x + word.mask.width, y + word.mask.height


def write_centered(image: Image.Image, text: str, size: int, center: tuple[float, float], color: RGB) -> Box:
    """Write a text with the middle of its ink at a point; returns the box of its ink in pixels, exact."""
    word = lettering(text, size)
    x, y = round(center[0] - word.mask.width / 2), round(center[1] - word.mask.height / 2)
    return write_text(image, text, size, (x - word.left, y - word.top), color)
