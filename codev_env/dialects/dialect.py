"""The base of dialects: how one family of models talks, as pure functions of text."""

from __future__ import annotations

import dataclasses
import functools
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar, Literal

from codev_env.errors import ConfigError
from codev_env.sandbox import REPAIRS
from codev_env.types import IMAGE_PLACEHOLDER, Answer, Box, Code, Execution, Task, Turn

TAGS = ["image", "video"]
"""Tags that data must not be able to write in any dialect: image placeholders, and all that dialects of this package
declare."""

_PACKAGE = __name__.rpartition(".")[0]
_TAG = re.compile(r"[A-Za-z][\w.:-]*")

HINTS = {
    "error": "Fix the code or answer.",
    "refused": "Rewrite it without that.",
    "timeout": "Make it faster.",
    "memory": "Use smaller images.",
    "output": "Print less.",
    "result": "Return other images.",
}
"""The hint under an error, by `Execution.stop`."""

UNREADABLE = "Write the turn again in the format you were told."
"""The hint after a turn that could not be parsed."""


class Dialect(ABC):
    """How a family of models talks: prompts, parsing of its turns, and the text that answers them.

    Attributes:
        name: The name it is looked up by.
        tags: Names of the tags of its markup, without brackets; `_` and a number may follow one, as in
            `<image_clue_1>`. Those of its base classes count as well. Data never reach a prompt with one of them: the
            question and choices of `first_message`, the printed text, error and file names of `render` and the reason
            of `invalid` are neutralised before the method sees them.
        stop: Strings at which generation stops; each ends a turn.
        persist: State that the sandbox keeps between two code turns: `"images"` (saved files) or `"variables"` too.
        repairs: Mistakes that the sandbox repairs in programs, of `"indentation"`, `"paths"` and `"imports"`; each
            repair is named in `Execution.repairs`.
        observation_role: The role of observations after the first: `"user"`, each is a message of its own;
            `"assistant"`, each is appended to the model's message, which stays open.
        least_side: The shortest side of a box that `crop` can show, in pixels: scripted agents grow smaller ones.
        croppable: How many of a task's images `crop` can show, from the first; `None`: all. Scripted agents crop these.
    """

    name: ClassVar[str]
    tags: ClassVar[tuple[str, ...]] = ()
    stop: ClassVar[tuple[str, ...]]
    persist: ClassVar[Literal["images", "variables"]] = "images"
    repairs: ClassVar[tuple[str, ...]] = REPAIRS
    observation_role: ClassVar[Literal["user", "assistant"]] = "user"
    least_side: ClassVar[int] = 1
    croppable: ClassVar[int | None] = None

    def __init_subclass__(cls) -> None:
        """Check the declared tags, and neutralise the data that the class's methods put into prompts."""
        super().__init_subclass__()
        bad = [tag for tag in cls.tags if not _TAG.fullmatch(tag)]
        if isinstance(cls.tags, str) or bad:
            raise ConfigError(
                f"dialect class {cls.__name__}: tags is {cls.tags!r}; it must be a tuple of names without brackets, "
                "such as ('code', 'answer')."
            )
        if cls.__module__.startswith(f"{_PACKAGE}."):
            TAGS.extend(tag for tag in cls.tags if tag not in TAGS)
        for name, harmless in _HARMLESS.items():
            if name in vars(cls):
                setattr(cls, name, _with_harmless_data(vars(cls)[name], harmless))

    def neutralise(self, data: str) -> str:
        """Make the tags of this dialect in data harmless, see `neutralise`."""
        return neutralise(data, _declared(type(self)))

    @abstractmethod
    def system_prompt(self) -> str:
        """Return the text of the system message."""

    @abstractmethod
    def first_message(self, task: Task) -> str:
        """Return the first user message, with one `IMAGE_PLACEHOLDER` per image of the task and never its answer."""

    @abstractmethod
    def image_name(self, index: int) -> str:
        """Return the name under which the code finds input image `index`, counted from 0."""

    @abstractmethod
    def parse(self, text: str) -> Turn:
        """Read one turn of the model. Never raises: unreadable text gives `Invalid` with the reason."""

    @abstractmethod
    def write(self, turn: Code | Answer, think: str = "") -> str:
        """Write a turn as a model would: `parse(write(turn))` gives the turn back."""

    @abstractmethod
    def render(self, execution: Execution, images: int) -> str:
        """Return the next user message after a program ran.

        Args:
            execution: The program's result.
            images: How many of its images the observation holds; the text has as many `IMAGE_PLACEHOLDER`.
        """

    @abstractmethod
    def invalid(self, reason: str) -> str:
        """Return the next user message after a turn that could not be parsed."""

    def program(self, turn: Code, images: Sequence[str]) -> str:
        """Return the text that the sandbox runs for a turn: its code, or that with lines around it.

        Args:
            turn: The model's turn.
            images: For each image the model has seen so far, inputs first, the file name it can be opened by, or `""`.
        """
        return turn.code

    def report(self, execution: Execution, images: Sequence[str]) -> Execution:
        """Return the execution as if only the model's own code had run, without traces of what `program` added.

        Args:
            execution: The result of `program(turn, images)`.
            images: The same names that `program` was given.
        """
        return execution

    def crop(self, box: Box, image_index: int = 0) -> Code:
        """Return the code with which a model of this family shows a box of an input image.

        Args:
            box: (x1, y1, x2, y2) in pixels of the input image.
            image_index: Which input image.
        """
        x1, y1, x2, y2 = box
        return Code(
            f'image = Image.open("{self.image_name(image_index)}")\n'
            f"crop = image.crop(({x1}, {y1}, {x2}, {y2}))\n"
            'crop.save("crop.png")\n'
            'print("crop.png")'
        )


def neutralise(data: str, tags: Collection[str] = ()) -> str:
    """Make tags, image placeholders and control tokens in data harmless by a space after their `<`.

    Printed text and questions are data: they must not be able to close the block that holds them, open an answer, or
    add an image placeholder.

    Args:
        data: Any text that a program, a data set or a model wrote.
        tags: Names of further tags, besides `TAGS`.

    Returns:
        The text, in which no such tag and no `<|…` token is left.
    """
    return _markup(frozenset([*TAGS, *tags])).sub("< ", data)


@functools.cache
def _markup(tags: frozenset[str]) -> re.Pattern[str]:
    names = "|".join(map(re.escape, sorted(tags)))
    return re.compile(rf"<(?=/?(?:{names})(?:_\d+)?(?!\w)|\|)", re.IGNORECASE)


@functools.cache
def _declared(kind: type[Dialect]) -> frozenset[str]:
    """Return the tags that a class and its base classes declare."""
    return frozenset(tag for base in kind.__mro__ for tag in vars(base).get("tags", ()))


def _harmless_task(dialect: Dialect, task: Task) -> Task:
    choices = tuple(map(dialect.neutralise, task.choices))
    return dataclasses.replace(
        task, images=task.shown_images, question=dialect.neutralise(task.question), choices=choices
    )


def _harmless_execution(dialect: Dialect, execution: Execution) -> Execution:
    return dataclasses.replace(
        execution,
        stdout=dialect.neutralise(execution.stdout),
        error=None if execution.error is None else dialect.neutralise(execution.error),
        names=tuple(map(dialect.neutralise, execution.names)),
    )


_HARMLESS: dict[str, Callable[[Any, Any], Any]] = {
    "first_message": _harmless_task,
    "render": _harmless_execution,
    "invalid": Dialect.neutralise,
}
"""By method: neutralises the data that the method is given first."""


def _with_harmless_data(method: Callable[..., str], harmless: Callable[[Any, Any], Any]) -> Callable[..., str]:
    @functools.wraps(method)
    def wrapped(self: Dialect, data: Any, *arguments: Any, **options: Any) -> str:
        return method(self, harmless(self, data), *arguments, **options)

    return wrapped


def letter(index: int) -> str:
    """Return the letter of choice `index`: `A`, `B`, … `Z`, then `AA`."""
    text = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        text = chr(ord("A") + rest) + text
    return text


def question_lines(task: Task) -> list[str]:
    """Return the question and its lettered choices, one line each."""
    return [
        *frame_lines(task),
        f"Question: {task.question}",
        *(f"{letter(i)}. {choice}" for i, choice in enumerate(task.choices)),
    ]


def frame_lines(task: Task) -> list[str]:
    """Return a line about the frames of a video that programs have; none for images that are all shown."""
    if not task.times:
        return []
    count, shown = len(task.times), len(task.images)
    return [
        f"Video: {count} frames, from {task.times[0]:g} to {task.times[-1]:g} s; shown: frame 0"
        f"{f' to {shown - 1}' if shown > 1 else ''}. In code, frames[i] is frame i, video.times[i] its second, and "
        "video.at(seconds) the nearest frame."
    ]


def invalid_lines(reason: str) -> list[str]:
    """Return why a turn could not be parsed, with a hint: the body of an observation."""
    return [f"Error: {reason}", f"Hint: {UNREADABLE}"]


def execution_lines(execution: Execution, images: int) -> list[str]:
    """Return printed text, image placeholders and the error with its hint: the body of an observation."""
    lines = [text] if (text := execution.stdout.strip("\n")) else []
    lines += [IMAGE_PLACEHOLDER] * images
    if execution.error is not None:
        lines.append(f"Error: {execution.error}")
        lines.append(f"Hint: {HINTS.get(execution.stop, HINTS['error'])}")
    return lines or ["No output."]
