"""Helpers for outputs as images: their parts, their counterparts in other runs, whether they are grey."""

from __future__ import annotations

from PIL import Image, ImageChops

from codev_env.provenance.regions import Bounds
from codev_env.types import Execution


def pair(execution: Execution, run: Execution) -> tuple[Image.Image | None, ...]:
    """For each image of an execution its counterpart in another run; `None` where there is none of the same size."""
    if len(run.images) != len(execution.images):
        return (None,) * len(execution.images)
    pairs = zip(execution.images, run.images, strict=True)
    return tuple(probe if probe.size == output.size else None for output, probe in pairs)


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
