"""The column of a pushed data set with the fields of a task that its other columns cannot hold, as JSON text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from codev_env.errors import TaskError
from codev_env.tasks.readers.cells import parsed
from codev_env.tasks.readers.fields import brief, is_number, jsonable
from codev_env.types import Source, Task

COLUMN = "codev_task"
_KEYS = ("shown", "times", "source", "meta")


@dataclass(frozen=True)
class TaskRecord:
    """Fields of a `Task`, see there; `meta` is its whole metadata, and `None` where the record has none."""

    shown: int | None = None
    times: tuple[float, ...] = ()
    source: Source = "real"
    meta: Mapping[str, Any] | None = None

    def check(self, images: int, where: str) -> None:
        """Raise `TaskError` unless it belongs to a task with this number of images."""
        if self.shown is not None and self.shown > images:
            raise TaskError(f"{where}: 'shown' is {self.shown}, but there are {images} images.")
        if self.times and len(self.times) != images:
            raise TaskError(f"{where}: there are {len(self.times)} 'times' for {images} images.")


def record_of(task: Task) -> str:
    """Return the cell of a task."""
    return json.dumps({name: getattr(task, name) for name in _KEYS} | {"meta": dict(task.meta)}, ensure_ascii=False)


def record_from(cell: Any, where: str) -> TaskRecord:
    """Read a cell, which may be empty; raises `TaskError` with `where` in it if `record_of` cannot have written it."""
    value = parsed(cell, where)
    if value is None:
        return TaskRecord()
    if not isinstance(value, Mapping) or not set(value) <= set(_KEYS):
        raise TaskError(f"{where}: {COLUMN!r} is {brief(value)}; expected an object with {', '.join(_KEYS)}.")
    shown, times = value.get("shown"), value.get("times") or ()
    source, meta = value.get("source", "real"), value.get("meta")
    if shown is not None and (not isinstance(shown, int) or isinstance(shown, bool) or shown < 1):
        raise TaskError(
            f"{where}: 'shown' is {brief(shown)}; expected the number of images shown, at least 1, or null."
        )
    if not _rise(times):
        raise TaskError(f"{where}: 'times' is {brief(times)}; expected rising seconds, one for each image, or none.")
    if source not in get_args(Source):
        raise TaskError(f"{where}: 'source' is {brief(source)}; expected {' or '.join(get_args(Source))}.")
    if meta is not None and not isinstance(meta, Mapping):
        raise TaskError(f"{where}: 'meta' is {brief(meta)}; expected an object.")
    return TaskRecord(shown, tuple(map(float, times)), source, jsonable(meta))


def _rise(times: Any) -> bool:
    if not isinstance(times, Sequence) or isinstance(times, str) or not all(map(is_number, times)):
        return False
    return all(a <= b for a, b in zip(times, times[1:], strict=False))
