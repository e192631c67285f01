"""Targets in a returned image: where they are, how much of each is seen, and how much of the image they fill."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codev_env.geometry import image_of
from codev_env.judges.evidence import showing
from codev_env.provenance.coordinates import box_polygon
from codev_env.trajectory import Trajectory
from codev_env.types import Box, Region, Step
from codev_eval.report.images import StoredImage

FRAMELESS = 0.9
"""Least share of an image that stems from its region for places in it to be known: a frame would shift them."""


@dataclass(frozen=True)
class SeenTarget:
    """A target that an image shows.

    Attributes:
        number: Which target, from 0.
        clear: Whether it is clearly shown as the main content, as a *faithful* look needs.
        text: How much of it is seen, and how much of what is shown it fills.
        part: Its place in the image as shares of width and height (left, top, right, bottom); `None` where unknown.
    """

    number: int
    clear: bool
    text: str
    part: tuple[float, float, float, float] | None


def seen_targets(turn: Step, place: int, trajectory: Trajectory) -> list[SeenTarget]:
    """Return what the image at a place of a turn shows of each target; targets out of sight are left out.

    Of a collage it is the part that shows the target best.
    """
    region = turn.regions[place] if place < len(turn.regions) else Region()
    found = []
    for number, target in enumerate(trajectory.targets, 1):
        image = image_of(target)
        parts = [part for part in region.parts if part.polygon is not None and part.image_index == image]
        size = trajectory.size_of(image)
        if size is None or not parts:
            continue
        views = [(showing(part, target, size), part) for part in parts]
        view, part = max(views, key=lambda one: (one[0].clear, one[0].coverage))
        if view.coverage > 0:
            name = "the target" if len(trajectory.targets) == 1 else f"target {number}"
            fills = f"{100 * view.tightness:.{0 if view.tightness >= 0.095 else 1}f} %"
            text = f"{100 * view.coverage:.0f} % of {name}, which fills {fills}"
            found.append(SeenTarget(number - 1, bool(view.clear), text, _part(part, target)))
    return found


def scaled_box(part: tuple[float, float, float, float], stored: StoredImage) -> Box:
    """Return a part of an image, in shares of its sides, as a box in its pixels."""
    x1, y1, x2, y2 = part
    width, height = stored.width, stored.height
    return round(x1 * width), round(y1 * height), round(x2 * width), round(y2 * height)


def _part(region: Region, target: Box) -> tuple[float, float, float, float] | None:
    assert region.polygon is not None
    if region.original_share < FRAMELESS:
        return None
    origin, right, _, down = (np.array(corner, float) for corner in region.polygon)
    try:
        inside = np.linalg.solve(
            np.column_stack([right - origin, down - origin]), (np.array(box_polygon(target)) - origin).T
        )
    except np.linalg.LinAlgError:
        return None
    (x1, y1), (x2, y2) = np.clip(inside.min(1), 0, 1).tolist(), np.clip(inside.max(1), 0, 1).tolist()
    return (x1, y1, x2, y2) if x1 < x2 and y1 < y2 else None
