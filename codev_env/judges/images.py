"""Pictures as a judge is sent them."""

from __future__ import annotations

import base64
import io

from PIL import Image

from codev_env.images import to_shown_array

LOSSLESS_PIXELS = 128 * 128
JPEG_QUALITY = 95


def data_url(image: Image.Image, side: int) -> str:
    """Encode a picture as a data URL.

    It is enlarged as the policy is shown it, shrunk to at most `side` pixels, and sent as PNG where it is small, else
    as JPEG of high quality, which is smaller and made sooner.
    """
    picture = Image.fromarray(to_shown_array(image))
    if max(picture.size) > side:
        picture.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    if picture.width * picture.height <= LOSSLESS_PIXELS:
        kind = "png"
        picture.save(buffer, "PNG", compress_level=1)
    else:
        kind = "jpeg"
        picture.save(buffer, "JPEG", quality=JPEG_QUALITY, subsampling=0)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"
