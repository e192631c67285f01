"""A recorded trajectory before it is replayed, and the closed list of reasons for leaving one out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from PIL import Image

from codev_env.types import IMAGE_PLACEHOLDER

REASONS: dict[str, str] = {
    "unreadable_row": "the row does not have the file's format",
    "missing_field": "a field is missing, empty or of another type",
    "unbalanced_tags": "an opening tag without its end, or the other way round",
    "turn_order": "turns, tool outputs and the answer are not in turn",
    "turn_unreadable": "a turn that the dialect cannot parse",
    "no_answer": "the last turn does not answer",
    "image_count": "not as many images as placeholders",
    "image_missing": "an image is missing or is no image data",
    "image_broken": "an image cannot be decoded or is too small or too narrow",
    "not_expressible": "a turn that the requested dialect cannot express",
    "refused": "the sandbox does not run such a program",
    "error": "a program raised an exception",
    "timeout": "a program took too long",
    "limits": "a program used too much memory, text or images",
    "recorded_error": "a program failed when it was recorded, and such rows were not asked for",
    "error_is_gone": "a program that failed when it was recorded runs here: the next turns react to the failure",
    "images_differ": "a program shows another number of images than was recorded",
}
"""Why a row is left out, by name. The first nine come from reading, the others from converting and replaying."""

_FAILED = re.compile(
    r"^[ \t]*+(?:Traceback \(most recent|(?:\w+\.)*\w*(?:Error|Exception)[ \t]*+:)"
    r"|\b(?:code execution|execution) (?:failed|error)\b|\b\w+Error: ",
    re.IGNORECASE | re.MULTILINE,
)


class Unusable(Exception):  # a verdict about one row, not an error of the program
    """A row is left out: `reason` is one of `REASONS`, `detail` names the value or error that was seen."""

    def __init__(self, reason: str, detail: str) -> None:
        assert reason in REASONS, reason
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


@dataclass(frozen=True)
class Broken:
    """A row that cannot be used.

    Attributes:
        demo_id: As of a `Demonstration`.
        where: File and row.
        digest: As of a `Demonstration`.
        reason: One of `REASONS`.
        detail: The value or error that was seen.
    """

    demo_id: str
    where: str
    digest: str
    reason: str
    detail: str


@dataclass(frozen=True)
class RecordedTurn:
    """One turn as it was recorded.

    Attributes:
        text: Text of the model, up to the end of its code or answer.
        output: The text of the tool's reply, without tags and image placeholders; `""` after the last turn.
        printed: The part of it that the program printed; `None` where the format does not record that.
        sizes: (width, height) of each image in the reply.
        failed: The reply reports an error.
    """

    text: str
    output: str = ""
    printed: str | None = None
    sizes: tuple[tuple[int, int], ...] = ()
    failed: bool = False


@dataclass(frozen=True)
class Demonstration:
    """One recorded trajectory.

    Attributes:
        demo_id: File and row, as `name-number`; unique within a set.
        where: File and row for messages.
        digest: Of everything the row holds, its images' bytes included.
        images: The input images, RGB, as large as they were recorded.
        question: The question with its options, without placeholders, paths and instructions about the format.
        answer: The gold answer where the data has one, else the recorded answer.
        is_gold: `answer` is the gold answer.
        turns: The model's turns in order; the last one answers.
        dialect: The dialect they are written in.
        paths: The paths by which the recorded code opens the input images, as far as the row names them.
        problems: Flaws that do not prevent using it, as a dialect names them.
        meta: Other entries of the row; JSON-able.
    """

    demo_id: str
    where: str
    digest: str
    images: tuple[Image.Image, ...]
    question: str
    answer: str
    is_gold: bool
    turns: tuple[RecordedTurn, ...]
    dialect: str
    paths: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)


def reports_error(output: str) -> bool:
    """Whether a recorded tool output reports a failed program."""
    return _FAILED.search(output) is not None


@dataclass(frozen=True)
class Draft:
    """The texts of a demonstration, as the readers of the formats return them: its images are not read yet.

    Attributes:
        question: As of a `Demonstration`.
        turns: Without the sizes of images.
        inputs: How many input images the prompt holds.
        outputs: How many images the tool's reply to each turn holds.
        gold: The gold answer, `None` where the data has none.
        paths: As of a `Demonstration`.
        meta: As of a `Demonstration`.
    """

    question: str
    turns: tuple[RecordedTurn, ...]
    inputs: int
    outputs: tuple[int, ...]
    gold: str | None = None
    paths: tuple[str, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)


def text_field(row: Mapping[str, Any], name: str) -> str:
    """Return a field that must be a text that is not empty."""
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        raise Unusable("missing_field", f"{name!r} is {type(value).__name__}; a text that is not empty is needed")
    return value


def from_json(value: Any, name: str) -> Any:
    """Return a value that may be written as JSON text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise Unusable("missing_field", f"{name!r} is not JSON ({error})") from error


def without_images(text: str) -> str:
    """Return a text without image placeholders and the blanks around it."""
    return text.replace(IMAGE_PLACEHOLDER, "").strip()
