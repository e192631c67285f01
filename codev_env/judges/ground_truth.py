"""Scores a tool call by the regions it showed against the boxes of the evidence.

An image that shows a part of the original is worth how well it shows the target it shows best, `value` in `evidence`,

- times 3/4 while another target has not been shown clearly by this step or an earlier one: one of several is partial,
- times 3/4 if the task's image was turned and the crop is still turned, times 1/2 if it is turned the wrong way,
- times 1 while the episode's crops (of up to a quarter of the image each) together show less than a quarter of the
  image, falling to 0 where they show half of it: tiling the image is no search.

An image that shows nine tenths of the original or more is worth 0, and if it turns the image

- 1/2 where that makes a turned task upright, once, if no wrong turn was shown before;
- -1/4 if it turns it the wrong way.

An image is *faithful* (clearly shows a target as its main content: coverage at least 0.75, everything else in
`evidence` at least 0.5) in any orientation, unless tiling has brought its value below half. A step is faithful if at
least half of its images are, and its value is the mean over them, so that many crops are no advantage; a step without
an image is worth 0. Red lines (after CodeV, arXiv 2511.19661) are worth -1/2: a program that ends with an error, and an
image that

- reaches out of the original by more than 5 % of its area, or is one flat colour that stems from nowhere (invalid
  coordinates);
- is an input unchanged, or shows what an earlier step showed (no-op).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image

from codev_env.errors import JudgeError
from codev_env.geometry import iou
from codev_env.judges.evidence import Showing, area_share, showing, union_share
from codev_env.provenance.coordinates import area, clip
from codev_env.transforms import CROP, needed, orientation
from codev_env.types import Region, Step, StepScore, Task

RED_LINE = -0.5
UPRIGHT, TURNED_WRONG = 0.5, -0.25
PARTIAL, STILL_TURNED, WRONG_TURN = 0.75, 0.75, 0.5
_WHOLE = 0.9
_TILE, _TILED = 0.25, 0.5
_OUTSIDE = 0.05
_SAME_IOU = 0.95
_SAME_LEVELS = 2.0
_AS_GIVEN = "rot0"


class JudgedImage(NamedTuple):
    """One returned image and what it shows."""

    region: Region
    image: Image.Image


class ImageScore(NamedTuple):
    """The score of one returned image."""

    value: float
    why: str
    faithful: bool = False


class GroundTruthJudge:
    """Compares where the returned pixels come from with the task's target boxes; formulas in the module's docstring."""

    name = "ground_truth"

    def score(self, task: Task, step: Step, history: Sequence[Step]) -> StepScore:
        """Score a code turn; raises `JudgeError` for a task without targets."""
        if not task.targets:
            raise JudgeError(f"task {task.task_id!r} has no target boxes: use judge='auto' or judge='none'.")
        if step.execution is None:
            return StepScore(None, "no code ran")
        if step.execution.error is not None:
            return StepScore(RED_LINE, f"avoidable error ({step.execution.stop})")
        shown = _shown(step)
        if not shown:
            return StepScore(0.0, "no image")
        if any(region.how == "late" for region, _ in shown):
            return StepScore(None, "no time to find out what is shown: is the machine overloaded?", failed=True)
        scores = _Scoring(task, [pair for earlier in history for pair in _shown(earlier)], shown).scores()
        value = sum(score.value for score in scores) / len(scores)
        # Of many crops in one call, one shows a target by chance.
        faithful = sum(score.faithful for score in scores) >= len(scores) / 2
        return StepScore(value, "; ".join(score.why for score in scores), faithful)


class _Scoring:
    """The images of one step, scored in the light of what the episode showed before."""

    def __init__(self, task: Task, earlier: list[JudgedImage], shown: list[JudgedImage]) -> None:
        self.task, self.earlier, self.shown = task, earlier, shown
        self.size = task.image.size
        undo = needed(task.transform) - {CROP}
        self.upright = orientation(*undo) if undo else _AS_GIVEN
        placed = [region for region, _ in earlier + shown if region.polygon is not None and region.image_index == 0]
        self.wholes = [region for region in placed if area_share(region, self.size) >= _WHOLE]
        tiles = [region for region in placed if area_share(region, self.size) <= _TILE]
        explored = union_share(tiles, self.size)
        self.search = min(1.0, max(0.0, (_TILED - explored) / (_TILED - _TILE)))
        self.clear = {
            i
            for i, target in enumerate(task.targets)
            if any(showing(region, target, self.size).clear for region in placed)
        }

    def scores(self) -> list[ImageScore]:
        return [self._score(shown) for shown in self.shown]

    def _score(self, shown: JudgedImage) -> ImageScore:
        region, image = shown
        if region.polygon is None or region.box is None:
            return _score_placeless(region, image)
        original = self.task.images[region.image_index]
        if _outside(region, original.size) > _OUTSIDE:
            return ImageScore(RED_LINE, "invalid coordinates: reaches out of the image")
        if image.size == original.size and _unchanged(region, image, original):
            return ImageScore(RED_LINE, "no-op: the image unchanged")
        if region.image_index != 0:
            return ImageScore(0.0, "not the image with the target")
        if any(region is whole for whole in self.wholes):
            return self._score_whole(region)
        if any(_repeats(shown, before) for before in self.earlier):
            return ImageScore(RED_LINE, "no-op: shown before")
        return self._score_crop(region)

    def _score_whole(self, region: Region) -> ImageScore:
        """An overview shows no evidence, but a turned task has to be turned back."""
        turn = region.orientation
        if turn in (None, _AS_GIVEN):
            return ImageScore(0.0, "the whole image")
        if turn != self.upright:
            return ImageScore(TURNED_WRONG, f"the whole image, turned the wrong way ({turn})")
        turns = {whole.orientation for whole in self.wholes} - {None, _AS_GIVEN, self.upright}
        if turns or any(before.region.orientation == self.upright for before in self.earlier):
            return ImageScore(0.0, "the whole image, upright, but not at the first attempt")
        return ImageScore(UPRIGHT, "the whole image, turned upright")

    def _score_crop(self, region: Region) -> ImageScore:
        views = [showing(region, target, self.size) for target in self.task.targets]
        index = max(range(len(views)), key=lambda i: (views[i].value, views[i].coverage))
        value, why = views[index].value, _describe(views[index], area_share(region, self.size))
        if value == 0.0:
            return ImageScore(0.0, why)
        for applies, factor, reason in (
            (len(self.clear | {index}) < len(views), PARTIAL, "one of several targets"),
            (region.orientation == _AS_GIVEN != self.upright, STILL_TURNED, "still turned"),
            (region.orientation not in (None, _AS_GIVEN, self.upright), WRONG_TURN, "turned the wrong way"),
            (self.search < 1, self.search, "tiles much of the image"),
        ):
            if applies:
                value, why = value * factor, f"{why}, {reason} x{factor:.2f}"
        return ImageScore(value, why, self.search >= 0.5 and any(view.clear for view in views))


def _describe(view: Showing, share_of_image: float) -> str:
    text = f"coverage {view.coverage:.2f}, area {share_of_image:.3f} of the image, compact {view.compact:.2f}"
    if min(view.detail, view.share) < 0.995:
        text += f", detail {view.detail:.2f}, original share {view.share:.2f}"
    return text


def _score_placeless(region: Region, image: Image.Image) -> ImageScore:
    if region.how == "unknown":
        return ImageScore(0.0, "of unknown origin")
    if all(low == high for low, high in _extrema(image)):
        return ImageScore(RED_LINE, "invalid coordinates: shows nothing of the image")
    return ImageScore(0.0, "drawn or generated")


def _shown(step: Step) -> list[JudgedImage]:
    """The images of a step with their regions; `Region()` (unknown) where none was traced."""
    images = step.execution.images if step.execution else ()
    regions = step.regions + (Region(),) * (len(images) - len(step.regions))
    return [JudgedImage(region, image) for region, image in zip(regions, images, strict=False)]


def _outside(region: Region, size: tuple[int, int]) -> float:
    """Share of a straight crop's area that lies outside the original; a tilted frame always sticks out a little."""
    if region.polygon is None or region.orientation is None:
        return 0.0
    whole = area(region.polygon)
    return 1 - area(clip(region.polygon, (0, 0, *size))) / whole if whole else 0.0


def _unchanged(region: Region, image: Image.Image, original: Image.Image) -> bool:
    """Whether an image of the original's size is the original, in every 16th row: all of 4K take longer than a step."""
    if region.box != (0, 0, *original.size) or region.orientation != _AS_GIVEN:
        return False
    rows = original.width, max(1, original.height // 16)
    samples = [one.resize(rows, Image.Resampling.NEAREST).tobytes() for one in (image, original)]
    return samples[0] == samples[1]


def _repeats(shown: JudgedImage, earlier: JudgedImage) -> bool:
    """Whether an image shows what an earlier one showed, neither enhanced nor enlarged."""
    (region, image), (before, before_image) = shown, earlier
    if region.box is None or before.box is None or region.image_index != before.image_index:
        return False
    same_place = iou(region.box, before.box) >= _SAME_IOU and region.orientation == before.orientation
    if not same_place or max(image.size) > 1.2 * max(before_image.size):
        return False
    small = [
        np.asarray(x.resize((32, 32), Image.Resampling.BOX, reducing_gap=1.0), float) for x in (image, before_image)
    ]
    return bool(np.abs(small[0] - small[1]).mean() <= _SAME_LEVELS)


def _extrema(image: Image.Image) -> list[tuple[int, int]]:
    return [band.getextrema() for band in image.split()]  # type: ignore[misc]
