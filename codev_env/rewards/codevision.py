r"""The terms of CodeVision (arXiv 2512.03746), read off what tool calls showed instead of off their code.

An *operation* is the difference between a returned image and the task's image:

- a turn or mirror (`"rotate_90"`, ..., see `codev_env.transforms`): the image's orientation is not that of the
  task's image;
- `"crop"`: it shows less than 90 % of the area of the task's image.

S is the set of operations that the task needs: what undoes its transform, and `"crop"` where it asks for one. U is the
set of operations on all images returned so far that are views of a task's image (`terms.is_view`). A name in a comment,
a description or a string is in neither, and `np.rot90(a, 3)`, two half turns, slicing and `Image.transpose` count as
what they come to.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator

import numpy as np
from PIL import Image

from codev_env.geometry import area, image_of, iou
from codev_env.rewards.terms import calls, is_view, written
from codev_env.transforms import CROP, IDENTITY, TRANSFORMS, needed, orientation, transform_image
from codev_env.types import Code, Episode, Region, Task

CROP_SHARE = 0.9
"""Largest share of the image's area that a crop shows."""
ENLARGED = 1.5
"""Least scale, in output pixels per original pixel, at which an image counts as enlarged."""
FREE_CALLS = 2
"""Calls that `usage` never charges for."""
LEAST_MUST = 0.1
"""Value of `must` below which `gated_outcome` is scaled down."""
_GRID = 16
_RECOLOURED = 12.0
_TURN_OF = {orientation(name): name for name in TRANSFORMS}


def needed_operations(task: Task) -> frozenset[str]:
    """Return S: what undoes `task.transform`, and `"crop"` where that or the data set's own list asks for it.

    MVToolBench and the training sets keep that list as `task.meta["transform"]`.
    """
    asked = task.meta.get("transform") or ()
    return needed((*task.transform, *((CROP,) if CROP in asked else ())))


def operations(region: Region, task: Task) -> frozenset[str]:
    """Return the operations that one image shows; none where its place is unknown or it is mostly drawn."""
    if not is_view(region) or region.box is None:
        return frozenset()
    turn = _TURN_OF.get(region.orientation or "")
    width, height = task.images[region.image_index].size
    crops = area(region.box) < CROP_SHARE * width * height
    return frozenset({turn} if turn else ()) | frozenset({CROP} if crops else ())


def used_operations(episode: Episode) -> frozenset[str]:
    """Return U: the operations that the images so far show."""
    return frozenset().union(*(operations(region, episode.task) for region, _ in _views(episode)))


def gated_outcome(episode: Episode) -> float:
    """1 if the answer is right, else 0; times r_must where S has a crop and r_must < 0.1."""
    if not episode.is_correct:
        return 0.0
    return must(episode) if gated(episode) else 1.0


def gated(episode: Episode) -> bool:
    """Whether S has a crop and r_must < 0.1: the crop that the task needs was not made."""
    return CROP in needed_operations(episode.task) and must(episode) < LEAST_MUST


def must(episode: Episode) -> float:
    """r_must = min(1, (|turns of S that are in U| + IoU of the best crop, if S has one) / |S|), 0 for an empty S.

    With several targets, the IoU is the mean over them of each one's best crop.
    """
    wanted, used = needed_operations(episode.task), used_operations(episode)
    if not wanted:
        return 0.0
    crop = max(_ious(episode), default=0.0) if CROP in wanted else 0.0
    return min(1.0, (len((wanted - {CROP}) & used) + crop) / len(wanted))


def well_formed(episode: Episode) -> float:
    """1 while the turns open with `<think>` and close what they open; a finished episode ends with its one answer.

    Of all the text that the model wrote: it begins with `<think>`, every `<think>` is closed, and once the episode has
    ended there is exactly one `<answer>...</answer>`, at its very end and not inside of the thinking.

    Source: `_compute_format_reward` of verl/workers/reward_manager/uvtr.py in the released code.
    """
    return float(not _flaw(episode))


def why_format(episode: Episode) -> str:
    """Say what the first flaw is."""
    return _flaw(episode) or "no flaw"


def exact(episode: Episode) -> float:
    """1 if S is not empty and U is the same set, else 0.

    Source: `_exact_match_reward` of verl/experimental/agent_loop/agent_loop.py in the released code.
    """
    wanted = needed_operations(episode.task)
    return float(bool(wanted) and wanted == used_operations(episode))


def emerge(episode: Episode) -> float:
    """1 if the answer is right and some image shows an operation other than turns, mirrors and crops, else 0.

    These are: a view enlarged 1.5 times or more; a view with other colours (mean difference of more than 12 levels on a
    16 x 16 grid).

    Source: `_emerging_tool_bonus` of the released code, where turns, mirrors and crops are the core operations.
    """
    if not episode.is_correct:
        return 0.0
    for region, image in _views(episode):
        if (region.scale or 0.0) >= ENLARGED or _recoloured(region, image, episode.task):
            return 1.0
    return 0.0


def usage(episode: Episode) -> float:
    """c_usage = max(0, calls - max(2, |S|))."""
    return float(max(0, calls(episode) - max(FREE_CALLS, len(needed_operations(episode.task)))))


def spurious(episode: Episode) -> float:
    """c_spur = the number of turns and mirrors in U, if S has none."""
    if needed_operations(episode.task) - {CROP}:
        return 0.0
    return float(len(used_operations(episode) - {CROP}))


def improve(episode: Episode) -> float:
    """The sum over crops of max(0, IoU - best IoU before), from the second crop on, if S has a crop."""
    if CROP not in needed_operations(episode.task):
        return 0.0
    # The running best of several targets never falls: the sum is its last value minus its first.
    best = list(_ious(episode))
    return best[-1] - best[0] if best else 0.0


def order(episode: Episode) -> float:
    """1 if S and U are the same set of a turn and a crop, and the turn was seen no later than the crop, else 0."""
    wanted = needed_operations(episode.task)
    if len(wanted) < 2 or CROP not in wanted or used_operations(episode) != wanted:
        return 0.0
    for region, _ in _views(episode):
        shown = operations(region, episode.task)
        if shown:
            return float(bool(shown - {CROP}))
    return 0.0


def why_operations(episode: Episode) -> str:
    """Say what was needed, what was shown and how well the best crop fits."""
    wanted, used = needed_operations(episode.task), used_operations(episode)
    text = f"needed {_names(wanted)}, shown {_names(used)}"
    return text + (f", IoU {max(_ious(episode), default=0.0):.2f}" if CROP in wanted else "")


def _flaw(episode: Episode) -> str:
    """The first flaw of the text that the model wrote; empty where there is none."""
    text = written(episode).strip()
    if not text.startswith("<think>"):
        return "it does not begin with <think>"
    if text.count("<think>") != text.count("</think>"):
        return "unbalanced <think>"
    answers = _spans(text, "answer")
    if episode.done and len(answers) != 1:
        return f"{len(answers)} answers"
    if episode.done and not text.endswith("</answer>"):
        return "text after the answer"
    starts = [start for start, _ in answers]
    inside = (bisect(starts, start) < bisect(starts, end - 1) for start, end in _spans(text, "think"))
    return "an answer inside of <think>" if any(inside) else ""


def _spans(text: str, tag: str) -> list[tuple[int, int]]:
    """Start and end of each `<tag>...</tag>`, from left to right and as short as possible; in linear time."""
    found, end = [], 0
    while (start := text.find(f"<{tag}>", end)) >= 0 and (close := text.find(f"</{tag}>", start)) >= 0:
        end = close + len(f"</{tag}>")
        found.append((start, end))
    return found


def _views(episode: Episode) -> Iterator[tuple[Region, Image.Image]]:
    """The views that the calls returned so far, in order."""
    for step in episode.steps:
        if isinstance(step.turn, Code) and step.execution is not None:
            for region, image in zip(step.regions, step.execution.images, strict=False):
                if is_view(region):
                    yield region, image


def _ious(episode: Episode) -> Iterator[float]:
    """After each crop of an image with targets: the mean over all targets of each one's best IoU so far."""
    best = dict.fromkeys(range(len(episode.task.targets)), 0.0)
    for region, _ in _views(episode):
        on_it = [n for n, target in enumerate(episode.task.targets) if image_of(target) == region.image_index]
        if on_it and region.box and CROP in operations(region, episode.task):
            best |= {n: max(best[n], iou(region.box, episode.task.targets[n])) for n in on_it}
            yield sum(best.values()) / len(best)


def _recoloured(region: Region, image: Image.Image, task: Task) -> bool:
    """Whether a view shows other colours than its place in the original; straight views without a frame only."""
    turns = {"rot0": IDENTITY, **_TURN_OF}
    if region.box is None or region.orientation not in turns or region.original_share < CROP_SHARE:
        return False
    if not _inside(region):
        return False
    original = transform_image(task.images[region.image_index].crop(region.box), turns[region.orientation])
    a, b = (
        np.asarray(x.convert("RGB").resize((_GRID, _GRID), Image.Resampling.BOX), np.float32) for x in (image, original)
    )
    return bool(np.abs(a - b).mean() > _RECOLOURED)


def _inside(region: Region) -> bool:
    """Whether the polygon reaches out of its box, which is clipped to the image, by no more than a pixel."""
    if region.polygon is None or region.box is None:
        return False
    x1, y1, x2, y2 = region.box
    return all(x1 - 1 <= x <= x2 + 1 and y1 - 1 <= y <= y2 + 1 for x, y in region.polygon)


def _names(found: frozenset[str]) -> str:
    return "{" + ", ".join(sorted(found)) + "}"
