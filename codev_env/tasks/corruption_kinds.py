"""The kinds of natural corruptions: the operations of the library that make each one, and their five severities.

The kinds are those of ImageNet-C (arXiv 1903.12261). Severities follow it where the library's operation is the same
one, and are our own elsewhere: scores are comparable between runs of this suite, not with scores on ImageNet-C.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from codev_env.errors import ConfigError, unknown

Pixels = NDArray[np.uint8]
Level = tuple[float, ...]
Group = Literal["noise", "blur", "weather", "digital"]

SEVERITIES = (1, 2, 3, 4, 5)

_TILE, _DROPS = 2048, 384


@dataclass(frozen=True)
class Corruption:
    """One kind of corruption.

    Attributes:
        name: As in ImageNet-C, shortened where that is unambiguous (`jpeg` is `jpeg_compression`).
        group: `"noise"`, `"blur"`, `"weather"` or `"digital"`.
        levels: The library's parameters at severities 1 to 5, as `build` takes them.
        build: Takes the library, a level and the factor for lengths in pixels; returns the operations in order.
        tile: Side of the square tiles that are processed one by one, to bound the memory; `None` for the whole image.
        halo: Width in pixels of the border around a tile that its result depends on.
        full_tiles: Pad the tiles at the right and lower edge, because the library puts as many drops into an
            image as it has rows: only in tiles of one size is the density the same for all images.
        shift: Takes a level and the factor for lengths; the largest distance in pixels that content moves (elastic: six
            standard deviations).
        zoom: Takes a level; the largest factor by which content moves away from the centre.
    """

    name: str
    group: Group
    levels: tuple[Level, Level, Level, Level, Level]
    build: Callable[[Any, Level, float], list[Any]]
    tile: int | None = None
    halo: int = 0
    full_tiles: bool = False
    shift: Callable[[Level, float], float] | None = None
    zoom: Callable[[Level], float] | None = None

    @property
    def moves_pixels(self) -> bool:
        """Whether content moves by more than 2 pixels at some severity, out of exact target boxes."""
        return self.shift is not None or self.zoom is not None


def _levels(*values: float | Level) -> tuple[Level, Level, Level, Level, Level]:
    a, b, c, d, e = (value if isinstance(value, tuple) else (value,) for value in values)
    return a, b, c, d, e


def _fixed(value: float) -> tuple[float, float]:
    """Return the range of a single value."""
    return value, value


def _odd(value: float) -> int:
    """Return the odd integer nearest to a length, at least 3."""
    return max(3, 2 * round((value - 1) / 2) + 1)


def _gaussian_noise(lib: Any, level: Level, scale: float) -> list[Any]:
    return [lib.GaussNoise(std_range=_fixed(level[0]), mean_range=(0, 0), per_channel=True, p=1)]


def _shot_noise(lib: Any, level: Level, scale: float) -> list[Any]:
    return [lib.ShotNoise(scale_range=_fixed(level[0]), p=1)]


def _impulse_noise(lib: Any, level: Level, scale: float) -> list[Any]:
    return [lib.SaltAndPepper(amount=_fixed(level[0]), salt_vs_pepper=_fixed(0.5), p=1)]


def _speckle_noise(lib: Any, level: Level, scale: float) -> list[Any]:
    # Uniform factors with the standard deviation that ImageNet-C's normal ones have.
    half = level[0] * math.sqrt(3)
    return [lib.MultiplicativeNoise(multiplier=(max(0, 1 - half), 1 + half), per_channel=True, elementwise=True, p=1)]


def _gaussian_blur(lib: Any, level: Level, scale: float) -> list[Any]:
    return [lib.GaussianBlur(sigma_limit=_fixed(level[0] * scale), blur_limit=0, p=1)]


def _defocus_blur(lib: Any, level: Level, scale: float) -> list[Any]:
    radius = max(1, round(level[0] * scale))
    return [lib.Defocus(radius=(radius, radius), alias_blur=_fixed(level[1]), p=1)]


def _motion_blur(lib: Any, level: Level, scale: float) -> list[Any]:
    length = _odd(level[0] * scale)
    return [lib.MotionBlur(blur_limit=(length, length), allow_shifted=False, direction_range=(0, 0), p=1)]


def _zoom_blur(lib: Any, level: Level, scale: float) -> list[Any]:
    return [lib.ZoomBlur(max_factor=_fixed(level[0]), step_factor=_fixed(level[1]), p=1)]


def _glass_blur(lib: Any, level: Level, scale: float) -> list[Any]:
    sigma, delta, iterations = level
    delta = max(1, round(delta * scale))
    return [lib.GlassBlur(sigma=sigma * scale, max_delta=delta, iterations=int(iterations), mode="fast", p=1)]


def _glass_reach(level: Level, scale: float) -> float:
    # A pixel changes places once per iteration; then two standard deviations of the blur.
    sigma, delta, iterations = level
    return max(1, round(delta * scale)) * iterations + 2 * sigma * scale


def _fog(lib: Any, level: Level, scale: float) -> list[Any]:
    return [_Fog(lib, level[0])]


class _Fog:
    """ImageNet-C's `(x + c * plasma) / (1 + c)`, since the library's own fog blurs in proportion to the image's size.

    The library makes the plasma, at 2048 pixels at most: it is smooth, and at 8K takes two gigabytes otherwise.
    """

    def __init__(self, lib: Any, strength: float) -> None:
        self._strength = strength
        self._plasma = lib.PlasmaBrightnessContrast(brightness_range=(1, 1), contrast_range=(0, 0), roughness=0.4, p=1)
        self.set_random_seed = self._plasma.set_random_seed

    def __call__(self, *, image: Pixels) -> dict[str, Pixels]:
        height, width = image.shape[:2]
        shrink = max(1.0, max(height, width) / _TILE)
        small = np.zeros((math.ceil(height / shrink), math.ceil(width / shrink), 3), np.float32)
        plasma = Image.fromarray(np.ascontiguousarray(self._plasma(image=small)["image"][..., 0]))
        fog = np.asarray(plasma.resize((width, height), Image.Resampling.BILINEAR))[..., None]
        out = np.empty_like(image)
        for top in range(0, height, 512):
            rows = slice(top, top + 512)
            mixed = (image[rows] + np.float32(255 * self._strength) * fog[rows]) / np.float32(1 + self._strength)
            out[rows] = np.clip(np.rint(mixed), 0, 255)
        return {"image": out}


def _snow(lib: Any, level: Level, scale: float) -> list[Any]:
    # Short white strokes: the library's own snow either overflows the hue or bleaches the colours that are asked about.
    return [_drops(lib, level[0], 2, level[1], 1.0, (255, 255, 255))]


def _rain(lib: Any, level: Level, scale: float) -> list[Any]:
    kind, length, width, brightness = level
    return [_drops(lib, kind, round(length * scale), width, brightness, (200, 200, 200))]


def _drops(lib: Any, kind: float, length: int, width: float, brightness: float, color: tuple[int, int, int]) -> Any:
    return lib.RandomRain(
        rain_type=("drizzle", "default", "heavy", "torrential")[int(kind)], slant_range=_fixed(5), drop_length=length,
        drop_width=int(width), drop_color=color, blur_value=3, brightness_coefficient=brightness, p=1,
    )  # fmt: skip


def _spatter(lib: Any, level: Level, scale: float) -> list[Any]:
    sigma, threshold, intensity = level
    return [
        lib.Spatter(
            mean=_fixed(0.65), std=_fixed(0.3), gauss_sigma=_fixed(sigma), cutout_threshold=_fixed(threshold),
            intensity=_fixed(intensity), mode="rain", p=1,
        )
    ]  # fmt: skip


def _brightness(lib: Any, level: Level, scale: float) -> list[Any]:
    return [lib.RandomBrightnessContrast(brightness_limit=_fixed(level[0]), contrast_limit=(0, 0), p=1)]


def _jitter(lib: Any, **factors: float) -> list[Any]:
    ranges = {name: _fixed(factors.get(name, 1.0)) for name in ("brightness", "contrast", "saturation")}
    return [lib.ColorJitter(**ranges, hue=(0, 0), p=1)]


def _contrast(lib: Any, level: Level, scale: float) -> list[Any]:
    return _jitter(lib, contrast=level[0])


def _saturate(lib: Any, level: Level, scale: float) -> list[Any]:
    return _jitter(lib, saturation=level[0])


def _elastic(lib: Any, level: Level, scale: float) -> list[Any]:
    # The library smooths uniform noise, whose spread is 1/sqrt(3), with a Gaussian; solved for the shift's spread.
    spread, sigma = level[0] * scale, level[1] * scale
    alpha = spread * math.sqrt(3) * 2 * math.sqrt(math.pi) * sigma
    return [lib.ElasticTransform(alpha=alpha, sigma=sigma, border_mode=2, p=1)]


def _pixelate(lib: Any, level: Level, scale: float) -> list[Any]:
    cell = 1 + (1 / level[0] - 1) * scale
    area, nearest = 3, 6  # OpenCV's INTER_AREA and INTER_NEAREST_EXACT
    return [
        lib.Downscale(scale_range=_fixed(1 / cell), interpolation_pair={"downscale": area, "upscale": nearest}, p=1)
    ]


def _jpeg(lib: Any, level: Level, scale: float) -> list[Any]:
    return [lib.ImageCompression(quality_range=(int(level[0]), int(level[0])), compression_type="jpeg", p=1)]


CORRUPTIONS: dict[str, Corruption] = {
    entry.name: entry
    for entry in (
        Corruption("gaussian_noise", "noise", _levels(0.08, 0.12, 0.18, 0.26, 0.38), _gaussian_noise, tile=_TILE),
        Corruption("shot_noise", "noise", _levels(1 / 60, 1 / 25, 1 / 12, 1 / 5, 1 / 3), _shot_noise, tile=_TILE),
        Corruption("impulse_noise", "noise", _levels(0.03, 0.06, 0.09, 0.17, 0.27), _impulse_noise, tile=_TILE),
        Corruption("speckle_noise", "noise", _levels(0.15, 0.2, 0.35, 0.45, 0.6), _speckle_noise, tile=_TILE),
        Corruption("gaussian_blur", "blur", _levels(1, 2, 3, 4, 6), _gaussian_blur),
        Corruption(
            "defocus_blur", "blur", _levels((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)), _defocus_blur,
            tile=_TILE, halo=32,
        ),
        Corruption("motion_blur", "blur", _levels(7, 11, 15, 21, 29), _motion_blur),
        Corruption(
            "zoom_blur", "blur", _levels((1.04, 0.01), (1.06, 0.01), (1.09, 0.01), (1.12, 0.01), (1.16, 0.01)),
            _zoom_blur, zoom=lambda level: level[0],
        ),
        Corruption(
            "glass_blur", "blur", _levels((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)), _glass_blur,
            tile=_TILE, halo=32, shift=_glass_reach,
        ),
        Corruption("fog", "weather", _levels(1, 1.5, 2, 2.5, 3), _fog),
        Corruption(
            "snow", "weather", _levels((0, 2), (1, 3), (2, 2), (2, 3), (3, 3)), _snow, tile=_DROPS, full_tiles=True
        ),
        Corruption(
            "rain", "weather",
            _levels((1, 8, 1, 0.95), (1, 12, 1, 0.9), (2, 12, 1, 0.85), (2, 16, 2, 0.8), (2, 20, 2, 0.7)), _rain,
            tile=_DROPS, full_tiles=True,
        ),
        Corruption(
            "spatter", "weather",
            _levels((3, 0.68, 0.4), (2.5, 0.68, 0.5), (2, 0.68, 0.6), (2, 0.67, 0.8), (2, 0.66, 1)), _spatter,
            tile=_TILE,
        ),
        Corruption("brightness", "weather", _levels(0.1, 0.2, 0.3, 0.4, 0.5), _brightness),
        Corruption("contrast", "digital", _levels(0.4, 0.3, 0.2, 0.1, 0.05), _contrast),
        Corruption("saturate", "digital", _levels(1.5, 2, 3, 5, 8), _saturate),
        Corruption(
            "elastic", "digital", _levels((0.6, 4), (0.9, 4), (1.3, 4), (1.8, 4), (2.5, 4)), _elastic,
            shift=lambda level, scale: 6 * level[0] * scale,
        ),
        Corruption("pixelate", "digital", _levels(0.5, 0.4, 0.3, 0.2, 0.15), _pixelate),
        Corruption("jpeg", "digital", _levels(25, 18, 15, 10, 7), _jpeg),
    )
}  # fmt: skip


def get_corruption(name: str, severity: int) -> Corruption:
    """Return a kind of corruption; raises `ConfigError` for an unknown name or severity."""
    if name not in CORRUPTIONS:
        raise unknown("corruption", name, CORRUPTIONS)
    if severity not in SEVERITIES:
        raise ConfigError(f"severity of {name!r} is {severity!r}; it must be one of 1, 2, 3, 4, 5.")
    return CORRUPTIONS[name]
