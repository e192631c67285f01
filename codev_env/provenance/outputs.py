"""Helpers for outputs as images: their parts, their counterparts in other runs, whether they are grey."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from PIL import Image, ImageChops

from codev_env.provenance.regions import Bounds
from codev_env.types import Execution, Region

Size = tuple[int, int]

MOST = 3840 * 2160
"""Pixels of a program's outputs up to which all are read as they are."""


class Outputs:
    """The images that a program returned, as they are read.

    Where they have more than `MOST` pixels together, those larger than every input are shrunk by a whole factor: they
    are enlarged, or empty in part, and to read all of their pixels many times would take minutes.

    Args:
        execution: The program's result.
        inputs: (width, height) of the input images.

    Attributes:
        images: The images.
        pixels: Pixels of all of them, before they were shrunk.
    """

    def __init__(self, execution: Execution, inputs: Sequence[Size]) -> None:
        self._sizes = [image.size for image in execution.images]
        self.pixels = sum(map(_area, self._sizes))
        factor = max(1, math.ceil(math.sqrt(self.pixels / MOST)))
        largest = max(map(_area, inputs))
        self._factors = [factor if _area(size) > largest else 1 for size in self._sizes]
        self.images = tuple(self._shrunk(execution.images))

    def pair(self, run: Execution) -> tuple[Image.Image | None, ...]:
        """For each image its counterpart in another run, shrunk alike; `None` where there is none of the same size."""
        if len(run.images) != len(self.images):
            return (None,) * len(self.images)
        pairs = zip(self._shrunk(run.images), run.images, self._sizes, strict=True)
        return tuple(probe if whole.size == size else None for probe, whole, size in pairs)

    def regions(self, found: Sequence[Region]) -> tuple[Region, ...]:
        """Describe regions that were read off the images for the outputs as the program returned them."""
        return tuple(_enlarged(region, factor) for region, factor in zip(found, self._factors, strict=True))

    def _shrunk(self, images: Sequence[Image.Image]) -> list[Image.Image]:
        pairs = zip(images, self._factors, strict=True)
        return [image if factor == 1 else image.reduce(factor) for image, factor in pairs]


def _area(size: Size) -> int:
    return size[0] * size[1]


def _enlarged(region: Region, factor: int) -> Region:
    scale, others = region.scale, tuple(_enlarged(other, factor) for other in region.others)
    # Where the shrunken image holds less than the input's detail, nothing says whether the larger one held more.
    return replace(region, scale=scale * factor if scale and scale >= 1 else scale, others=others)


def part_of(image: Image.Image, bounds: Bounds) -> Image.Image:
    """A part of an image; the image itself if that is all of it."""
    return image if bounds == (0, 0, *image.size) else image.crop(bounds)


def few(image: Image.Image) -> Image.Image:
    """Some pixels of an image."""
    return image.resize((64, 64), Image.Resampling.NEAREST)


def is_grey(image: Image.Image) -> bool:
    """Whether the three channels of all pixels are equal."""
    return all(
        ImageChops.difference(*(one.getchannel(channel) for channel in channels)).getbbox() is None
        for one in (few(image), image)
        for channels in ("RG", "GB")
    )
