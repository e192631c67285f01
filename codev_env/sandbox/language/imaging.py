"""Images that programs hand over: what counts as one, and the limits on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

from codev_env.sandbox.wire.limits import Limits

CONVERTERS: list[Callable[[Any], Image.Image | None]] = []
"""Functions of façades that make an image of an object of their library, or return `None` for any other object."""


_BRIGHTEST, _DEEPEST = 4095, 65535
"""Values that 8-bit pixels may reach by a program's arithmetic, and the largest one of 16 bits."""


class ResultError(ValueError):
    """An image that cannot be accepted; the message says why."""


def snapshot(image: Image.Image) -> Image.Image:
    """An image that keeps the present pixels; they are copied only if a program writes to its own image."""
    if image.readonly:  # its memory may belong to an array, which writes to it directly
        return image.copy()
    image.load()
    image.readonly = 1
    return image._new(image.im)


def is_image_array(thing: Any) -> bool:
    """Return whether this is an array that may be an image without a conversion."""
    return isinstance(thing, np.ndarray) and thing.dtype == np.uint8 and thing.ndim in (2, 3) and min(thing.shape) > 0


def to_image(thing: Any) -> Image.Image | None:
    """The image of an object that a program hands over: an image, an array or a figure; `None` for other objects.

    Raises:
        ResultError: An array whose shape or type is not that of an image.
    """
    if isinstance(thing, Image.Image):
        return thing
    if isinstance(thing, np.ndarray):
        return _from_array(thing)
    drawn = (draw(thing) for draw in CONVERTERS)
    return next((image for image in drawn if image is not None), None)


def to_rgb(image: Image.Image) -> Image.Image:
    """A copy of an image in RGB, of one with 16 bits too."""
    return (_from_array(np.asarray(image)) if image.mode.startswith("I") else image).convert("RGB")


def in_8_bits(array: np.ndarray) -> np.ndarray:
    """An array of pixels, scaled if they are whole numbers of 16 bits: Pillow would show all of them white."""
    wide = array.dtype.kind in "ui" and array.dtype.itemsize > 1 and array.size > 0
    return array / 257 + 0.5 if wide and _BRIGHTEST < array.max() <= _DEEPEST else array


def _from_array(array: np.ndarray) -> Image.Image:
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4)):
        raise ResultError(f"an array of shape {array.shape} is no image: (height, width) or (height, width, 3) is.")
    if array.dtype.kind not in "uifb":
        raise ResultError(f"an array of {array.dtype} is no image: convert it to uint8.")
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise ResultError("an array that holds NaN or infinity is no image.")
        array = array * 255 if array.size and array.max() <= 1.0 else array
    elif array.dtype.kind == "b":
        array = array.astype(np.uint8) * 255
    return Image.fromarray(np.ascontiguousarray(np.clip(in_8_bits(array), 0, 255).astype(np.uint8)))


def check_image(image: Image.Image, limits: Limits, what: str) -> None:
    """Raise `ResultError` for an image that is empty, has too many pixels, or is too long and narrow."""
    width, height = image.size
    if width < 1 or height < 1:
        raise ResultError(f"an image of {width}x{height} pixels cannot be {what}: check the crop box.")
    if width * height > limits.image_pixels:
        raise ResultError(
            f"an image of {width}x{height} pixels cannot be {what}: at most {limits.image_pixels} pixels are allowed."
        )
    if max(width, height) > limits.aspect * min(width, height) and what != "saved":
        raise ResultError(
            f"an image of {width}x{height} pixels cannot be {what}: "
            f"its sides may differ by a factor of {limits.aspect:g} at most."
        )
