"""Backgrounds of the generated scenes: photographs from other packages, or procedural textures."""

from __future__ import annotations

import importlib.util
import logging
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image

from codev_env.tasks.generators.generator import pick

logger = logging.getLogger(__name__)

# Files that are part of the packages' wheels. They are opened by path: importing the packages takes a second, and
# their loaders can use the network.
_PHOTOS = {
    "skimage": {
        "data/astronaut.png": "train",
        "data/brick.png": "train",
        "data/chelsea.png": "test",
        "data/coffee.png": "train",
        "data/grass.png": "train",
        "data/gravel.png": "val",
        "data/hubble_deep_field.jpg": "train",
        "data/motorcycle_left.png": "test",
        "data/rocket.jpg": "train",
    },
    "sklearn": {"datasets/images/china.jpg": "test", "datasets/images/flower.jpg": "train"},
}
"""The files of each package, and the split whose scenes they are behind: no two splits share a photograph."""


@lru_cache(maxsize=4)
def photographs(split: str = "") -> tuple[Path, ...]:
    """Find the photographs that are part of scikit-image and scikit-learn (extra `photos`).

    Args:
        split: Only those of `"train"`, `"val"` or `"test"`; `""` for all.

    Returns:
        The files found, in a fixed order. Without any of all, one warning is logged and textures are used.
    """
    if split:
        return tuple(path for path in photographs() if _split_of(path) == split)
    found = []
    for package, names in _PHOTOS.items():
        spec = importlib.util.find_spec(package)
        folders = [Path(p) for p in (spec.submodule_search_locations or ())] if spec else []
        found += [folder / name for folder in folders for name in names if (folder / name).is_file()]
    if not found:
        logger.warning(
            "No photographs for the backgrounds of generated scenes: textures are used instead. "
            "Install them with `pip install 'codev-env[photos]'`, or set the scene option photo_share=0."
        )
    return tuple(found)


def _split_of(path: Path) -> str:
    return next(split for names in _PHOTOS.values() for name, split in names.items() if Path(name).name == path.name)


_SMOOTH = Image.Resampling.BICUBIC


def background(
    rng: np.random.Generator, size: tuple[int, int], photo_share: float, coarse: int = 1, split: str = ""
) -> tuple[Image.Image, str]:
    """Draw a background.

    Args:
        rng: Decides all random values.
        size: Width and height in pixels.
        photo_share: Probability of a photograph instead of a texture.
        coarse: Draw it this many times smaller and repeat its pixels: smooth enlargement of a photograph to 8K would
            take most of a scene's time and add no detail.
        split: Whose photographs; `""` for any.

    Returns:
        A new RGB image, and `"photo:<name>"` or `"texture"`.
    """
    if coarse > 1:
        small, name = background(rng, (-(-size[0] // coarse), -(-size[1] // coarse)), photo_share, split=split)
        return small.resize(size, Image.Resampling.NEAREST), name
    wants_photo = rng.random() < photo_share
    files = photographs(split) if wants_photo else ()
    if not files:
        return _texture(rng, size), "texture"
    path = pick(rng, files)
    return _cut(rng, _open(path), size), f"photo:{path.stem}"


@lru_cache(maxsize=16)
def _open(path: Path) -> Image.Image:
    with Image.open(path) as image:
        return image.convert("RGB")


def _cut(rng: np.random.Generator, photo: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Cut a part of the right aspect ratio from a photograph, mirrored or not, and enlarge it to the canvas."""
    largest = min(photo.width / size[0], photo.height / size[1])
    factor = largest * rng.uniform(0.7, 1.0)
    width, height = size[0] * factor, size[1] * factor
    x, y = rng.uniform(0, photo.width - width), rng.uniform(0, photo.height - height)
    if rng.random() < 0.5:
        photo = photo.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return photo.resize(size, _SMOOTH, box=(x, y, x + width, y + height))


def _texture(rng: np.random.Generator, size: tuple[int, int]) -> Image.Image:
    """Sum noise of several scales, as in clouds or stone, around a random colour."""
    small = (size[0] // 4, size[1] // 4)
    total = np.zeros((small[1], small[0], 3), np.float32) + rng.uniform(70, 180, 3).astype(np.float32)
    for scale, strength in ((160, 40), (48, 25), (12, 18), (2, 14)):
        shape = (max(2, small[1] // scale), max(2, small[0] // scale))
        grey = Image.fromarray(rng.normal(0, strength, shape).astype(np.float32))
        tint = rng.uniform(0.6, 1.0, 3).astype(np.float32)
        total += np.asarray(grey.resize(small, _SMOOTH))[..., None] * tint
    return Image.fromarray(np.clip(total, 0, 255).astype(np.uint8)).resize(size, _SMOOTH)
