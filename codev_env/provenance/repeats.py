"""Parts of an output that show once more what another part was found to show: a crop beside its enhanced copies.

A copy in other colours is no further place. It takes no run to see that: the place of the crop is known, and a part
that looks like it in nearly every point, up to one change of colours, shows nothing else. Neither does one whose
brightness is nearly a function of the place's, as under a threshold, or of its edges.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from codev_env.provenance import detail
from codev_env.provenance.cuts import Piece
from codev_env.provenance.panels import WHOLE
from codev_env.provenance.regions import Bools, Bounds, Indices, OutputPart, affine_over, area_of, scales
from codev_env.provenance.seams import SIZES, layouts
from codev_env.provenance.seen import without_unlike
from codev_env.types import Region

Array = NDArray[np.floating]

_ALIKE, _SEEN = 0.8, 0.8
"""Of a part: the least correlation with the place, and the least share of its points that are alike."""
_AKIN = 0.85
"""Least kinship of a part with the place."""
_STRETCHED = 1.35
"""Factor by which the ratio of the sides may differ."""
_MOST = 24
"""Parts of an output that are compared, for all places together."""


def with_repeats(region: Region, output: Image.Image, images: Sequence[Image.Image], pieces: Iterable[Piece]) -> Region:
    """Add to each place that an output shows the share of the output that shows it once more.

    Args:
        region: What the output was found to show.
        output: The image that the program returned.
        images: The inputs, RGB.
        pieces: What the program says it cut out, the newest first.

    Returns:
        The region; where all parts of a layout show one of its places, that one alone.
    """
    places = [part for part in region.parts if part.polygon is not None]
    if not places or (region.traced_share >= WHOLE and all(map(_is_seen, places))):
        return region
    pixels = output.width * output.height
    most = [0.0] * len(places)
    known: dict[tuple[int, Bounds], float] = {}

    def alike(number: int, part: Bounds) -> float:
        if (number, part) not in known and _has_shape(part, places[number]):
            known[number, part] = _shown(places[number], part, output, images) if len(known) < _MOST else 0.0
        return known.get((number, part), 0.0)

    sizes = dict.fromkeys(piece.size for piece in pieces)
    for layout in layouts(output, islice(sizes, SIZES)):
        area = sum(map(area_of, layout))
        for number, place in enumerate(places):
            shares = [alike(number, part) for part in layout]
            shown = sum(share * area_of(part) for share, part in zip(shares, layout, strict=True))
            if len(layout) > 1 and all(shares) and shown >= WHOLE * area:
                return replace(_repeated(place, shown / pixels), others=())
            most[number] = max(most[number], shown / pixels)
    repeats = {id(place): _repeated(place, share) for place, share in zip(places, most, strict=True)}
    main, *others = (repeats.get(id(part), part) for part in region.parts)
    return replace(main, others=tuple(others))


def _is_seen(place: Region) -> bool:
    return place.seen is None or float(place.seen.mean()) >= WHOLE


def _has_shape(part: Bounds, place: Region) -> bool:
    """Whether a part has about the ratio of the sides of what a place shows."""
    across, down = scales(affine_over(place, part))
    return 1 / _STRETCHED <= across / max(down, 1e-9) <= _STRETCHED


def _repeated(place: Region, share: float) -> Region:
    return replace(place, repeated=max(0.0, share - place.original_share))


def _shown(place: Region, part: Bounds, output: Image.Image, images: Sequence[Image.Image]) -> float:
    """The share of a part that is explained by a place, in whatever colours; 0 if it shows something else."""
    affine, image = affine_over(place, part), images[place.image_index]
    overview = detail.overview(output, part, _everywhere)
    expected = overview.expected(affine, image)
    likeness = detail.likeness(expected, overview)
    if likeness is None:
        return 0.0
    if abs(likeness) >= _ALIKE:
        kept = min(1.0, (place.scale or 1.0) * max(1.0, *scales(affine)))
        alike = without_unlike(OutputPart(part, 1.0, None), output, affine, image, kept, "changed")
        if alike is not None and alike.share >= _SEEN:
            return alike.share
    kinship = detail.kinship(expected, overview)
    return kinship**2 if kinship >= _AKIN else 0.0


def _everywhere(v: Indices, u: Indices) -> Bools:
    return np.ones(np.broadcast_shapes(v.shape, u.shape), bool)
