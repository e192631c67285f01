"""Whether tasks are still those of recorded episodes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import partial

from codev_env.errors import TaskError
from codev_env.geometry import numbered
from codev_env.trajectory import Trajectory
from codev_env.types import Task, TaskSet
from codev_eval.bench.runner import ordered_map


def is_at(tasks: TaskSet, task_id: str, index: int) -> bool:
    """Whether a task is in a set, at an index."""
    try:
        return tasks.index_of(task_id) == index
    except TaskError:
        return False


def question_of(task: Task | Trajectory) -> tuple[str, tuple[str, ...], str]:
    """Return question, choices and answer of a task, or of the task of an episode."""
    return task.question, tuple(task.choices), task.answer


def digest_of(task: Task | Trajectory) -> str:
    """Return a digest of question, choices, answer and target boxes of a task, or of the task of an episode."""
    targets = [[int(number) for number in numbered(box)] for box in task.targets]
    return hashlib.blake2b(json.dumps([*question_of(task), targets]).encode(), digest_size=16).hexdigest()


def first_changed(tasks: TaskSet, digests: Mapping[int, str], workers: int = 1) -> int | None:
    """Return the index of the first task that is not as it was, `None` if all are.

    Every task is read, with its images. Generated tasks are not: their ids and the options decide them.

    Args:
        tasks: The set as it is now.
        digests: By index: `digest_of` the task as it was.
        workers: Tasks read at the same time.
    """
    if tasks.source == "generated":
        return None
    now = ordered_map(partial(_digest_at, tasks), digests, workers)
    return next((index for (index, was), found in zip(digests.items(), now, strict=True) if found != was), None)


def _digest_at(tasks: TaskSet, index: int) -> str:
    try:
        return digest_of(tasks[index])
    except TaskError:  # It can no longer be read.
        return ""
