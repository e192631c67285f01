"""Regions of outputs whose colours a program changed, by the pattern of `weave` and a proof on the real image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from codev_env.provenance import coordinates as geometry
from codev_env.provenance import detail
from codev_env.provenance.bars import BAR, LEAST_BARS
from codev_env.provenance.proof import Proof, ProofReading
from codev_env.provenance.regions import (
    Bools,
    Bounds,
    Indices,
    Originals,
    OutputPart,
    dice,
    make_region,
    scales,
    shown_part,
)
from codev_env.provenance.seen import same_shapes, unreadable, with_blanks, without_unlike
from codev_env.provenance.weave import WovenPart
from codev_env.types import Region

Array = NDArray[np.floating]

_WHOLE = 0.9
_PROVED = 0.98
"""Share of the places of a part from which on one proof is enough."""
_LITTLE = 0.2
"""Share of the places below which nothing is claimed."""
_GAP, _BAND, _PLAIN = 3, 8, 8
"""Pixels between a part and the output's border, width of a band there and levels by which it varies, if the part may
go on."""
_SHARP, _COARSE = 0.3, 8.0
_NEAR = 9
_ALIKE = 0.97
_COMPARED = 0.8
"""Correlation of the places that look like the region with it, below which the others are no sign that they show
something else: edges are like it in some places by chance."""


class WovenClaim(NamedTuple):
    """A region that an output shows, by the pattern.

    Attributes:
        affine: The map from the output to the image.
        part: The part of the output that shows it.
        scale: Output pixels per pixel of the image.
        kept: The share of that resolution that holds detail, by the output.
        sharp: The same, by the pattern.
        region: The region, if the output itself leaves no doubt; else it takes a proof.
        unlike: Places that look different, over the grid of `Region.seen`; they count next to what a proof denies.
        compared: Whether they do: only where the others look like the region.
        wide: The part with what is around it, up to the borders of the output, that may show the region as well.
    """

    affine: Array
    part: OutputPart
    scale: float
    kept: float
    sharp: float
    region: Region | None
    unlike: Bools | None
    compared: bool
    wide: Bounds


def claim(
    output: Image.Image, panels: list[WovenPart], image: Image.Image, index: int, secret: int
) -> WovenClaim | None:
    """Claim what an output shows by the pattern, and compare both images.

    Args:
        output: The image that the program returned.
        panels: The parts that show the pattern, as `weave.read_weave` finds them.
        image: The input image.
        index: Its index.
        secret: Decides with the output where it is looked at.
    """
    if not panels:
        return None
    # Of a figure with the whole image and a crop of it, the crop is looked at.
    panels = sorted(panels, key=_pixels, reverse=True)
    panel = next((one for one in panels if _share(one, image) < _WHOLE), panels[0])
    rng = dice(output, secret)
    originals = _originals(panel)
    affine = geometry.snap(panel.affine, output.size)
    part = OutputPart(panel.bounds, _pixels(panel) / (output.width * output.height), None)
    if not panel.found.all():
        part = shown_part(output, affine, image.size, originals, rng)
    if min(_sides(affine, part.bounds)) < LEAST_BARS * BAR:
        return None  # A few bars are like anything.
    overview = detail.overview(output, part.bounds, originals)
    aligned = detail.align(affine, image, [overview], 3.0)
    if aligned is None:
        return None  # The output shows another place than it does with the pattern.
    affine = aligned
    patches = detail.patches(output, affine, part.bounds, originals)
    finer = detail.align(affine, image, patches, 2.0)
    affine = geometry.snap(affine if finer is None else finer, output.size)
    expected = overview.expected(affine, image)
    if not detail.visible(expected, overview):
        return None
    left = detail.kept(affine, image, patches)
    left = 1.0 if left is None else left
    scale = make_region(affine, part.bounds, image.size, index, 1.0).scale or 1.0
    alike = detail.likeness(expected, overview)
    region = without = None
    if alike is not None:
        # Little detail of the image may be there to be kept; what the program keeps, the pattern says as well.
        without = without_unlike(part, output, affine, image, max(left, panel.sharp), "changed")
        if without is not None and abs(alike) > _ALIKE and (without.seen is None or without.seen.mean() > 0.995):
            region = _describe(affine, without, output, image, index, detail.scale_of(scale, left))
    wide = _wide(part.bounds, affine, output, image)
    return WovenClaim(affine, part, scale, left, panel.sharp, region, *_unlike(without), wide)


def _unlike(without: OutputPart | None) -> tuple[Bools | None, bool]:
    """The places that a comparison took from a part, if any, and whether they count."""
    if without is None or without.seen is None:
        return None, False
    return ~without.seen, without.likeness >= _COMPARED


def _wide(bounds: Bounds, affine: Array, output: Image.Image, image: Image.Image) -> Bounds:
    """A part with the strips around it that are not plain at the border and, by the map, show something of the image.

    Where bars have no edges or are joined by a dilation, nothing says where they go on.
    """
    wide = bounds
    for side, border in enumerate((0, 0, output.width, output.height)):
        further = _with_side(wide, side, border)
        corners = np.array(geometry.polygon_of(affine, further))
        inside = (corners > -_GAP).all() and (corners < np.array(image.size) + _GAP).all()
        if abs(border - wide[side]) >= _GAP and inside:
            band = np.asarray(output.crop(_with_side(further, side ^ 2, border + (_BAND if side < 2 else -_BAND))))
            wide = further if np.ptp(band) >= _PLAIN else wide
    return wide


def _with_side(bounds: Bounds, side: int, at: int) -> Bounds:
    left, top, right, bottom = (at if number == side else old for number, old in enumerate(bounds))
    return left, top, right, bottom


def _enlarged(claimed: WovenClaim, bounds: Bounds, output: Image.Image, image: Image.Image) -> WovenClaim:
    """The same claim of a larger part."""
    share = (bounds[2] - bounds[0]) * (bounds[3] - bounds[1]) / (output.width * output.height)
    part, without = OutputPart(bounds, share, None), None
    if claimed.unlike is not None:
        without = without_unlike(part, output, claimed.affine, image, max(claimed.kept, claimed.sharp), "changed")
    unlike, compared = _unlike(without)
    return claimed._replace(part=part, unlike=unlike, compared=compared, wide=bounds)


def prove(
    claimed: WovenClaim,
    output: Image.Image,
    image: Image.Image,
    index: int,
    secret: int,
    run: Callable[[Image.Image], Image.Image | None],
    is_exact: bool = True,
) -> Region | None:
    """The region of a claim, as far as one or two runs on disturbed images bear it out; `None` if they do not.

    Args:
        claimed: The claim.
        output: The image that the program returned.
        image: The input image.
        index: Its index.
        secret: Decides with the output what is disturbed.
        run: Runs the program on another image; returns `None` if it cannot.
        is_exact: The claim's map is good to a pixel, so that parts of a cell can be told apart.
    """
    readings: list[ProofReading] = []
    for rearranged in (False, True):
        proof = proof_of(claimed, image, output, secret, rearranged)
        probe = run(proof.image)
        reading = None if probe is None else proof.read(output, probe)
        if probe is not None and reading is not None:
            bounds = proof.reach(output, probe)
            if bounds != claimed.part.bounds:
                return prove(_enlarged(claimed, bounds, output, image), output, image, index, secret, run, is_exact)
            readings.append(reading if is_exact else reading._replace(hidden=None))
            if reading.seen.mean() > _PROVED:
                break
    if readings and readings[-1].seen.mean() <= _PROVED:
        # Places with the shapes of the region show it, though other pixels change with those that were disturbed.
        kept = max(claimed.kept, claimed.sharp)
        readings.append(ProofReading(same_shapes(claimed.part.bounds, output, claimed.affine, image, kept), 0.0))
    hidden = unreadable(claimed.part.bounds, output, claimed.affine, image) if is_exact else None
    return proved(claimed, readings, hidden, output, image, index)


def proof_of(claimed: WovenClaim, image: Image.Image, output: Image.Image, secret: int, rearranged: bool) -> Proof:
    """A disturbed image that decides whether a claim is right: by dark and light cells, or by the colours there are."""
    rng = dice(output, secret + 1 + rearranged)
    return Proof(
        image,
        claimed.affine,
        claimed.part.bounds,
        rng,
        claimed.unlike,
        output=output,
        wide=claimed.wide,
        rearranged=rearranged,
    )


def proved(
    claimed: WovenClaim,
    readings: list[ProofReading],
    hidden: Bools | None,
    output: Image.Image,
    image: Image.Image,
    index: int,
) -> Region | None:
    """The region of a claim, where one of the readings of `Proof.read` bears it out; `None` if there are none.

    A place that is scattered or covered with noise depends on the region, too, but is among those `hidden`.
    """
    if not readings:
        return None
    seen, sharp = np.logical_or.reduce([one.seen for one in readings]), max(one.sharp for one in readings)
    for one in readings:
        seen = seen if one.hidden is None else seen & ~one.hidden
    # Edges and thresholds are like nothing in the image, but show how much of fine bars they keep.
    kept = min(1.0, claimed.sharp, _COARSE * claimed.kept) if sharp >= _SHARP else 0.0
    scale = detail.scale_of(claimed.scale, max(claimed.kept, kept))
    part = claimed.part
    if claimed.unlike is not None and claimed.compared and claimed.unlike.shape == seen.shape:
        seen = seen & ~_connected(claimed.unlike, ~seen)
    if part.seen is not None:
        seen = seen & part.seen
    if hidden is not None:
        seen = seen & ~hidden
    if seen.mean() < _LITTLE:
        return None  # Another place, or the same mirrored, may be as near.
    share = part.share * float(seen.mean()) / (1.0 if part.seen is None else max(float(part.seen.mean()), 1e-9))
    part = OutputPart(part.bounds, share, None if seen.all() else seen)
    return _describe(claimed.affine, part, output, image, index, scale)


def _connected(places: Bools, seeds: Bools) -> Bools:
    """Those of some places that seeds lie next to, or others that are connected with these."""
    reached, found = _widened(seeds, _NEAR) & places, np.zeros_like(places)
    while (reached != found).any():
        reached, found = _widened(reached, 3) & places, reached
    return found


def _widened(places: Bools, by: int) -> Bools:
    return np.asarray(Image.fromarray(places).convert("L").filter(ImageFilter.MaxFilter(by))) > 0


def _describe(
    affine: Array, part: OutputPart, output: Image.Image, image: Image.Image, index: int, scale: float
) -> Region:
    region = make_region(affine, part.bounds, image.size, index, part.share, seen=part.seen)
    return with_blanks(replace(region, scale=scale), part.bounds, output, affine, image)


def _pixels(panel: WovenPart) -> int:
    left, top, right, bottom = panel.bounds
    return (right - left) * (bottom - top)


def _sides(affine: Array, bounds: Bounds) -> tuple[float, float]:
    """How many pixels of the image the sides of a part of the output show."""
    left, top, right, bottom = bounds
    by_u, by_v = scales(affine)
    return (right - left) * by_u, (bottom - top) * by_v


def _share(panel: WovenPart, image: Image.Image) -> float:
    polygon = geometry.polygon_of(panel.affine, panel.bounds)
    return geometry.area(polygon) / (image.width * image.height)


def _originals(panel: WovenPart) -> Originals:
    left, top, right, bottom = panel.bounds
    rows, columns = panel.found.shape

    def originals(v: Indices, u: Indices) -> Bools:
        inside = (v >= top) & (v < bottom) & (u >= left) & (u < right)
        row = np.clip((v - top) * rows // max(bottom - top, 1), 0, rows - 1)
        column = np.clip((u - left) * columns // max(right - left, 1), 0, columns - 1)
        return np.asarray(inside & panel.found[row, column])

    return originals
