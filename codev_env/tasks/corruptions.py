"""Natural corruptions at five severities (`corruption_kinds.CORRUPTIONS`), and what they do to target boxes.

The images are made by `nrtk-albumentations`, the maintained MIT fork of Albumentations (extra `corruptions`).
"""

from __future__ import annotations

import importlib
import importlib.util
import threading
from functools import lru_cache
from importlib import metadata
from typing import Any

import numpy as np
from PIL import Image

from codev_env.errors import ConfigError
from codev_env.geometry import outward
from codev_env.tasks.corruption_kinds import Corruption, Level, Pixels, get_corruption
from codev_env.types import Box

LIBRARY = "nrtk-albumentations"

REFERENCE_SIDE = 224
"""Lengths in pixels (radii, cells) hold for images whose shorter side has at least this many pixels."""

_INSTALL = "Install it with `pip install 'codev-env[corruptions]'`."
_SMALLEST = 32  # smaller images are padded: some operations need room around a pixel

_IMPORTING = threading.RLock()
"""Held while OpenCV is imported: other threads would see a partly initialised module."""


def check_library() -> str:
    """Return the version of the library that makes corruptions, without importing it.

    Raises:
        ConfigError: It is not installed, or OpenCV is not, which it needs.
    """
    try:
        version = metadata.version(LIBRARY)
    except metadata.PackageNotFoundError:
        raise ConfigError(
            f"corruptions need {LIBRARY}, which is not installed (Albumentations and AlbumentationsX, which share its "
            f"import name, are not used). {_INSTALL}"
        ) from None
    with _IMPORTING:
        if importlib.util.find_spec("cv2") is None:
            raise ConfigError(f"corruptions need OpenCV (cv2), which is not installed. {_INSTALL}")
    return version


@lru_cache(maxsize=1)
def _library() -> Any:
    """Import the library, which takes about two seconds."""
    with _IMPORTING:
        check_library()
        return importlib.import_module("albumentations")


def corrupt(image: Image.Image, name: str, severity: int, seed: np.random.SeedSequence) -> Image.Image:
    """Corrupt an image: a pure function of its arguments and of the library's version.

    Lengths in pixels are the same for all images whose shorter side is at least `REFERENCE_SIDE`, as a camera's are;
    they shrink with smaller images, down to half.

    Args:
        image: An RGB image of any size.
        name: One of `CORRUPTIONS`.
        severity: 1 to 5.
        seed: Decides all random values. With the same seed, severities share their pattern.

    Returns:
        A new RGB image of the same size.

    Raises:
        ConfigError: An unknown name or severity, or the library is missing.
    """
    entry = get_corruption(name, severity)
    level, scale = entry.levels[severity - 1], _scale(image.size)
    width, height = image.size
    pixels = np.asarray(image)
    short = max(0, _SMALLEST - height), max(0, _SMALLEST - width)
    if any(short):
        pixels = np.pad(pixels, ((0, short[0]), (0, short[1]), (0, 0)), mode="edge")
    if entry.tile is None:
        out = _run(entry, level, scale, pixels, seed)
    else:
        out = np.empty_like(pixels)
        for row, top in enumerate(range(0, pixels.shape[0], entry.tile)):
            for column, left in enumerate(range(0, pixels.shape[1], entry.tile)):
                part = np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, row, column))
                out[top : top + entry.tile, left : left + entry.tile] = _tile(
                    entry, level, scale, pixels, top, left, part
                )
    return Image.fromarray(np.ascontiguousarray(out[:height, :width]))


def widen(box: Box, size: tuple[int, int], name: str, severity: int) -> Box:
    """Grow a box so that it still holds content that a corruption moves out of it; others leave it unchanged.

    Args:
        box: (x1, y1, x2, y2) in pixels.
        size: (width, height) of the image.
        name: One of `CORRUPTIONS`.
        severity: 1 to 5.

    Raises:
        ConfigError: An unknown name or severity.
    """
    entry = get_corruption(name, severity)
    level = entry.levels[severity - 1]
    x1, y1, x2, y2 = (float(value) for value in box)
    if entry.zoom is not None:
        factor, (cx, cy) = entry.zoom(level), (size[0] / 2, size[1] / 2)
        x1, y1 = min(x1, cx + factor * (x1 - cx)) - 1, min(y1, cy + factor * (y1 - cy)) - 1
        x2, y2 = max(x2, cx + factor * (x2 - cx)) + 1, max(y2, cy + factor * (y2 - cy)) + 1
    if entry.shift is not None:
        reach = entry.shift(level, _scale(size))
        x1, y1, x2, y2 = x1 - reach, y1 - reach, x2 + reach, y2 + reach
    return outward((x1, y1, x2, y2), size)


def _scale(size: tuple[int, int]) -> float:
    return min(1.0, max(0.5, min(size) / REFERENCE_SIDE))


def _run(entry: Corruption, level: Level, scale: float, pixels: Pixels, seed: np.random.SeedSequence) -> Pixels:
    number = int(seed.generate_state(1, np.uint64)[0])
    for operation in entry.build(_library(), level, scale):
        operation.set_random_seed(number)
        pixels = operation(image=pixels)["image"]
    return pixels


def _tile(
    entry: Corruption, level: Level, scale: float, pixels: Pixels, top: int, left: int, seed: np.random.SeedSequence
) -> Pixels:
    """Corrupt the tile whose upper left corner is given."""
    tile, halo = entry.tile or 0, entry.halo
    bottom, right = min(top + tile, pixels.shape[0]), min(left + tile, pixels.shape[1])
    y, x = max(0, top - halo), max(0, left - halo)
    part = pixels[y : bottom + halo, x : right + halo]
    if entry.full_tiles:
        part = np.pad(part, ((0, tile - part.shape[0]), (0, tile - part.shape[1]), (0, 0)), mode="edge")
    done = _run(entry, level, scale, np.ascontiguousarray(part), seed)
    return done[top - y : bottom - y, left - x : right - x]
