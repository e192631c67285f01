"""Processed images back to pictures: what an engine that processes images itself is given.

A picture made here has the size that the processor chose, so processing it again changes nothing: such an engine sees
the same pixels as the trainer.
"""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from PIL import Image

from codev_train.tokens import PixelBlock


def to_picture(block: PixelBlock, processor: Any) -> Image.Image:
    """Undo the cutting into patches and the normalisation of an image processor of the Qwen-VL family.

    Args:
        block: The processed image.
        processor: What processed it.

    Returns:
        The RGB picture after resizing, exactly: its processed form is `block`.
    """
    merge, patch = processor.merge_size, processor.patch_size
    _, height, width = block.grid
    # Frames, then 2 x 2 (merge x merge) neighbours together, each patch channel by channel; the frames are copies.
    patches = block.values.float().cpu().numpy()
    patches = patches.reshape(
        -1, height // merge, width // merge, merge, merge, 3, processor.temporal_patch_size, patch**2
    )
    first = patches[0, ..., 0, :].reshape(height // merge, width // merge, merge, merge, 3, patch, patch)
    pixels = first.transpose(0, 2, 5, 1, 3, 6, 4).reshape(height * patch, width * patch, 3)
    pixels = (pixels * np.array(processor.image_std) + np.array(processor.image_mean)) / processor.rescale_factor
    return Image.fromarray(pixels.round().clip(0, 255).astype(np.uint8))


def to_data_url(picture: Image.Image) -> str:
    """Encode a picture without loss, to be sent in a request."""
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", compress_level=1)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
