"""Decoding: images in any form that data sets use, checked and converted to RGB."""

from __future__ import annotations

import functools
import io
import struct
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError
from PIL.TiffImagePlugin import TiffImageFile

from codev_env.errors import ConfigError, TaskError, first_line, unknown
from codev_env.tasks.readers.fields import is_number
from codev_env.transforms import IDENTITY, compose, inverse, transform_image
from codev_env.types import Task

Small = Literal["upscale", "raise", "keep"]
"""Treatment of images that are too small."""

# Without the formats that run another program or execute what they hold (EPS, PDF, WMF).
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "MPO", "AVIF")
EXIF_TRANSFORMS = {
    1: IDENTITY,
    2: "flip_horizontal",
    3: "rotate_180",
    4: "flip_vertical",
    5: "transpose",
    6: "rotate_270",
    7: "transverse",
    8: "rotate_90",
}
"""The transform that turns a stored image upright, by EXIF orientation."""

BROKEN = (OSError, SyntaxError, ValueError, EOFError, struct.error, OverflowError, MemoryError, Warning)
"""Raised by Pillow for damaged files; its warnings too, which users can turn into errors."""


@dataclass(frozen=True)
class ImageRules:
    """Which images a task set accepts, and how it changes them.

    Attributes:
        min_side: Pixels that the shorter side must have. One visual token of Qwen2.5-VL covers 28.
        small: For an image below `min_side`: `"upscale"` its shorter side to `min_side` as the released CodeV sandbox
            does (its boxes follow, and `meta["resized"]` has both sizes), `"raise"`, or `"keep"` it as it is.
        max_aspect: Largest ratio of the longer side to the shorter one.
        max_pixels: Largest number of pixels; checked in the header, before decoding. From the default on Pillow warns
            of decompression bombs; above twice that number it refuses.
        orient: Turn an image upright as its EXIF tag says. Boxes follow.
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
"""Image rules, a mapping of their names to values, or `None` for the defaults."""


def image_rules(given: Rules) -> ImageRules:
    """Return image rules from any of their forms; raises `ConfigError` for an unknown name or a bad value."""
    if isinstance(given, ImageRules):
        return given
    names = [entry.name for entry in fields(ImageRules)]
    for name in given or {}:
        if name not in names:
            raise unknown("image rule", name, names)
    return ImageRules(**(given or {}))


@dataclass(frozen=True)
class DecodedImage:
    """A decoded image, and how it differs from the stored one.

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
    """Decode one image to RGB.

    The first frame is used. EXIF orientation is applied. 16-bit grey is scaled to 8 bits over its full range.
    Transparent images are laid over white, as Qwen's own preprocessing does. Pillow converts palettes, grey, bilevel,
    CMYK and YCbCr. EPS and other formats that need another program are not opened.

    Args:
        data: The file's bytes, or its path.
        where: Names row and file in errors.
        rules: Which images are accepted; `None` for the defaults.

    Raises:
        TaskError: The image is broken, too large, too small, too narrow, or of an unsupported kind.
    """
    rules = rules or ImageRules()
    where = f"{where}: {data}" if isinstance(data, Path) else where
    try:
        with Image.open(io.BytesIO(data) if isinstance(data, bytes) else data, formats=_formats()) as image:
            _check_pixels(image.size, where, rules)
            before = exif_orientation(image)
            image.load()
            after = exif_orientation(image)
            # Pillow turns TIFF files while loading them and then removes the tag.
            turned = before if after == 1 else 1
            tag = after if before == 1 else before
            pixels = _to_rgb(image, where)
    except FileNotFoundError as error:
        raise TaskError(f"{where}: the image is missing. Download it, or remove the row.") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise TaskError(f"{where}: the image would take too much memory ({error}). Remove or shrink it.") from error
    except TaskError:
        raise
    except BROKEN as error:
        raise TaskError(
            f"{where}: the image is broken ({_reason(error)}). Restore it or download it again, or remove the row."
        ) from error
    pixels, orientation = _turn(pixels, tag, turned, rules.orient)
    pixels.info = {}  # an orientation that stayed would be applied again
    width, height = pixels.size
    stored = (height, width) if orientation >= 5 else (width, height)
    return DecodedImage(_sized(pixels, where, rules), stored, orientation)


def in_rgb(task: Task) -> Task:
    """Return a task whose images are RGB, converted as `decode` does; frames that are decoded when they are read are.

    Raises:
        TaskError: The pixels of an image have no known range.
    """
    images = task.images if isinstance(task.images, tuple | list) else ()
    if all(image.mode == "RGB" for image in images):
        return task
    where = f"task {task.task_id!r}"
    return replace(task, images=tuple(image if image.mode == "RGB" else _to_rgb(image, where) for image in images))


def image_size(data: bytes | Path, where: str, *, upright: bool = False) -> tuple[int, int]:
    """Read width and height from an image's header.

    Args:
        data: The encoded image or its path.
        where: Names row and file in errors.
        upright: Return the size after EXIF orientation instead of that before.

    Raises:
        TaskError: No image of a known format.
    """
    try:
        with Image.open(io.BytesIO(data) if isinstance(data, bytes) else data, formats=_formats()) as image:
            width, height = image.size
            if isinstance(image, TiffImageFile):  # its size may be the one after turning; the tags are the stored one
                width, height = image.tag_v2[ExifTags.Base.ImageWidth], image.tag_v2[ExifTags.Base.ImageLength]
            return (height, width) if upright and exif_orientation(image) >= 5 else (width, height)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning, *BROKEN) as error:
        raise TaskError(
            f"{where}: is not an image that can be read ({_reason(error)}). Restore it or download it again."
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


def exif_orientation(image: Image.Image) -> int:
    """Return the EXIF orientation; 1 where there is none or the tag is invalid."""
    try:
        tag = image.getexif().get(ExifTags.Base.Orientation, 1)
    except (*BROKEN, TypeError, KeyError, AttributeError):  # broken EXIF data is no reason to stop
        return 1
    return tag if isinstance(tag, int) and 1 <= tag <= 8 else 1


def _turn(pixels: Image.Image, tag: int, turned: int, orient: bool) -> tuple[Image.Image, int]:
    """Turn an image upright, or back to its stored form; returns it with the orientation that is now applied."""
    name = compose((inverse(EXIF_TRANSFORMS[turned]), EXIF_TRANSFORMS[tag] if orient else IDENTITY))
    return (pixels if name == IDENTITY else transform_image(pixels, name)), tag if orient else 1


def _to_rgb(image: Image.Image, where: str) -> Image.Image:
    """Convert any of Pillow's modes to RGB."""
    if image.mode.startswith("I"):
        return _from_integers(image, where)
    if image.mode == "F":
        raise TaskError(f"{where}: the image has floating point pixels, whose range is unknown. Save it with 8 bits.")
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        white = Image.new("RGBA", rgba.size, "white")
        return Image.alpha_composite(white, rgba).convert("RGB")
    # For RGB `convert` returns the opened file itself, which is closed afterwards.
    return image.copy() if image.mode == "RGB" else image.convert("RGB")


def _from_integers(image: Image.Image, where: str) -> Image.Image:
    """Scale 16 bits to 8. Values that have 32 bits for them and no need of more than 8 are taken as they are."""
    values = np.asarray(image).astype(np.int64)
    if values.min(initial=0) < 0 or values.max(initial=0) > 65535:
        raise TaskError(f"{where}: the image has values outside 0 to 65535. Save it with 8 or 16 bits.")
    # Older versions of Pillow give 16 bits of a PNG file this mode, too.
    if image.mode == "I" and image.format != "PNG" and values.max(initial=0) <= 255:
        return Image.fromarray(values.astype(np.uint8)).convert("RGB")
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


def _reason(error: BaseException) -> str:
    if isinstance(error, UnidentifiedImageError):  # its text has the address of an object
        return "no image of a known format"
    return first_line(error)
