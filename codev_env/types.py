"""The records that flow through the project.

All boxes are `(x1, y1, x2, y2)` in pixels of the original image, right and bottom exclusive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypedDict, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from codev_env.usage import Usage

Box = tuple[int, int, int, int]
Point = tuple[float, float]

Cut = tuple[tuple[int, int], Box]
"""(width, height) of an image, and a box that was cut out of it."""
Source = Literal["real", "generated"]
ActionKind = Literal["code", "answer", "invalid"]
Stop = Literal["ok", "error", "refused", "timeout", "memory", "output", "result"]
StopReason = Literal["", "answer", "max_turns", "max_length", "length", "no_answer", "straggler", "crops shown"]
"""Why an episode ended; `""` while it runs.

The environment ends it with `"answer"` or `"max_turns"`, as which a wrapper's limit on steps counts, too. Others cut it
off: a rollout at its token budget (`"max_length"`) or time limit (`"straggler"`), an adapter at its library's token
budget (`"length"`) or where a reply holds no answer (`"no_answer"`), the comparison of judges after its crops (`"crops
shown"`).
"""

IMAGE_PLACEHOLDER = "<image>"
"""Marks the place of each image in the text of an observation."""


class Observation(TypedDict):
    """The observation of an agent: only what is new since its last turn."""

    text: str
    """The user message, with one `IMAGE_PLACEHOLDER` for each image."""
    images: tuple[NDArray[np.uint8], ...]
    """The images in order, each uint8 of shape (height, width, 3)."""


class StepInfo(TypedDict):
    """The `info` of `reset` and `step`: the same keys each time."""

    task_id: str
    index: int
    turn: int
    action_kind: ActionKind | Literal[""]
    stop_reason: StopReason
    is_correct: bool
    is_faithful: bool
    reward_terms: dict[str, float]
    crop_boxes: tuple[Box | None, ...]
    source: Source


@dataclass(frozen=True)
class Task:
    """One image (or several) and a question, with what a judge needs to know.

    Attributes:
        task_id: Unique and stable within its task set.
        images: The decoded RGB images; treat them as read-only. A sequence that decodes frames of a video when they
            are first read is allowed.
        question: The question without its choices.
        answer: The gold answer; one of `choices` if there are any.
        choices: The options in the order shown to the model, without letters.
        targets: Boxes of the evidence, in pixels of `images[0]`; those on other images are `ImageBox` of
            `codev_env.geometry`. Empty where unknown.
        transform: Names of what was done to the original image, in order.
        source: `"real"` or `"generated"`.
        category: For example `"direct_attributes"` or `"relative_position"`.
        meta: Anything else a data set knows; JSON-able.
        shown: How many of the images the first observation shows; programs have all. `None`: all.
        times: For frames of a video, the second of each image, rising; else empty.
    """

    task_id: str
    images: Sequence[Image.Image]
    question: str
    answer: str
    choices: tuple[str, ...] = ()
    targets: tuple[Box, ...] = ()
    transform: tuple[str, ...] = ()
    source: Source = "generated"
    category: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)
    shown: int | None = None
    times: tuple[float, ...] = ()

    @property
    def shown_images(self) -> tuple[Image.Image, ...]:
        """The images of the first observation."""
        return tuple(self.images[: self.shown])

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
    """A turn that could not be parsed; `reason` is shown to the model."""

    reason: str
    problems: tuple[str, ...] = ()


Turn = Code | Answer | Invalid


@dataclass(frozen=True)
class Execution:
    """The result of running a program, not judged.

    Attributes:
        stdout: Printed text, without the lines that only name a returned image.
        images: RGB images handed over by the program, in order.
        error: One message the model can act on, or `None`.
        stop: Why it ended: `"ok"`, `"error"` (exception), `"refused"` (language rules), `"timeout"`, `"memory"`,
            `"output"` (too much text) or `"result"` (images that cannot be accepted).
        wall_s: Wall-clock seconds.
        names: For each image the file name it was saved under, or `""`.
        repairs: Repairs of the code before it ran.
        reads: Names of files saved by earlier runs that the program opened or handed over. All of them if it listed
            files, asked for one that is missing, was killed, or had the variables of earlier runs. Not recorded in
            trajectories, nor compared.
        saves: Names of the files that it left saved, whatever `stop` is. Not recorded, nor compared.
        cuts: The last parts, up to 64, that it cut out of images and arrays, oldest first: (width, height) of what was
            cut, and the box in it. The process that ran the program says so: a hint, not a fact. Not recorded, nor
            compared.
    """

    stdout: str = ""
    images: Sequence[Image.Image] = ()
    error: str | None = None
    stop: Stop = "ok"
    wall_s: float = 0.0
    names: tuple[str, ...] = ()
    repairs: tuple[str, ...] = ()
    reads: tuple[str, ...] = field(default=(), compare=False)
    saves: tuple[str, ...] = field(default=(), compare=False)
    cuts: tuple[Cut, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class Region:
    """The origin of the pixels of one returned image.

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
        how: `"probe"`, `"match"` or `"unknown"`; `"late"` where the machine did not let the program run again, twice.
        seen: Which points of the part that `polygon` outlines stem from the original: a grid of bool, shape
            (rows, columns), evenly spread over it. `None` where all do, or where unknown. Not compared, nor is `blank`.
        others: What other parts of the same output show, as of a collage; they have none themselves.
        repeated: Share of the output's pixels that show the place once more, and are not in `original_share`.
        blank: At which of the points of `seen` nothing is left of what varies in the original; `None` where at none.
    """

    polygon: tuple[Point, Point, Point, Point] | None = None
    box: Box | None = None
    image_index: int = 0
    orientation: str | None = None
    scale: float | None = None
    original_share: float = 0.0
    how: Literal["probe", "match", "unknown", "late"] = "unknown"
    seen: NDArray[np.bool_] | None = field(default=None, compare=False, repr=False)
    others: tuple[Region, ...] = ()
    repeated: float = 0.0
    blank: NDArray[np.bool_] | None = field(default=None, compare=False, repr=False)

    @property
    def parts(self) -> tuple[Region, ...]:
        """This region and the others of the same output."""
        return (self, *self.others)

    @property
    def traced_share(self) -> float:
        """Share of the output's pixels that stem from the originals, over all parts."""
        return sum(part.original_share + part.repeated for part in self.parts)


@dataclass(frozen=True)
class StepScore:
    """A judge's score of one tool call.

    Attributes:
        value: -1 to 1, or `None` if there was nothing to judge.
        why: One line for people.
        faithful: The tool call clearly showed a target as its main content.
        failed: The judge failed and its options say to continue: no `value`, and the episode must not be trained on.
        any_crop: Some image, judged alone, clearly showed a target: the papers' criterion, which forgives any number
            of other crops. `None`: the same as `faithful`.
        spread: With this call the episode has shown so much of the image that chance explains what it found: it is
            not faithful, even if an earlier call was.
        definition: The definition of *faithful* that was applied; empty where unknown. Not compared.
        usage: The requests that were sent for this score. Not compared.
    """

    value: float | None
    why: str = ""
    faithful: bool = False
    failed: bool = False
    any_crop: bool | None = None
    spread: bool = False
    definition: str = field(default="", compare=False)
    usage: Usage = field(default=Usage(), compare=False)


@dataclass(frozen=True)
class Step:
    """One turn of an episode, in memory and on disk.

    The environment makes it: parsed and run first, then judged, then added to `Episode.steps`. Rewards and judges read
    the fields up to `probed`; those after it are filled in when the finished episode is recorded.

    Attributes:
        action: The model's raw text.
        turn: The parsed action.
        execution: The program's execution, for a code turn.
        regions: For each image of `execution`, the part of the original that it shows.
        score: The judge's score of a code turn.
        probed: Whether the policy's own answer is right, before and after this turn; `None` where it was not probed.
        observation: Text shown after the action; one `IMAGE_PLACEHOLDER` for each image.
        images: Images shown after the action; those of `execution`, enlarged where they are very small.
        crop_boxes: For each shown image the box of the original it shows, `None` where unknown.
        reward: The step's reward.
        reward_terms: The same by term; adds up to `reward`.
    """

    action: str
    turn: Turn
    execution: Execution | None = None
    regions: tuple[Region, ...] = ()
    score: StepScore | None = None
    probed: tuple[bool, bool] | None = None
    observation: str = ""
    images: Sequence[Image.Image] = ()
    crop_boxes: tuple[Box | None, ...] = ()
    reward: float = 0.0
    reward_terms: Mapping[str, float] = field(default_factory=dict)

    @property
    def kind(self) -> ActionKind:
        """The kind of the action."""
        return kind_of(self.turn)

    @property
    def code(self) -> str | None:
        """The program of a code turn."""
        return self.turn.code if isinstance(self.turn, Code) else None

    @property
    def problems(self) -> tuple[str, ...]:
        """Flaws of format in the action."""
        return self.turn.problems

    @property
    def stdout(self) -> str:
        """Text that the program printed."""
        return self.execution.stdout if self.execution else ""

    @property
    def error(self) -> str | None:
        """The program's error message."""
        return self.execution.error if self.execution else None

    @property
    def stop(self) -> Stop | None:
        """Why the program ended; `None` where none ran."""
        return self.execution.stop if self.execution else None

    @property
    def wall_s(self) -> float:
        """Seconds the program ran."""
        return self.execution.wall_s if self.execution else 0.0

    @property
    def score_value(self) -> float | None:
        """The judge's score, -1 to 1; `None` where there is none."""
        return self.score.value if self.score else None

    @property
    def score_why(self) -> str:
        """The judge's reason."""
        return self.score.why if self.score else ""

    @property
    def faithful(self) -> bool:
        """The tool call showed a target as its main content."""
        return self.score is not None and self.score.faithful

    @property
    def any_crop(self) -> bool:
        """Some image of the tool call, judged alone, showed a target as its main content."""
        found = None if self.score is None else self.score.any_crop
        return self.faithful if found is None else found

    @property
    def judge_failed(self) -> bool:
        """The judge failed on the tool call."""
        return self.score is not None and self.score.failed


def kind_of(turn: Turn) -> ActionKind:
    """Return the kind of a turn."""
    return "code" if isinstance(turn, Code) else "answer" if isinstance(turn, Answer) else "invalid"


@dataclass
class Episode:
    """An episode so far: what every reward term is a function of.

    Attributes:
        task: The task, with its answer and targets.
        steps: The turns taken, in order.
        answer: The answer; `None` until it is given.
        is_correct: The scorer calls that answer right.
        stop_reason: Why it ended; `""` while it runs.
        share: Share of the points where the scorer gave a part, see `Score.share`; else `None`.
        scoring: The requests that the scorer sent to a model.
    """

    task: Task
    steps: list[Step] = field(default_factory=list)
    answer: str | None = None
    is_correct: bool = False
    stop_reason: StopReason = ""
    share: float | None = None
    scoring: Usage = Usage()

    @property
    def done(self) -> bool:
        """The episode has ended, by answer or by the turn budget."""
        return bool(self.stop_reason)

    @property
    def judge_failed(self) -> bool:
        """The judge failed on some tool call: the episode must not be trained on."""
        return any(step.judge_failed for step in self.steps)

    @property
    def is_faithful(self) -> bool:
        """Some tool call showed a target as its main content, and the episode has not shown too much else."""
        last = next((step.score for step in reversed(self.steps) if step.score_value is not None), None)
        return any(step.faithful for step in self.steps) and not (last is not None and last.spread)
