r"""How well an image shows a box of evidence: coverage, compactness, search, detail.

With A the area of the original, T a target box, t = |T| / A, R the region shown (a polygon clipped to the original), V
the share of the original that the image counts as showing (|R| / A for a crop; see `shown_share`) and W the share that
the episode has shown in all to find it (`account`):

    coverage  = |T ∩ R| / |T|, of which only what `Region.seen` does not mark as painted over counts, and thin lines
                over it, such as a frame; and less of that, down to nothing, where more than three quarters of T are
                blank (`Region.blank`): print under a threshold
    limit     = 2 t^(2/3)
    compact   = 1 up to V = limit / 2, 1/2 at V = limit, 0 from V = 2 limit on, between them linear in log V
    search    = 1 up to W = 1.3 limit, 1/2 at W = 1.5 limit, 0 from W = 1.73 limit or nine tenths of the image on
    detail    = min(1, s, √(P share / |R|))^p      s: output pixels per original pixel; P: pixels of the model's view
    share     = min(1, original_share / 0.1)       a stamp on a large drawing is not the main content
    value     = coverage · compact · search · detail · share

V ≤ limit is the same as tightness² / V ≥ 1/8, with tightness = t / V: much of what is shown is target, and what is
shown is a small part of the image. In crops of 2.25 |T|, as of an expert who leaves a quarter of the target's width and
height on each side, the limit is 8.9 for a target of 0.1 % of the image, 4.1 for 1 %, 1.8 for 12 %, 1.2 for 40 %.
Without a view (P = ∞) and with p = 1, detail is min(1, s). No crop shows a target that is larger than the view in all
its detail. With a margin m, the detail of a crop of m |T|, for example 2.25, is enough: min(1, s, √(P share / |R|)) is
divided by min(1, √(P / m |T|)), and at most 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from codev_env.geometry import union_area
from codev_env.provenance.agreement import box_sum
from codev_env.provenance.coordinates import area, box_polygon, clip
from codev_env.types import Box, Region

Bools = NDArray[np.bool_]

LIMIT = 2.0
CLEAR_COVERAGE, CLEAR_VALUE = 0.75, 0.5
TOTAL = 1.5
"""Limits that an episode may show in all: as often as one look, chance may explain a find."""
_FREE = 1.3
_PROMINENT = 0.1
_SLACK = 1.01  # Half a pixel more on each side must not decide: boxes are whole pixels, fits are not.
WHOLE = 0.9 * _SLACK
"""Share of the image from which an image, or all of them together, shows everything."""
_BLANK = 0.75
"""Share of a target that is blank from which on it is less covered: a threshold may leave the print of a sign alone."""
_SAMPLES = 16
_AROUND, _CROWDED = 4, 0.4
"""Of these points on each side, and the share of them that is hidden where more than lines hides a target."""
_THUMBNAIL = 64


@dataclass(frozen=True)
class ModelView:
    """The model's view of an image, by which detail is measured.

    Attributes:
        pixels: The model sees an image at no more than this many pixels; `None`: as large as it is.
        power: Exponent of detail.
        margin: A crop of so many times the target's area has detail enough; `None`: only full detail is.
    """

    pixels: int | None = None
    power: float = 1.0
    margin: float | None = None


AS_IT_IS = ModelView()
"""The view of a model that sees every pixel."""


@dataclass(frozen=True)
class Showing:
    """How an image shows one target; formulas in the module's docstring.

    Attributes:
        coverage: Share of the target that is seen.
        shown: Share of the original that the image counts as showing.
        total: Share of the original that the episode has shown to find it.
        limit: The most that an image may show with the target as its main content, as a share of the original.
        tightness: How much of what is shown is target, 0 to 1.
        compact: 1 if the target is the main content, 1/2 at the limit.
        search: 1 unless the episode has shown so much that chance explains the find.
        detail: Pixels per original pixel that reach the model, of those that are enough, at most 1.
        share: 1 unless next to nothing of the output stems from the original.
    """

    coverage: float
    shown: float
    total: float
    limit: float
    tightness: float
    compact: float
    search: float
    detail: float
    share: float

    @property
    def value(self) -> float:
        """The product of coverage, compactness, search, detail and share."""
        return self.coverage * self.compact * self.search * self.detail * self.share

    @property
    def clear(self) -> bool:
        """The target is clearly shown as the main content: coverage at least 0.75, the others at least 0.5."""
        return not self.missing

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the conditions of `clear` that do not hold."""
        least = {"coverage": CLEAR_COVERAGE} | dict.fromkeys(("compact", "search", "detail", "share"), CLEAR_VALUE)
        return tuple(name for name, bound in least.items() if getattr(self, name) < bound)

    def after(self, total: float) -> Showing:
        """Return the same where the episode has shown so much in all."""
        return replace(self, total=total, search=search_of(total, self.limit))


def showing(
    region: Region, target: Box, size: tuple[int, int], shown: float | None = None, view: ModelView = AS_IT_IS
) -> Showing:
    """Measure how an image shows a target, judged alone.

    Args:
        region: The region that the image shows; its polygon must be known.
        target: The evidence, in pixels of the original.
        size: (width, height) of the original.
        shown: Share of the original that the image counts as showing; `None`: that of its region.
        view: The model's view.
    """
    if region.polygon is None:
        raise ValueError("showing needs a region with a polygon")
    part = clip(region.polygon, (0, 0, *size))
    target_area = area(box_polygon(target))
    coverage = min(1.0, area(clip(part, target)) / target_area) if target_area else 0.0
    if coverage and region.seen is not None:
        coverage *= _seen_share(region.seen, region, target)
    if coverage and region.blank is not None:
        blank, points = _points_among(region.blank, region, target)
        coverage *= min(1.0, (1 - float(blank.sum() / max(points.sum(), 1))) / (1 - _BLANK))
    shown = area_share(region, size) if shown is None else shown
    limit = limit_of(target_share_of(target, size))
    return Showing(
        coverage=coverage,
        shown=shown,
        total=shown,
        limit=limit,
        tightness=min(1.0, target_share_of(target, size) / shown) if shown else 0.0,
        compact=_falling(shown, limit / 2, limit),
        search=1.0,
        detail=detail_of(region, area(part), view, target_area),
        share=min(1.0, region.original_share / _PROMINENT),
    )


def target_share_of(target: Box, size: tuple[int, int]) -> float:
    """Return the share of an image of (width, height) that a target fills."""
    return area(box_polygon(target)) / (size[0] * size[1])


def limit_of(target_share: float) -> float:
    """Return the share of the image that may be shown of which a target of that share is still the main content."""
    return LIMIT * target_share ** (2 / 3)


def search_of(total: float, limit: float) -> float:
    """Return 1 where looks that show so much in all are a search, 1/2 at 1.5 limits, 0 where they show everything."""
    return 0.0 if total >= WHOLE else _falling(total, _FREE * limit, TOTAL * limit)


def _falling(value: float, full: float, half: float) -> float:
    """Return 1 up to `full`, 1/2 at `half`, linear in the logarithm and never below 0."""
    value /= _SLACK
    if value <= full:
        return 1.0
    return max(0.0, 1 - 0.5 * math.log(value / full) / math.log(half / full)) if full > 0 else 0.0


def detail_of(region: Region, shown_area: float, view: ModelView, target_area: float) -> float:
    """Return the pixels per original pixel, along a side, that reach the model, of those that are enough: at most 1.

    Args:
        region: The region that an image shows.
        shown_area: Its area, in pixels of the original.
        view: The model's view; a frame around the region takes its part of it.
        target_area: The target's area, in pixels of the original.
    """
    found = min(1.0, region.scale or 1.0)
    if view.pixels is not None and shown_area > 0:
        found = min(found, math.sqrt(view.pixels * min(1.0, region.original_share) / shown_area))
        if view.margin is not None and target_area > 0:
            found = min(1.0, found / min(1.0, math.sqrt(view.pixels / (view.margin * target_area))))
    return float(found**view.power)


def area_share(region: Region, size: tuple[int, int]) -> float:
    """Return the share of the original, of (width, height), that a region with a polygon shows."""
    return area(clip(region.polygon or (), (0, 0, *size))) / (size[0] * size[1])


def union_share(regions: list[Region], size: tuple[int, int]) -> float:
    """Return the share of the original that regions with polygons show together."""
    return union_area([clip(region.polygon or (), (0, 0, *size)) for region in regions]) / (size[0] * size[1])


def shown_share(region: Region, image: Image.Image, original: Image.Image, repeated: float = 0.0) -> float:
    """Return the share of the original that an image counts as showing: that of its region, and the rest of the image.

    Whatever else there is in the image, such as other parts of a collage, counts as if it were shown at the region's
    scale. An even background, such as the margins of a plot, does not, and neither do further views of a place.

    Args:
        region: The region that the image shows; its polygon must be known.
        image: The image.
        original: The image that the region is a part of.
        repeated: Share of the image that shows this region, or another one that counts, once more.
    """
    own, share = area_share(region, original.size), region.original_share
    if region.seen is not None:  # Pixels painted over inside the region are no rest of the image.
        share /= max(float(region.seen.mean()), share, 1e-9)
    if share + repeated >= 1 - 1 / _THUMBNAIL or share <= 0 or region.box is None:
        return own
    content = 1 - _plain_share(image, (0, 0, *image.size))
    varied = 1 - _plain_share(original, region.box)
    rest = max(0.0, content - (share + repeated) * varied)
    return own * min((1 - repeated) / share, 1 + rest / max(share * varied, 1e-9))


def _plain_share(image: Image.Image, box: Box) -> float:
    """Share of the pixels of a part of an image that have its most common colour."""
    small = image.resize((_THUMBNAIL, _THUMBNAIL), Image.Resampling.NEAREST, box)
    pixels = np.asarray(small.convert("RGB"), np.int64) @ np.array([65536, 256, 1])
    return float(np.unique(pixels, return_counts=True)[1].max() / pixels.size)


def _seen_share(seen: Bools, region: Region, target: Box) -> float:
    """Share of the part of a target that a region shows which can be seen; lines drawn over it hide nothing."""
    hidden, shown = _points_among(~seen, region, target, _AROUND)
    around, of = (box_sum(one.astype(np.float32), _AROUND) for one in (hidden, shown))
    inner = np.s_[_AROUND:-_AROUND, _AROUND:-_AROUND]
    covered, crowded, count = (int(one[inner].sum()) for one in (hidden, shown & (around > _CROWDED * of), shown))
    return 1 - (covered if 2 * covered > count else min(covered, crowded)) / max(count, 1)


def _points_among(places: Bools, region: Region, target: Box, around: int = 0) -> tuple[Bools, Bools]:
    """Which points of a target are among places of a region, a grid such as `Region.seen`, and which it shows at all.

    Returns:
        Both of shape (16, 16), with so many more points around the target on each side.
    """
    assert region.polygon is not None
    xs, ys = (
        low + (np.arange(-around, _SAMPLES + around) + 0.5) * (high - low) / _SAMPLES
        for low, high in ((target[0], target[2]), (target[1], target[3]))
    )
    points = np.stack(np.meshgrid(xs, ys), -1)
    origin, right, _, down = (np.array(corner, float) for corner in region.polygon)
    try:  # From the original to (0, 0) .. (1, 1) over the part shown.
        u, v = np.moveaxis((points - origin) @ np.linalg.inv(np.column_stack([right - origin, down - origin])).T, 2, 0)
    except np.linalg.LinAlgError:
        return np.ones(points.shape[:2], bool), np.ones(points.shape[:2], bool)
    shown = (u >= 0) & (u < 1) & (v >= 0) & (v < 1)
    rows, columns = places.shape
    at = (np.clip(v, 0, 1 - 1e-9) * rows).astype(int), (np.clip(u, 0, 1 - 1e-9) * columns).astype(int)
    return shown & places[at], shown
