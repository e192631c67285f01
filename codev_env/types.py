"""The records that flow through the project.

All boxes are `(x1, y1, x2, y2)` in pixels of the original image, right and bottom exclusive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Box = tuple[int, int, int, int]
Point = tuple[float, float]
Source = Literal["real", "generated"]
ActionKind = Literal["code", "answer", "invalid"]
Stop = Literal["ok", "error", "refused", "timeout", "memory", "output", "result"]

IMAGE_PLACEHOLDER = "<image>"
"""Marks, in the text of an observation, where each of its images stands."""


@dataclass(frozen=True)
class Task:
    """One image (or several) and a question, with what a judge needs to know.

    Attributes:
        task_id: Unique and stable within its task set.
        images: The decoded RGB images; treat them as read-only.
        question: The question without its choices.
        answer: The gold answer; one of `choices` where there are any.
        choices: The options in the order shown to the model, without letters.
        targets: Boxes of the evidence, in pixels of `images[0]`. Empty where unknown.
        transform: Names of what was done to the original image, in order.
        source: `"real"` or `"generated"`.
        category: For example `"direct_attributes"` or `"relative_position"`.
        meta: Anything else a data set knows; JSON-able.
    """

    task_id: str
    images: tuple[Image.Image, ...]
    question: str
    answer: str
    choices: tuple[str, ...] = ()
    targets: tuple[Box, ...] = ()
    transform: tuple[str, ...] = ()
    source: Source = "generated"
    category: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def image(self) -> Image.Image:
        """The first image."""
        return self.images[0]


@runtime_checkable
class TaskSet(Protocol):
    """A sized, indexable sequence of tasks that decodes images only when a task is asked for."""

    name: str
    source: Source

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Task: ...

    def index_of(self, task_id: str) -> int:
        """Return the index of a task; raises `TaskError` if there is none."""
        ...


@dataclass(frozen=True)
class Code:
    """A turn that runs a program.

    Attributes:
        code: The program as the model wrote it.
        problems: Flaws of format that did not prevent parsing.
        image_index: Which image it works on, in dialects that choose one: inputs from 0, then every image shown.
    """

    code: str
    problems: tuple[str, ...] = ()
    image_index: int = 0


@dataclass(frozen=True)
class Answer:
    """A turn that answers and so ends the episode."""

    text: str
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Invalid:
    """A turn that could not be parsed; `reason` is told to the model."""

    reason: str
    problems: tuple[str, ...] = ()


Turn = Code | Answer | Invalid


@dataclass(frozen=True)
class Execution:
    """What ran, never judged.

    Attributes:
        stdout: Printed text, without the lines that only name a returned image.
        images: RGB images handed over by the program, in order.
        error: One message the model can act on, or `None`.
        stop: Why it ended: `"ok"`, `"error"` (exception), `"refused"` (language rules), `"timeout"`, `"memory"`,
            `"output"` (too much text) or `"result"` (images that cannot be accepted).
        wall_s: Wall-clock seconds.
        names: For each image the file name it was saved under, or `""`.
        repairs: What was repaired in the code before it ran.
    """

    stdout: str = ""
    images: tuple[Image.Image, ...] = ()
    error: str | None = None
    stop: Stop = "ok"
    wall_s: float = 0.0
    names: tuple[str, ...] = ()
    repairs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Region:
    """Where the pixels of one returned image come from.

    Attributes:
        polygon: The four points of the original that the corners (top left, top right, bottom right, bottom left) of
            the output show, in pixels; where a frame of other pixels surrounds what is shown, such as a plot's
            margins, the corners of the part inside it. `None` where unknown.
        box: Bounding box of `polygon`, clipped to the image; `None` where unknown.
        image_index: Which of the task's images.
        orientation: `"rot0" | "rot90" | "rot180" | "rot270"` (counter-clockwise, as PIL rotates) or `"flip_h"`,
            `"flip_v"`, `"transpose"`, `"transverse"`; `None` where unknown or not a multiple of 90 degrees.
        scale: Output pixels per original pixel, along the side that is shown smaller.
        original_share: Share of the output's pixels that stem from the original, 0 to 1.
        how: `"probe"`, `"match"`, `"unknown"`, or `"late"` where there was no time to find out.
        seen: Which points of the part that `polygon` outlines stem from the original: a grid of bool, shape
            (rows, columns), evenly spread over it. `None` where all do, or where unknown. Not compared.
    """

    polygon: tuple[Point, Point, Point, Point] | None = None
    box: Box | None = None
    image_index: int = 0
    orientation: str | None = None
    scale: float | None = None
    original_share: float = 0.0
    how: Literal["probe", "match", "unknown", "late"] = "unknown"
    seen: NDArray[np.bool_] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class StepScore:
    """A judge's score of one tool call.

    Attributes:
        value: -1 to 1, or `None` if there was nothing to judge.
        why: One line for people.
        faithful: The tool call clearly showed a target as its main content.
        failed: The judge could not be had, and its option says to go on: `value` is `None`, and the episode must not
            be trained on.
    """

    value: float | None
    why: str = ""
    faithful: bool = False
    failed: bool = False


@dataclass
class Step:
    """One turn of an episode as the environment knows it.

    Attributes:
        action: The model's raw text.
        turn: What it parsed to.
        execution: What ran, for a code turn.
        regions: What each image of `execution` shows.
        score: The judge's score of a code turn.
        probed: Whether the answer that the policy would give is right, before and after this turn; `None` where nobody
            asked it. An agent loop may set it after the step; rewards that use it (`taco`) are paid with the next one.
    """

    action: str
    turn: Turn
    execution: Execution | None = None
    regions: tuple[Region, ...] = ()
    score: StepScore | None = None
    probed: tuple[bool, bool] | None = None


@dataclass
class Episode:
    """An episode so far: what every reward term is a function of.

    Attributes:
        task: The task, with its answer and targets.
        steps: The turns taken, in order.
        answer: What was answered; `None` until then.
        is_correct: The scorer calls that answer right.
        stop_reason: `"answer"`, `"max_turns"`, or why it was cut off; `""` while it runs.
    """

    task: Task
    steps: list[Step] = field(default_factory=list)
    answer: str | None = None
    is_correct: bool = False
    stop_reason: str = ""

    @property
    def done(self) -> bool:
        """The episode has ended, by answer or by the turn budget."""
        return bool(self.stop_reason)

    @property
    def judge_failed(self) -> bool:
        """Some tool call could not be judged, because the judge could not be had: not to be trained on."""
        return any(s.score is not None and s.score.failed for s in self.steps)

    @property
    def is_faithful(self) -> bool:
        """Some tool call showed a target as its main content."""
        return any(s.score is not None and s.score.faithful for s in self.steps)
