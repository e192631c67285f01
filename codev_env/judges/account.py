"""Everything that an episode's images showed, added up: many crops have no more chances than one of their total area.

A *look* is an image, or one of the parts of a collage, with a known place in the task's first image that leaves out a
tenth of it or more; where a target is on another image, or the images are frames, with a place in any of them. Several
views of one place in an image, such as two orientations or a copy in other colours, count once. Where a look shows a
target, all that was shown to find it counts, of several images in shares of their own areas: the union of that look
with every other look that

- shows no target clearly, judged alone, and
- is small enough to have shown this target as its main content; wider ones are overviews, which cannot show it.

Where that is more than 1.5 times the limit of `evidence`, or nine tenths of the image, chance explains the find. So a
program that crops at random places is faithful at most 1.5 times as often as one random crop of the same total area (or
of the limit, where that is less), however it shares the area out over calls, images and parts of images. Coarse-to-fine
search costs nothing, and a wrong look costs its area.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from PIL import Image

from codev_env.geometry import image_of
from codev_env.judges.evidence import (
    CLEAR_VALUE,
    WHOLE,
    ModelView,
    Showing,
    area_share,
    limit_of,
    showing,
    shown_share,
    target_share_of,
    union_share,
)
from codev_env.lazy import LazyProperty
from codev_env.provenance.panels import same_place
from codev_env.types import Box, Region, Task


class JudgedImage(NamedTuple):
    """One returned image and what it shows."""

    region: Region
    image: Image.Image


@dataclass(frozen=True, eq=False)
class JudgedLook:
    """An image that shows a part of one of the task's images.

    Attributes:
        region: Where.
        own: Share of the original that its region fills.
        rest: Share of the original that the rest of the image counts as showing, see `shown_share`; the first part of a
            collage has it.
        alone: How it shows each target, judged alone.
    """

    region: Region
    own: float
    rest: float
    alone: tuple[Showing, ...]

    @property
    def finds(self) -> bool:
        """Judged alone, it shows a target clearly: the papers' criterion for a faithful crop."""
        return any(view.clear for view in self.alone)


class Account:
    """The looks among some images of an episode.

    Args:
        task: The task, with its targets.
        images: The images so far, in order.
        view: The model's view.

    Attributes:
        looks: For each image the looks in it, one for each part of a collage.
        wholes: The regions of images that show the whole.
    """

    def __init__(self, task: Task, images: Sequence[JudgedImage], view: ModelView) -> None:
        self.task, self.view = task, view
        # Crops of other images are no looks where all evidence is on the first: such images are examples or options.
        self.every = bool(task.times) or any(map(image_of, task.targets))
        placed = [self._placed(one.region) for one in images]
        self.wholes = [parts[0] for parts in placed if parts and self._is_whole(parts[0])]
        self.looks = [
            self._looks_in(one.image, [part for part in parts if not self._is_whole(part)])
            for one, parts in zip(images, placed, strict=True)
        ]
        self._looks = [look for looks in self.looks for look in looks]

    def showing(self, look: JudgedLook, target: int) -> Showing:
        """Return how a look shows a target, by its number, in the light of all looks."""
        in_vain, total = self._shown_in_vain[target]
        if not any(other is look for other in in_vain):
            if not in_vain:
                return look.alone[target]
            total = self._area([look, *in_vain])
        return look.alone[target].after(max(total, look.alone[target].shown))

    @LazyProperty
    def _shown_in_vain(self) -> list[tuple[list[JudgedLook], float]]:
        """For each target the looks that show none but could have shown it as their main content, and their area."""
        found = []
        for target in range(len(self.task.targets)):
            looks = [look for look in self._looks if not look.finds and look.alone[target].compact >= CLEAR_VALUE]
            found.append((looks, self._area(looks)))
        return found

    def _area(self, looks: Sequence[JudgedLook]) -> float:
        """The share of the original that looks count as showing together."""
        by_image: dict[int, list[Region]] = {}
        for one in looks:
            by_image.setdefault(one.region.image_index, []).append(one.region)
        shares = (union_share(regions, self._size(number)) for number, regions in by_image.items())
        return sum(shares) + sum(one.rest for one in looks)

    def _size(self, number: int) -> tuple[int, int]:
        return self.task.images[number].size

    def _placed(self, region: Region) -> list[Region]:
        """The parts of an image with a known place in an image that counts."""
        return [part for part in region.parts if part.polygon is not None and (self.every or part.image_index == 0)]

    @property
    def found(self) -> set[int]:
        """The numbers of the targets that some look shows clearly, judged alone."""
        return {target for look in self._looks for target, view in enumerate(look.alone) if view.clear}

    @property
    def spread(self) -> bool:
        """Some look shows a target clearly, but by now chance explains every such find."""
        finds = [(look, target) for look in self._looks for target, view in enumerate(look.alone) if view.clear]
        return bool(finds) and not any(self.showing(look, target).clear for look, target in finds)

    def _is_whole(self, region: Region) -> bool:
        return area_share(region, self._size(region.image_index)) >= WHOLE

    def _looks_in(self, image: Image.Image, parts: Sequence[Region]) -> tuple[JudgedLook, ...]:
        """The looks of one image: the parts of a collage count together, but for those too wide to show a target.

        Several views of one place, as in two orientations, count once.
        """
        places = _places(parts)
        shown = [
            shown_share(part, image, self.task.images[part.image_index], _repeated_share(part, parts, places))
            for part in parts
        ]
        own = [area_share(part, self._size(part.image_index)) for part in parts]
        limits = [limit_of(target_share_of(target, self._size(image_of(target)))) for target in self.task.targets]
        looks: list[JudgedLook] = []
        for part, alone, area in zip(parts, shown, own, strict=True):
            together = [max(alone, sum(own[at] for at in places if own[at] <= max(limit, area))) for limit in limits]
            views = tuple(
                self._showing_alone(part, target, share)
                for target, share in zip(self.task.targets, together, strict=True)
            )
            rest = 0.0 if looks else max(0.0, alone - sum(own[at] for at in places))
            looks.append(JudgedLook(part, area, rest, views))
        return tuple(looks)

    def _showing_alone(self, part: Region, target: Box, shown: float) -> Showing:
        """Return how a part shows a target, judged alone; on another image it covers none of it."""
        found = showing(part, target, self._size(image_of(target)), shown, self.view)
        return found if part.image_index == image_of(target) else replace(found, coverage=0.0)


def _places(parts: Sequence[Region]) -> list[int]:
    """The numbers of the parts that show a place which none of these before them shows."""
    found: list[int] = []
    for number, part in enumerate(parts):
        if not any(same_place(part, parts[at]) for at in found):
            found.append(number)
    return found


def _repeated_share(part: Region, parts: Sequence[Region], places: Sequence[int]) -> float:
    """The share that further views of a place fill of an image, be it the place of this part or another."""
    counted = [part, *(parts[at] for at in places if parts[at] is not part and not same_place(parts[at], part))]
    views = sum(one.original_share for one in parts if not any(one is other for other in counted))
    return views + sum(one.repeated for one in parts)
