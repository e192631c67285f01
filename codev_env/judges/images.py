"""Images in the form that a judge receives."""

from __future__ import annotations

import base64
import io

from PIL import Image

from codev_env.images import to_shown_array

LOSSLESS_PIXELS = 128 * 128
JPEG_QUALITY = 95


def as_given(image: Image.Image) -> Image.Image:
    """Return a task's image as programs get it: another mode than RGB, L and RGBA, as one of palettes, is converted."""
    if image.mode in ("RGB", "L", "RGBA"):
        return image
    return image.convert("RGBA" if image.mode.endswith(("A", "a")) else "RGB")


def data_url(image: Image.Image, side: int) -> str:
    """Encode an image as a data URL.

    It is enlarged as for the policy and shrunk to at most `side` pixels. Small images become PNG, others JPEG of high
    quality, which is smaller and faster to encode.
    """
    shown = Image.fromarray(to_shown_array(image))
    if max(shown.size) > side:
        shown.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    if shown.width * shown.height <= LOSSLESS_PIXELS:
        kind = "png"
        shown.save(buffer, "PNG", compress_level=1)
    else:
        kind = "jpeg"
        shown.save(buffer, "JPEG", quality=JPEG_QUALITY, subsampling=0)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"
