"""Scores a tool call by the regions it showed against the boxes of the evidence.

An image that shows a part of the original is worth how well it shows the target it shows best, `value` in `evidence`,
where all that the episode showed in vain counts as shown (`account`),

- times 3/4 while another target has not been shown clearly by this step or an earlier one: one of several is partial,
- times 3/4 if the task's image was turned and the crop is still turned, times 1/2 if it is turned the wrong way.

An image that shows nine tenths of the original or more is worth 0, and if it turns the image

- 1/2 where that makes a turned task upright, once, if no wrong turn was shown before;
- -1/4 if it turns it the wrong way.

An image is *faithful* (clearly shows a target as its main content: coverage at least 0.75, everything else in
`evidence` at least 0.5) in any orientation. A step is faithful if at least half of its images are, and its value is the
mean over them, so that many crops are no advantage; a step without an image is worth 0. An episode is faithful if some
step is, and all that it shows until its end leaves one of the finds within the limit.

Red lines (after CodeV, arXiv 2511.19661) are worth -1/2: a program that ends with an error, and an image that

- reaches out of the original by more than 5 % of its area, or is one flat colour that stems from nowhere (invalid
  coordinates);
- is an input unchanged, or shows what an earlier step showed (no-op).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import NamedTuple

import numpy as np
from PIL import Image

from codev_env.errors import ConfigError, JudgeError
from codev_env.geometry import iou
from codev_env.judges.account import Account, JudgedImage, JudgedLook
from codev_env.judges.evidence import TOTAL, ModelView, Showing
from codev_env.judges.images import as_given
from codev_env.provenance.coordinates import area, clip
from codev_env.transforms import CROP, needed, orientation
from codev_env.types import Region, Step, StepScore, Task

RED_LINE = -0.5
MOST_POWER = 16.0
UPRIGHT, TURNED_WRONG = 0.5, -0.25
PARTIAL, STILL_TURNED, WRONG_TURN = 0.75, 0.75, 0.5
_OUTSIDE = 0.05
_SAME_IOU = 0.95
_SAME_LEVELS = 2.0
_AS_GIVEN = "rot0"
DEFINITION = "boxes 2"
"""Name and version of the definition of *faithful*; counted up with every change of what is faithful."""
_VIEW, _POWER, _MARGIN = r"view of (\d+) pixels", r"detail\^([\d.]+)", r"detail of ([\d.]+) targets"


class ImageScore(NamedTuple):
    """The score of one returned image, and how it shows the target that it shows best, where it shows any place."""

    value: float
    why: str
    faithful: bool = False
    view: Showing | None = None


@dataclass(frozen=True)
class JudgedStep:
    """A code turn as the judge sees it: its score, and that of each of its images."""

    score: StepScore
    images: tuple[ImageScore, ...] = ()


class GroundTruthJudge:
    """Compares where the returned pixels come from with the task's target boxes; formulas in the module's docstring.

    Args:
        view_pixels: The policy sees an image at no more than this many pixels, so that a crop of more is worth less;
            `None`: as large as it is.
        detail_power: Exponent of detail; more than 1 asks for a crop that fills less of the view.
        detail_margin: With a view, a crop of so many times the target's area has detail enough, however large the
            target is; `None`: only a crop that the policy sees in full detail has.

    Raises:
        ConfigError: A number that cannot be used.
    """

    name = "ground_truth"

    def __init__(
        self, view_pixels: int | None = None, detail_power: float = 1.0, detail_margin: float | None = None
    ) -> None:
        if view_pixels is not None and not (_is_number(view_pixels) and view_pixels == int(view_pixels) >= 1):
            raise ConfigError(f"view_pixels is {view_pixels!r}; it must be a number of pixels, at least 1, or None.")
        if not (_is_number(detail_power) and 0 < detail_power <= MOST_POWER):
            raise ConfigError(f"detail_power is {detail_power!r}; it must be above 0 and at most {MOST_POWER}.")
        if detail_margin is not None and not (_is_number(detail_margin) and detail_margin >= 1):
            raise ConfigError(f"detail_margin is {detail_margin!r}; it must be at least 1, or None.")
        self.view = ModelView(view_pixels, float(detail_power), detail_margin)

    @property
    def definition(self) -> str:
        """The definition of *faithful*: its version, and the view if detail is measured by one."""
        parts = [DEFINITION]  # `from_definition` reads the others again
        if self.view.pixels is not None:
            parts.append(f"view of {self.view.pixels} pixels")
        if self.view.power != 1:
            parts.append(f"detail^{self.view.power:g}")
        if self.view.pixels is not None and self.view.margin is not None:
            parts.append(f"detail of {self.view.margin:g} targets")
        return ", ".join(parts)

    @classmethod
    def from_definition(cls, definition: str) -> GroundTruthJudge:
        """Return the judge of today's version with the view that a recorded definition names; none if it names none."""
        found = (re.search(pattern, definition) for pattern in (_VIEW, _POWER, _MARGIN))
        pixels, power, margin = (float(one[1]) if one else None for one in found)
        return cls(None if pixels is None else int(pixels), 1.0 if power is None else power, margin)

    def for_view(self, view_pixels: int) -> GroundTruthJudge:
        """Return this judge for a policy that sees an image at no more than `view_pixels` pixels."""
        return GroundTruthJudge(view_pixels, self.view.power, self.view.margin)

    def score(self, task: Task, step: Step, history: Sequence[Step]) -> StepScore:
        """Score a code turn; raises `JudgeError` for a task without targets."""
        return self.examine(task, step, history).score

    def examine(self, task: Task, step: Step, history: Sequence[Step]) -> JudgedStep:
        """Score a code turn, and each of its images; raises `JudgeError` for a task without targets."""
        if not task.targets:
            raise JudgeError(f"task {task.task_id!r} has no target boxes: use judge='auto' or judge='none'.")
        if step.execution is None:
            return JudgedStep(StepScore(None, "no code ran"))
        shown = _shown(step)
        if step.execution.error is None and any(region.how == "late" for region, _ in shown):
            why = "no time to find out what is shown: is the machine overloaded?"
            return JudgedStep(StepScore(None, why, failed=True))
        scoring = _Scoring(task, [pair for earlier in history for pair in _shown(earlier)], shown, self.view)
        spread = scoring.account.spread
        score = StepScore(0.0, "no image", any_crop=False, spread=spread, definition=self.definition)
        if step.execution.error is not None:
            why = f"avoidable error ({step.execution.stop})"
            return JudgedStep(replace(score, value=RED_LINE, why=why))
        if not shown:
            return JudgedStep(score)
        scores = scoring.scores()
        score = replace(
            score,
            value=sum(one.value for one in scores) / len(scores),
            why="; ".join(one.why for one in scores),
            # Of many crops in one call, one shows a target by chance.
            faithful=sum(one.faithful for one in scores) >= len(scores) / 2,
            any_crop=any(look.finds for looks in scoring.looks for look in looks),
        )
        return JudgedStep(score, tuple(scores))


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


class _Scoring:
    """The images of one step, scored in the light of what the episode showed before."""

    def __init__(self, task: Task, earlier: list[JudgedImage], shown: list[JudgedImage], view: ModelView) -> None:
        self.task, self.earlier, self.shown = task, earlier, shown
        undo = needed(task.transform) - {CROP}
        self.upright = orientation(*undo) if undo else _AS_GIVEN
        self.account = Account(task, earlier + shown, view)
        self.looks = self.account.looks[len(earlier) :]

    def scores(self) -> list[ImageScore]:
        return [self._score(shown, looks) for shown, looks in zip(self.shown, self.looks, strict=True)]

    def _score(self, shown: JudgedImage, looks: Sequence[JudgedLook]) -> ImageScore:
        region, image = shown
        if region.polygon is None or region.box is None:
            return _score_placeless(region, image)
        original = self.task.images[region.image_index]
        if _outside(region, original.size) > _OUTSIDE:
            return ImageScore(RED_LINE, "invalid coordinates: reaches out of the image")
        was_shown = self.task.shown is None or region.image_index < self.task.shown
        if was_shown and image.size == original.size and _unchanged(region, image, original):
            return ImageScore(RED_LINE, "no-op: the image unchanged")
        if not looks and was_shown:
            return (
                self._score_whole(region)
                if region.image_index == 0
                else ImageScore(0.0, "not the image with the target")
            )
        if any(_repeats(shown, before) for before in self.earlier):
            return ImageScore(RED_LINE, "no-op: shown before")
        if not looks:
            return ImageScore(0.0, "a whole frame")
        return max(map(self._score_look, looks), key=lambda score: (score.faithful, score.value))

    def _score_whole(self, region: Region) -> ImageScore:
        """An overview shows no evidence, but a turned task has to be turned back."""
        turn = region.orientation
        if turn in (None, _AS_GIVEN):
            return ImageScore(0.0, "the whole image")
        if turn != self.upright:
            return ImageScore(TURNED_WRONG, f"the whole image, turned the wrong way ({turn})")
        turns = {whole.orientation for whole in self.account.wholes} - {None, _AS_GIVEN, self.upright}
        if turns or any(before.region.orientation == self.upright for before in self.earlier):
            return ImageScore(0.0, "the whole image, upright, but not at the first attempt")
        return ImageScore(UPRIGHT, "the whole image, turned upright")

    def _score_look(self, look: JudgedLook) -> ImageScore:
        views = [self.account.showing(look, target) for target in range(len(self.task.targets))]
        best = max(range(len(views)), key=lambda i: (views[i].value, views[i].coverage))
        view, region = views[best], look.region
        value, why = view.value, describe(view)
        if value > 0.0:
            for applies, factor, reason in (
                (len(self.account.found | {best}) < len(views), PARTIAL, "one of several targets"),
                (region.orientation == _AS_GIVEN != self.upright, STILL_TURNED, "still turned"),
                (region.orientation not in (None, _AS_GIVEN, self.upright), WRONG_TURN, "turned the wrong way"),
            ):
                if applies:
                    value, why = value * factor, f"{why}, {reason} x{factor:.2f}"
        return ImageScore(value, why, any(one.clear for one in views), view)


def describe(view: Showing) -> str:
    """Say how a look shows a target: every quantity that decides whether it is faithful, and which one fails."""
    text = f"coverage {view.coverage:.2f}, tightness {view.tightness:.3f}, compact {view.compact:.2f}"
    text += f" (shows {view.shown:.4f} of the image, limit {view.limit:.4f})"
    if view.total > view.shown:
        text += f", search {view.search:.2f} (shown in all {view.total:.4f}, limit {TOTAL * view.limit:.4f})"
    if min(view.detail, view.share) < 0.995:
        text += f", detail {view.detail:.2f}, original share {view.share:.2f}"
    verdict = f"not clear by {' and '.join(view.missing)}" if view.missing else "clear"
    return f"{text}, {verdict}"


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
    samples = [one.resize(rows, Image.Resampling.NEAREST).tobytes() for one in (image, as_given(original))]
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
