"""Signs that an episode only pretends to look, for the filter of a report and for metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from PIL import Image

from codev_env.geometry import image_of, iou
from codev_env.scoring.metrics import is_lazy
from codev_env.trajectory import Trajectory
from codev_env.trajectory.images import ImageFiles, same_images
from codev_env.types import Box, Step

SUSPICIONS = {
    "lazy": "a returned image shows more than 90 % of the input",
    "right, not faithful": "the answer is right, tools were used, and no image clearly shows the evidence",
    "claims a crop": "the text speaks of a crop that was made, and no program returned an image",
    "repeats": "two returned images show the same part of the input",
    "invented pixels": "most of a returned image's pixels do not stem from the input",
    "input unchanged": "a returned image is the whole input as it was given",
}
"""Name and meaning of each sign."""

_SAME_IOU = 0.95
_INVENTED = 0.5
_LOOKED = r"(?:cropped|zoomed|magnified|enlarged|enhanced|rotated)"
_CLAIMS = re.compile(
    rf"\bI(?:'ve| have)?(?: already| just| then)? {_LOOKED}\b"
    rf"|\b(?:after|by|from) (?:cropping|zooming|magnifying|enlarging|rotating|enhancing)\b"
    rf"|\b(?:in|from|on) (?:the|my|this) (?:{_LOOKED}(?:-| )?(?:in )?)(?:image|region|view|area|picture|part|version)\b"
    r"|\b(?:the|my|this) (?:crop|zoomed-in (?:image|view|region)|cropped (?:image|region|area)) "
    r"(?:clearly |now )?(?:shows?|showed|reveals?|revealed|confirms?|confirmed|contains?|is|was)\b",
    re.IGNORECASE,
)


def claims_crop(text: str) -> bool:
    """Whether a model's text speaks of a crop as made: "I zoomed in", "the crop shows", "after cropping"."""
    return _CLAIMS.search(text) is not None


def hallucinates_tool_use(trajectory: Trajectory) -> bool:
    """Whether an episode claims a crop in its text although no program returned an image before."""
    for turn in trajectory.turns:
        if len(turn.images) or turn.regions:
            return False
        # A plan beside the code that makes the crop is not a claim.
        if turn.kind != "code" and claims_crop(turn.action):
            return True
    return False


def suspicions(trajectory: Trajectory) -> tuple[str, ...]:
    """Return the signs of `SUSPICIONS` that an episode shows, in their order."""
    return tuple(name for name, found in zip(SUSPICIONS, _signs(trajectory), strict=True) if found)


def _signs(trajectory: Trajectory) -> Iterator[bool]:
    calls = [turn for turn in trajectory.turns if turn.kind == "code"]
    judged = bool(calls) and all(turn.score_value is not None for turn in calls)
    yield is_lazy(trajectory)
    yield trajectory.is_correct and judged and not trajectory.is_faithful
    yield hallucinates_tool_use(trajectory)
    yield _repeats(calls)
    yield any(r.how in ("probe", "match") and r.traced_share < _INVENTED for turn in calls for r in turn.regions)
    yield any(_unchanged(trajectory, turn) for turn in calls)


def _repeats(calls: list[Step]) -> bool:
    seen: list[Box] = []
    for turn in calls:
        for box in turn.crop_boxes:
            if box is None:
                continue
            if any(image_of(box) == image_of(other) and iou(box, other) >= _SAME_IOU for other in seen):
                return True
            seen.append(box)
    return False


def _unchanged(trajectory: Trajectory, turn: Step) -> bool:
    for place, region in enumerate(turn.regions):
        index = region.image_index
        size = trajectory.size_of(index) if index < len(trajectory.images) else None
        whole = size is not None and region.box == (0, 0, *size) and region.orientation == "rot0" and region.scale == 1
        if whole and not _differ(turn.images[place : place + 1], trajectory.images[index : index + 1]):
            return True
    return False


def _differ(shown: Sequence[Image.Image], original: Sequence[Image.Image]) -> bool:
    """Whether an image of the size of another one has other pixels; files are named by these and not decoded."""
    if isinstance(shown, ImageFiles) and isinstance(original, ImageFiles):
        names = [[path.name for path in files.files] for files in (shown, original)]
        return shown.sizes == original.sizes and names[0] != names[1]
    return [one.size for one in shown] == [one.size for one in original] and not same_images(shown, original)
