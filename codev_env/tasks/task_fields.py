"""The fields of a task from a task set of the user's own, checked before the task is played."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from numbers import Real
from typing import Any

from PIL import Image

from codev_env.errors import TaskError
from codev_env.tasks.readers.fields import brief
from codev_env.types import Task


def checked(task: Task) -> Task:
    """Return the task.

    Raises:
        TaskError: It is no `Task`, or a field holds something that it must not, which would fail later or make every
            answer or look wrong.
    """
    if not isinstance(task, Task):
        raise TaskError(f"a task is {brief(task)}; it must be a codev_env.types.Task.")
    for name, is_right, wanted in _rules(task):
        if not is_right:
            raise TaskError(f"task {task.task_id!r}: {name} is {brief(getattr(task, name))}; it must be {wanted}.")
    return task


def _rules(task: Task) -> Iterator[tuple[str, bool, str]]:
    """Yield a field, whether it is right, and what it must be. Frames of a video are not decoded for this."""
    images: Any = task.images
    held = images if isinstance(images, tuple | list) else ()
    is_right = isinstance(images, Sequence) and all(isinstance(image, Image.Image) for image in held)
    yield "images", is_right and not isinstance(images, str), "a tuple of PIL images"
    yield "question", isinstance(task.question, str), "a text"
    yield "answer", isinstance(task.answer, str), "a text"
    is_right = isinstance(task.choices, tuple | list) and all(isinstance(choice, str) for choice in task.choices)
    yield "choices", is_right, "a tuple of texts"
    is_right = not task.choices or task.answer in ("", *task.choices)  # Unlabelled tasks can be played.
    yield "answer", is_right, f"one of the choices {brief(task.choices)}"
    is_right = isinstance(task.targets, tuple | list) and all(map(_is_box, task.targets))
    yield "targets", is_right, "boxes (x1, y1, x2, y2) in pixels, with x1 < x2 and y1 < y2"


def _is_box(box: Any) -> bool:
    is_four = isinstance(box, tuple | list) and len(box) == 4 and all(isinstance(side, Real) for side in box)
    return is_four and bool(box[0] < box[2] and box[1] < box[3])
