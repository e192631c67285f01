"""Converts observations to chat messages, and restores stop strings that servers cut off."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from codev_env.errors import ConfigError
from codev_env.images import encode_image
from codev_env.types import IMAGE_PLACEHOLDER


def content_parts(text: str, images: Sequence[Any]) -> list[dict[str, Any]]:
    """Turn an observation into the content of a message of the OpenAI API: text, with each image at its placeholder.

    Args:
        text: Holds one `IMAGE_PLACEHOLDER` per image.
        images: uint8 arrays of shape (height, width, 3), or PIL images.

    Raises:
        ConfigError: If placeholders and images do not match.
    """
    return [
        {"type": "text", "text": piece}
        if isinstance(piece, str)
        else {"type": "image_url", "image_url": {"url": png_data_url(piece)}}
        for piece in _pieces(text, images)
    ]


def image_blocks(text: str, images: Sequence[Any]) -> list[dict[str, Any]]:
    """Turn an observation into the content of a message for a processor: as `content_parts`, but with PIL images."""
    return [
        {"type": "text", "text": piece} if isinstance(piece, str) else {"type": "image", "image": to_pil(piece)}
        for piece in _pieces(text, images)
    ]


def to_pil(image: Any) -> Image.Image:
    """Return an array of shape (height, width, 3), or a PIL image, as a PIL image."""
    return image if isinstance(image, Image.Image) else Image.fromarray(np.asarray(image))


def png_data_url(image: Any) -> str:
    """Encode an image as a `data:image/png;base64,...` URL, without loss."""
    data = encode_image(to_pil(image), "PNG", compress_level=1)
    return "data:image/png;base64," + base64.b64encode(data).decode("ascii")


def from_data_url(url: str) -> Image.Image:
    """Decode a URL that `png_data_url` returned."""
    image = Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))
    image.load()
    return image


def restore_stop(text: str, stop: Sequence[str], reported: object = None) -> str:
    """Restore the stop string that the server cut off.

    Args:
        text: The model's text.
        stop: The stop strings that were sent.
        reported: The stop string that ended the text, if the server reports it (vLLM's `stop_reason`).

    Returns:
        The text with the reported stop string, or with the end tag in `stop` whose start tag is still open: one that
        the model only thought about does not count if another was opened since.
    """
    if isinstance(reported, str) and reported in stop:
        return text if text.endswith(reported) else text + reported
    for said in (text.rpartition("</think>")[2], text):
        for end in stop:
            tag = re.fullmatch(r"</(\w+)>", end)
            if tag and said.rfind(f"<{tag[1]}>") > said.rfind(end):
                return text + end
    return text


def _pieces(text: str, images: Sequence[Any]) -> list[Any]:
    """Return texts and images in order; empty texts are left out."""
    first, *rest = text.split(IMAGE_PLACEHOLDER)
    if len(rest) != len(images):
        raise ConfigError(f"the observation has {len(rest)} placeholders {IMAGE_PLACEHOLDER} and {len(images)} images.")
    pieces: list[Any] = [first]
    for image, piece in zip(images, rest, strict=True):
        pieces += [image, piece]
    return [piece for piece in pieces if not isinstance(piece, str) or piece]
