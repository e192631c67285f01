"""Pictures as data sets hold them, checked and turned into RGB: the one place that decodes images of tasks."""

from __future__ import annotations

import functools
import io
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from PIL import ExifTags, Image

from codev_env.errors import ConfigError, TaskError, unknown
from codev_env.types import Box

Frame = Literal["stored", "shown"]
"""What the boxes of a data set count in: the pixels as the file stores them, or the upright picture."""

Small = Literal["upscale", "raise", "keep"]
"""What to do with pictures that are too small."""

# Without the formats that run another program or execute what they hold (EPS, PDF, WMF).
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "MPO", "AVIF")
_TRANSPOSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_INVERSE = {**{key: key for key in _TRANSPOSE}, 6: 8, 8: 6}
_EDGE = 1.0  # pixels that a box may stand out of its picture by rounding
# What Pillow raises for damaged files, with its warnings, which some people turn into errors.
_BROKEN = (OSError, SyntaxError, ValueError, EOFError, struct.error, OverflowError, MemoryError, Warning)


@dataclass(frozen=True)
class ImageRules:
    """What pictures a task set accepts, and what is done to them.

    Attributes:
        min_side: Pixels that the shorter side must have. 28 is what one visual token of Qwen2.5-VL covers.
        small: A picture below `min_side`: `"upscale"` its shorter side to `min_side` (as the released CodeV sandbox
            does; its boxes follow, and `meta["resized"]` tells), `"raise"`, or `"keep"` it as it is.
        max_aspect: The longer side over the shorter one, at most.
        max_pixels: Pixels of a decoded picture, at most; read off the header, before anything is unpacked. The default
            is where Pillow starts to warn of decompression bombs; above twice that Pillow itself refuses.
        orient: Turn a picture as its EXIF tag says. Boxes follow.
    """

    min_side: int = 28
    small: Small = "upscale"
    max_aspect: float = 100.0
    max_pixels: int = 89_478_485
    orient: bool = True

    def __post_init__(self) -> None:
        if self.small not in get_args(Small):
            raise ConfigError(f"image rule 'small' is {self.small!r}; it must be one of {', '.join(get_args(Small))}.")
        for name, least in (("min_side", 1), ("max_aspect", 1), ("max_pixels", 1)):
            if not is_number(getattr(self, name)) or getattr(self, name) < least:
                raise ConfigError(
                    f"image rule {name!r} is {getattr(self, name)!r}; it must be a number of at least {least}."
                )


Rules = ImageRules | Mapping[str, Any] | None
"""How image rules may be given: as such, as a mapping of names to values, or `None` for the defaults."""


def image_rules(given: Rules) -> ImageRules:
    """Return image rules however they are given; raises `ConfigError` for a name or value that cannot be."""
    if isinstance(given, ImageRules):
        return given
    names = [entry.name for entry in fields(ImageRules)]
    for name in given or {}:
        if name not in names:
            raise unknown("image rule", name, names)
    return ImageRules(**(given or {}))


@dataclass(frozen=True)
class DecodedImage:
    """A decoded picture and how it differs from what the file stores.

    Attributes:
        image: The RGB image.
        stored: Width and height in the file, before turning and scaling.
        orientation: The EXIF orientation that was applied, 1 to 8; 1 for none.
    """

    image: Image.Image
    stored: tuple[int, int]
    orientation: int = 1

    @property
    def upright(self) -> tuple[int, int]:
        """Width and height after turning, before scaling."""
        width, height = self.stored
        return (height, width) if self.orientation >= 5 else (width, height)

    @property
    def resized(self) -> dict[str, list[int]] | None:
        """Sizes before and after scaling, for a task's metadata; `None` if it was not scaled."""
        if self.image.size == self.upright:
            return None
        return {"from": list(self.upright), "to": list(self.image.size)}


def decode(data: bytes | Path, where: str, rules: ImageRules | None = None) -> DecodedImage:
    """Decode one picture to RGB.

    The first frame counts. EXIF orientation is applied. 16-bit grey is scaled to 8 bits over its full range.
    Transparency is laid over white, as Qwen's own preprocessing does. Palettes, grey, bilevel, CMYK and YCbCr are
    converted by Pillow. EPS and other formats that need another program are not opened.

    Args:
        data: The file's bytes, or its path.
        where: Names row and file in errors.
        rules: What is accepted; `None` for the defaults.

    Raises:
        TaskError: The picture is broken, too large, too small, too narrow, or of a kind that cannot be shown.
    """
    rules = rules or ImageRules()
    where = f"{where}: {data}" if isinstance(data, Path) else where
    try:
        with Image.open(io.BytesIO(data) if isinstance(data, bytes) else data, formats=_formats()) as image:
            _check_pixels(image.size, where, rules)
            before = _orientation(image)
            image.load()
            after = _orientation(image)
            # Pillow turns TIFF files while it loads them, and then takes the tag away.
            turned = before if after == 1 else 1
            tag = after if before == 1 else before
            pixels = _to_rgb(image, where)
    except FileNotFoundError as error:
        raise TaskError(f"{where}: the image is missing. Download it, or remove the row.") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise TaskError(f"{where}: the image would take too much memory ({error}). Remove or shrink it.") from error
    except TaskError:
        raise
    except _BROKEN as error:
        raise TaskError(
            f"{where}: the image is broken ({_first_line(error)}). Restore it or download it again, or remove the row."
        ) from error
    pixels, orientation = _turn(pixels, tag, turned, rules.orient)
    width, height = pixels.size
    stored = (height, width) if orientation >= 5 else (width, height)
    return DecodedImage(_sized(pixels, where, rules), stored, orientation)


def image_size(data: bytes | Path, where: str) -> tuple[int, int]:
    """Read width and height off a picture's header, as Pillow shows it without EXIF orientation.

    Raises:
        TaskError: No image of a known format.
    """
    try:
        with Image.open(io.BytesIO(data) if isinstance(data, bytes) else data, formats=_formats()) as image:
            return image.size
    except (Image.DecompressionBombError, Image.DecompressionBombWarning, *_BROKEN) as error:
        raise TaskError(
            f"{where}: is not an image that can be read ({_first_line(error)}). Restore it or download it again."
        ) from error


@functools.cache
def _formats() -> list[str]:
    Image.init()
    return [name for name in _FORMATS if name in Image.OPEN]


def _check_pixels(size: tuple[int, int], where: str, rules: ImageRules) -> None:
    width, height = size
    if width * height > rules.max_pixels:
        raise TaskError(
            f"{where}: the image has {width}x{height} pixels, more than the {rules.max_pixels:,} allowed. "
            "Shrink it, or raise max_pixels in ImageRules."
        )


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation, 1 where there is none or the tag makes no sense."""
    try:
        tag = image.getexif().get(ExifTags.Base.Orientation, 1)
    except (*_BROKEN, TypeError, KeyError, AttributeError):  # EXIF data of any kind of brokenness is no reason to stop
        return 1
    return tag if isinstance(tag, int) and 1 <= tag <= 8 else 1


def _turn(pixels: Image.Image, tag: int, turned: int, orient: bool) -> tuple[Image.Image, int]:
    """Turn a picture upright, or back to how it is stored; returns it with the orientation that is applied now."""
    if orient:
        return (pixels if turned != 1 or tag == 1 else pixels.transpose(_TRANSPOSE[tag])), tag
    return (pixels if turned == 1 else pixels.transpose(_TRANSPOSE[_INVERSE[turned]])), 1


def _to_rgb(image: Image.Image, where: str) -> Image.Image:
    """Convert any of Pillow's modes to RGB."""
    if image.mode.startswith("I"):
        return _from_16_bit(image, where)
    if image.mode == "F":
        raise TaskError(f"{where}: the image has floating point pixels, whose range is unknown. Save it with 8 bits.")
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        white = Image.new("RGBA", rgba.size, "white")
        return Image.alpha_composite(white, rgba).convert("RGB")
    # `convert` returns the opened file itself for RGB, and that must outlive its closing.
    return image.copy() if image.mode == "RGB" else image.convert("RGB")


def _from_16_bit(image: Image.Image, where: str) -> Image.Image:
    values = np.asarray(image).astype(np.int64)
    if values.min(initial=0) < 0 or values.max(initial=0) > 65535:
        raise TaskError(f"{where}: the image has values outside 0 to 65535. Save it with 8 or 16 bits.")
    return Image.fromarray(((values + 128) // 257).astype(np.uint8)).convert("RGB")


def _sized(pixels: Image.Image, where: str, rules: ImageRules) -> Image.Image:
    short, long = sorted(pixels.size)
    if short < 1 or long > rules.max_aspect * short:
        raise TaskError(
            f"{where}: the image is {pixels.width}x{pixels.height} pixels, narrower than 1:{rules.max_aspect:g}. "
            "Remove the row, or raise max_aspect in ImageRules."
        )
    if short >= rules.min_side or rules.small == "keep":
        return pixels
    if rules.small == "raise":
        raise TaskError(
            f"{where}: the image is {pixels.width}x{pixels.height} pixels; its shorter side must have at least "
            f"{rules.min_side}. Remove the row, or use small='upscale' in ImageRules."
        )
    factor = rules.min_side / short
    width, height = (max(rules.min_side, round(side * factor)) for side in pixels.size)
    return pixels.resize((width, height), Image.Resampling.BICUBIC)


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


# ---- boxes


def boxes_from(value: Any, where: str, *, form: Literal["xyxy", "xywh"] = "xyxy") -> tuple[tuple[float, ...], ...]:
    """Read boxes as data sets write them: one box, a list of boxes, or nothing; a box of zeros is nothing.

    Args:
        value: `None`, `[…4 numbers…]` or a list of those.
        where: Names row and file in errors.
        form: `"xyxy"` for `[x1, y1, x2, y2]`, `"xywh"` for `[x, y, width, height]`.

    Returns:
        Boxes `(x1, y1, x2, y2)` with `x1 < x2` and `y1 < y2`, as floats.

    Raises:
        TaskError: Anything else.
    """
    if value is None or (isinstance(value, Sequence) and not value):
        return ()
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise TaskError(f"{where}: the box is {brief(value)}; expected 4 numbers or a list of boxes.")
    entries = [value] if all(is_number(v) for v in value) else list(value)
    boxes = [_box(entry, where, form) for entry in entries if not _is_nothing(entry)]
    return tuple(boxes)


def _is_nothing(entry: Any) -> bool:
    return entry is None or (isinstance(entry, Sequence) and not isinstance(entry, str) and not any(entry))


def _box(entry: Any, where: str, form: str) -> tuple[float, float, float, float]:
    names = "[x, y, width, height]" if form == "xywh" else "[x1, y1, x2, y2]"
    if not isinstance(entry, Sequence) or len(entry) != 4 or not all(is_number(v) for v in entry):
        raise TaskError(f"{where}: a box is {brief(entry)}; expected {names} in pixels.")
    x1, y1, x2, y2 = (float(v) for v in entry)
    if form == "xywh":
        x2, y2 = x1 + x2, y1 + y2
    if x1 >= x2 or y1 >= y2:
        raise TaskError(f"{where}: the box {brief(entry)} ({names}) has no area. Correct or remove it.")
    return x1, y1, x2, y2


def place_boxes(
    boxes: Iterable[Sequence[float]], picture: DecodedImage, where: str, frame: Frame = "stored"
) -> tuple[Box, ...]:
    """Bring boxes to the pixels of a decoded picture.

    Args:
        boxes: Boxes `(x1, y1, x2, y2)` in pixels of `frame`.
        picture: The picture they belong to.
        where: Names row and file in errors.
        frame: `"stored"`: boxes count in pixels as the file stores them and turn with the picture; `"shown"`: they
            already count in the upright picture.

    Returns:
        Boxes in pixels of `picture.image`, rounded outwards and clipped to it.

    Raises:
        TaskError: A box stands out of the picture by more than a pixel.
    """
    width, height = picture.stored if frame == "stored" else picture.upright
    placed = []
    for box in boxes:
        check_inside(box, width, height, where)
        x1, y1, x2, y2 = box
        if frame == "stored":
            x1, y1, x2, y2 = oriented(box, width, height, picture.orientation)
        placed.append(_scaled((x1, y1, x2, y2), picture))
    return tuple(placed)


def check_inside(box: Sequence[float], width: int, height: int, where: str) -> None:
    """Raise `TaskError` if a box `(x1, y1, x2, y2)` stands out of a picture by more than a pixel."""
    x1, y1, x2, y2 = box
    if x1 < -_EDGE or y1 < -_EDGE or x2 > width + _EDGE or y2 > height + _EDGE or x1 >= width or y1 >= height:
        raise TaskError(
            f"{where}: the box [{', '.join(f'{v:g}' for v in box)}] ([x1, y1, x2, y2]) lies outside the image, which "
            f"is {width}x{height} pixels. "
            "Correct the box, or check that the image is the original one and not a resized copy."
        )


def _scaled(box: tuple[float, float, float, float], picture: DecodedImage) -> Box:
    (width, height), (upright_width, upright_height) = picture.image.size, picture.upright
    across, down = width / upright_width, height / upright_height
    x1, y1, x2, y2 = box[0] * across, box[1] * down, box[2] * across, box[3] * down
    return max(0, math.floor(x1)), max(0, math.floor(y1)), min(width, math.ceil(x2)), min(height, math.ceil(y2))


def oriented(box: Sequence[float], width: float, height: float, orientation: int) -> tuple[float, float, float, float]:
    """Turn a box as EXIF `orientation` (1 to 8) turns a stored picture of `width` x `height` pixels."""
    x1, y1, x2, y2 = box
    if orientation in (2, 3, 7, 8):
        x1, x2 = width - x2, width - x1
    if orientation in (3, 4, 6, 7):
        y1, y2 = height - y2, height - y1
    return (y1, x1, y2, x2) if orientation >= 5 else (x1, y1, x2, y2)


def is_number(value: Any) -> bool:
    """Tell whether a value is a finite number, not a truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def brief(value: Any) -> str:
    """Return a value's repr, cut to one short line."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
