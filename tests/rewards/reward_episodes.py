"""Small episodes, written by hand: a picture of 100 x 80 pixels and what was looked at."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image

from codev_env.transforms import TRANSFORMS, orientation, transform_image
from codev_env.types import Answer, Box, Code, Episode, Execution, Invalid, Region, Step, StepScore, Task

WIDTH, HEIGHT = 100, 80
CALLED = "<think>Look.</think><tool_call>{}</tool_call>"
ANSWERED = "<think>Red.</think><answer>red</answer>"
WHOLE: Box = (0, 0, WIDTH, HEIGHT)
_RAMP = np.indices((HEIGHT, WIDTH)).sum(0).astype(np.uint8)
PICTURE = Image.fromarray(np.stack([_RAMP, 255 - _RAMP, _RAMP // 2], 2))


def task(*transform: str, targets: Sequence[Box] = (), **meta: object) -> Task:
    """A task about `PICTURE`, whose right answer is "red"."""
    return Task("t", (PICTURE,), "Which colour?", "red", targets=tuple(targets), transform=transform, meta=meta)


def region(
    box: Box = WHOLE, orientation: str | None = "rot0", scale: float = 1.0, share: float = 1.0, image_index: int = 0
) -> Region:
    """A region with a known place."""
    x1, y1, x2, y2 = box
    polygon = ((x1, y1), (x2, y1), (x2, y2), (x1, y2))
    return Region(polygon, box, image_index, orientation, scale, share, "probe")


def unknown_region() -> Region:
    """What is known of an image whose place was not found."""
    return Region(original_share=0.0, how="unknown")


def look(*regions: Region, value: float | None = None, images: Sequence[Image.Image] = ()) -> Step:
    """A code turn that returned one image for each region: those given, else what the regions say."""
    shown = tuple(images) or tuple(_shown(one) for one in regions)
    return Step(CALLED, Code("x = 1"), Execution(images=shown), tuple(regions), StepScore(value))


def _shown(one: Region) -> Image.Image:
    turns = {orientation(name): name for name in TRANSFORMS}
    return transform_image(PICTURE.crop(one.box or WHOLE), turns.get(one.orientation or "", "identity"))


def error() -> Step:
    """A code turn that failed."""
    return Step(CALLED, Code("1/0"), Execution(error="ZeroDivisionError", stop="error"), (), StepScore(-0.5))


def invalid() -> Step:
    """A turn that could not be read."""
    return Step("no tags", Invalid("no tags"))


def answer(*problems: str) -> Step:
    """The last turn."""
    return Step(ANSWERED, Answer("red", problems))


def episode(what: Task, *steps: Step, correct: bool = True, stop: str | None = None) -> Episode:
    """An episode; finished by the answer if there is one."""
    answered = bool(steps) and isinstance(steps[-1].turn, Answer)
    stop = stop if stop is not None else "answer" if answered else ""
    return Episode(what, list(steps), "red" if answered else None, correct and answered, stop)
