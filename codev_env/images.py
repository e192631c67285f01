"""Images as observations, fresh arrays large enough for a vision model, and as the bytes of files."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from codev_env.spaces import MAX_SIDE

MIN_SIDE = 28
"""The shorter side of a returned image is scaled up to this many pixels (one token of Qwen-VL models)."""


def to_array(image: Image.Image) -> NDArray[np.uint8]:
    """Return an image as a new, writable uint8 array of shape (height, width, 3)."""
    return np.array(image if image.mode == "RGB" else image.convert("RGB"), dtype=np.uint8)


def to_shown_array(image: Image.Image) -> NDArray[np.uint8]:
    """Return an image as an array, scaled up so that its shorter side has at least `MIN_SIDE` pixels."""
    shorter = min(image.size)
    if shorter < MIN_SIDE:
        width, height = (min(MAX_SIDE, round(side * MIN_SIDE / shorter)) for side in image.size)
        image = image.resize((width, height), Image.Resampling.BICUBIC)
    return to_array(image)


def encode_image(image: Image.Image, kind: str, **options: Any) -> bytes:
    """Return an image as the bytes of a file, e.g. "PNG", with options of Pillow's `save`.

    One image may be encoded in several threads at once; Pillow's `save` keeps its options in the image meanwhile.
    """
    file = io.BytesIO()
    image.copy().save(file, kind, **options)
    return file.getvalue()
