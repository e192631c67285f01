"""Processed images back to RGB images, for engines that process images themselves.

An image made here has the size that the image processor chose, so an engine that does not resize it (`do_resize` false)
sees the same pixels as the trainer. Resizing it again would change those images alone whose sides cannot both be
rounded within the processor's limits: a strip of 30 x 1 tokens, where 16 to 25 are wanted, becomes one of 27 x 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image

from codev_agents.rollout.tokens import PixelBlock


def to_image(block: PixelBlock, image_processor: Any) -> Image.Image:
    """Undo the normalisation and the cutting into patches of an image processor of the Qwen-VL family.

    Args:
        block: The processed image.
        image_processor: The image processor that made it.

    Returns:
        The RGB image after resizing, exactly: its processed form is `block`.

    Raises:
        ValueError: The block holds tiles.
    """
    if block.grid is None:
        raise ValueError("tiles and their thumbnail are not parts of one image: they cannot be put together again")
    merge, patch = image_processor.merge_size, image_processor.patch_size
    _, height, width = block.grid
    # Frames, then 2 x 2 (merge x merge) neighbours together, each patch channel by channel; the frames are copies.
    patches = block.values.float().cpu().numpy()
    patches = patches.reshape(
        -1, height // merge, width // merge, merge, merge, 3, image_processor.temporal_patch_size, patch**2
    )
    first = patches[0, ..., 0, :].reshape(height // merge, width // merge, merge, merge, 3, patch, patch)
    pixels = first.transpose(0, 2, 5, 1, 3, 6, 4).reshape(height * patch, width * patch, 3)
    pixels = (
        pixels * np.array(image_processor.image_std) + np.array(image_processor.image_mean)
    ) / image_processor.rescale_factor
    return Image.fromarray(pixels.round().clip(0, 255).astype(np.uint8))
