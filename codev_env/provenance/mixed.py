"""Regions of outputs whose pixels were mixed with their neighbours: how much detail of the original is left."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from codev_env.provenance import coordinates as geometry
from codev_env.provenance import detail
from codev_env.provenance.regions import Originals, make_region, shown_part
from codev_env.provenance.seen import Colours, with_blanks, without_unlike
from codev_env.types import Region

Array = NDArray[np.floating]

_UNLIKE = 0.3
"""Kinship with what a map says is shown, below which an output does not show it, whatever its colours."""


def mixed_region(
    output: Image.Image,
    affine: Array,
    image: Image.Image,
    image_index: int,
    originals: Originals,
    rng: np.random.Generator,
    most: float,
    like: float = -1.0,
    colours: Colours = "any",
) -> Region | None:
    """Describe an output whose pixels were mixed: its scale is as small as the detail that is left.

    Args:
        output: The image that the program returned.
        affine: The map from its pixels to the image's.
        image: The input image.
        image_index: Its index.
        originals: Which pixels of the output stem from where the map says.
        rng: Draws where the output is looked at.
        most: Pixels by which the map may be wrong, to be put right by what the output shows.
        like: How much the output must be correlated with what the map says, unless that is too plain to compare.
        colours: The change that the program made to them.

    Returns:
        `None` if the output does not look like that.
    """
    part = shown_part(output, affine, image.size, originals, rng)
    overview = detail.overview(output, part.bounds, originals)
    aligned = detail.align(affine, image, [overview], most)
    if aligned is None:
        return None
    expected = overview.expected(aligned, image)
    alike = detail.likeness(expected, overview)
    if not detail.visible(expected, overview):
        return None
    if alike is not None and (alike < like or detail.kinship(expected, overview) < _UNLIKE):
        return None
    patches = detail.patches(output, aligned, part.bounds, originals)
    finer = detail.align(aligned, image, patches, 2.0)
    affine = geometry.snap(aligned if finer is None else finer, output.size)
    left = detail.kept(affine, image, patches)
    if left is None:
        left = detail.edges_kept(affine, image, patches) if colours == "any" else 1.0
    if left is None:
        return None
    without = without_unlike(part, output, affine, image, left, colours)
    if without is None and colours != "any":
        return None
    part = without or part
    region = make_region(affine, part.bounds, image.size, image_index, part.share, seen=part.seen)
    assert region.scale is not None
    region = replace(region, scale=detail.scale_of(region.scale, left))
    return with_blanks(region, part.bounds, output, affine, image)
