"""Reads the images that a program put side by side, where what the output shows as a whole is unknown or in doubt.

Each part is read as if the program had returned it alone, with the same checks, in each of the layouts of `seams`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from codev_env.lazy import LazyProperty
from codev_env.provenance import codes, exact
from codev_env.provenance import coordinates as geometry
from codev_env.provenance.bars import CLEAR
from codev_env.provenance.cuts import Piece
from codev_env.provenance.joints import joined
from codev_env.provenance.outputs import part_of
from codev_env.provenance.panels import WHOLE, parts_of, same_place
from codev_env.provenance.reading import read_code, read_crop
from codev_env.provenance.regions import Bounds, Grid, affine_over, area_of, dice, make_region
from codev_env.provenance.seams import SIZES, Layout, layouts
from codev_env.provenance.weave import WovenPart, read_weave
from codev_env.types import Region

Array = NDArray[np.floating]
Prove = Callable[[Bounds, Sequence[list[WovenPart]]], Region | None]
"""The region of a part of the output by the panels that show the weave of each input, with the runs that it takes."""

_MANY, _FEW = 32, 4
"""Parts that are compared with cuts or coded places, and with the weave, which takes longer."""
_FOUND = 0.8
"""Share of a part that shows the weave of one place, to be that place alone."""


def is_doubtful(region: Region, panels: Sequence[WovenPart]) -> bool:
    """Whether a claim of a whole output by the weave leaves much unseen that the weave itself does not show either."""
    clear = any(panel.score >= CLEAR and panel.found.mean() >= _FOUND for panel in panels)
    return bool(panels) and region.seen is not None and float(region.seen.mean()) < WHOLE and not clear


@dataclass(frozen=True)
class Collage:
    """One output, and what the program made of the coded inputs in its place.

    Attributes:
        output: The image that the program returned.
        coded: What it returned for the pixel code.
        woven: What it returned for the weave.
        images: The input images.
        pieces: What it says it cut out, the newest first.
        secret: Decides with a part where that is looked at.
        prove: Proves a part by the weave.
    """

    output: Image.Image
    coded: Image.Image | None
    woven: Image.Image | None
    images: tuple[Image.Image, ...]
    pieces: Sequence[Piece]
    secret: int
    prove: Prove

    def read(self, region: Region | None, guess: Region | None, panels: Sequence[WovenPart]) -> Region | None:
        """Find what the parts of the output show.

        Args:
            region: What the output was found to show as a whole.
            guess: What most of it may show, if that is unknown.
            panels: What shows the weave, if the pixel code did not place it.

        Returns:
            The regions of the parts, and that of the whole if these bear it out; `None` if no part has a place.
        """
        thorough = region is None or is_doubtful(region, panels) or (not panels and self._is_mixed(region))
        layout, copies = self._best(self._copied)
        if not layout and thorough:
            layout = self._best_shown()
        found = [copies.get(part) or self._coded_region(part) for part in layout]
        for at, part in enumerate(layout):
            found[at] = found[at] or self._proved(part, [one for one in found if one])
        if not any(found):
            return None
        parts = joined(list(zip(layout, found, strict=True)))
        whole = self._continued(parts) if region is None else None
        if whole is not None:
            return whole
        bounds, found = [part for part, _ in parts], [one for _, one in parts]
        return parts_of(bounds, found, region or guess or Region(), self.output.size, thorough)

    @LazyProperty
    def _layouts(self) -> list[Layout]:
        sizes = dict.fromkeys(piece.size for piece in self.pieces)
        return layouts(self.output, islice(sizes, SIZES))

    @LazyProperty
    def _code(self) -> codes.PixelCode:
        return codes.pixel_code(tuple(image.size for image in self.images))

    def _best(self, read: Callable[[Bounds], Region | None], most: int = _MANY) -> tuple[Layout, dict[Bounds, Region]]:
        """The layout of which most pixels belong to parts that each show one place, and these.

        Args:
            read: Finds the place of a part.
            most: Parts that are read.
        """
        known: dict[Bounds, Region | None] = {}
        best: tuple[Layout, dict[Bounds, Region]] = (), {}
        covered = 0
        for layout in self._layouts:
            for part in layout:
                if part not in known:
                    known[part] = read(part) if len(known) < most else None
            found = {part: region for part in layout if (region := known[part]) and region.original_share >= WHOLE}
            area = sum(map(area_of, found))
            if area > covered:
                covered, best = area, (layout, found)
            if covered >= WHOLE * self.output.width * self.output.height:
                break
        return best

    def _best_shown(self) -> Layout:
        """The layout whose parts each show one place to the coded runs, in whatever colours; none of one place."""
        if self._fits((0, 0, *self.output.size), ignore_drawn=True) is not None:
            return ()
        return self._best(self._fits)[0] or self._best(self._place, _FEW)[0]

    def _is_mixed(self, region: Region) -> bool:
        """Whether a claim by the pixel code leaves much unseen, and one map does not explain what was not drawn."""
        unseen = region.seen is not None and float(region.seen.mean()) < WHOLE
        return unseen and self._fits((0, 0, *self.output.size), ignore_drawn=True) is None

    def _fits(self, part: Bounds, ignore_drawn: bool = False) -> Region | None:
        """The place that a part shows if one map explains it; a change of contrast moves it, and leaves a map."""
        if self.coded is None:
            return None
        size = part[2] - part[0], part[3] - part[1]
        grid = Grid((0, 0, *size), dice(self.output, self.secret))
        at = grid.v.ravel() + part[1], grid.u.ravel() + part[0]
        samples = np.asarray(self.coded)[at]
        index, xy = self._code.decode_smooth(samples)
        drawn = (samples == np.asarray(self.output)[at]).all(-1)
        index[drawn] = -1
        if not (index >= 0).any():
            return None
        number = int(np.bincount(index[index >= 0]).argmax())
        chosen = index == number
        least = WHOLE * float((~drawn).sum() if ignore_drawn else len(drawn))
        fit = geometry.fit_affine(grid.uv[chosen], xy[chosen], 1.6 * self._code.step + 0.6, WHOLE)
        if fit is None or fit[1].sum() < least:
            return None
        return make_region(fit[0], (0, 0, *size), self.images[number].size, number, float(fit[1].sum() / len(drawn)))

    def _copied(self, part: Bounds) -> Region | None:
        """The cut that a part equals; it must be there, too, when the inputs are coded."""
        if self.coded is None:
            return None
        output = part_of(self.output, part)
        region = exact.find(output, self.images, self.pieces, self.secret)
        if region is None or region.polygon is None:
            return None
        grid = Grid((0, 0, *output.size), dice(output, self.secret))
        samples = np.asarray(part_of(self.coded, part))[grid.v.ravel(), grid.u.ravel()]
        index, xy = self._code.decode_smooth(samples)
        off = geometry.apply(affine_over(region, (0, 0, *output.size)), grid.uv) - xy
        right = (index == region.image_index) & geometry.both_within(off, 1.6 * self._code.step + 0.6)
        return region if right.mean() >= WHOLE else None

    def _coded_region(self, part: Bounds) -> Region | None:
        if self.coded is None:
            return None
        output, probe = part_of(self.output, part), part_of(self.coded, part)
        crop = read_crop(output, probe, self._code, self.images)
        if crop is not None:
            return crop
        reading = read_code(output, probe, self._code, self.images, self.secret)
        return reading.region if reading is not None and reading.sure and reading.region.polygon is not None else None

    @LazyProperty
    def _panels(self) -> dict[Bounds, list[list[WovenPart]]]:
        return {}

    def _read_weave(self, part: Bounds) -> list[list[WovenPart]]:
        if part not in self._panels:
            probe = None if self.woven is None else part_of(self.woven, part)
            self._panels[part] = [
                [] if probe is None else read_weave(probe, image.size, index) for index, image in enumerate(self.images)
            ]
        return self._panels[part]

    def _place(self, part: Bounds) -> Region | None:
        """The place that most of a part shows by the weave, unproved."""
        for index, some in enumerate(self._read_weave(part)):
            for panel in some:
                share = float(panel.found.mean()) * area_of(panel.bounds) / area_of(part)
                if panel.score >= CLEAR and share >= _FOUND:
                    return make_region(panel.affine, panel.bounds, self.images[index].size, index, share)
        return None

    def _continued(self, parts: Sequence[tuple[Bounds, Region | None]]) -> Region | None:
        """The region of the whole output if it goes on with what its only part with a place shows, by a proof."""
        bounds = 0, 0, *self.output.size
        known = [(part, region.image_index) for part, region in parts if region is not None]
        if len(known) != 1 or not _shares_a_side(known[0][0], bounds):
            return None
        part, index = known[0]
        panel = next(iter(self._read_weave(part)[index]), None)
        if panel is None:
            return None
        start = panel.affine @ (-part[0], -part[1], 1.0)
        affine = np.column_stack([panel.affine[:, :2], start])
        wide = panel._replace(bounds=bounds, affine=affine, found=np.ones((1, 1), bool))
        whole = self.prove(bounds, [[]] * index + [[wide]])
        # Of another crop beside the part, chance and plain areas bear a good share out.
        return whole if whole is not None and whole.original_share >= WHOLE else None

    def _proved(self, part: Bounds, found: Sequence[Region]) -> Region | None:
        """The region of a part by the weave; none of one that another part was found to show."""
        place = self._place(part)
        if place is None or any(same_place(place, region) for region in found):
            return None
        return self.prove(part, self._read_weave(part))


def _shares_a_side(part: Bounds, whole: Bounds) -> bool:
    """Whether a part of an output is as wide or as high as all of it."""
    return part[0::2] == whole[0::2] or part[1::2] == whole[1::2]
