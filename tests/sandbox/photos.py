"""Images for the tests of the sandbox."""

from __future__ import annotations

import numpy as np
from PIL import Image


def photo(width: int = 160, height: int = 120, seed: int = 0) -> Image.Image:
    """An image in which every region looks different."""
    rows, columns = np.mgrid[0:height, 0:width]
    noise = np.random.default_rng(seed).integers(0, 64, (height, width))
    return Image.fromarray(np.stack([rows % 256, columns % 256, noise + 96], axis=2).astype(np.uint8))
