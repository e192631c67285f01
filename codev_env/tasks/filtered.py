"""Some tasks of a set, named by a file of task ids as `codev data filter` writes it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from codev_env.errors import TaskError
from codev_env.tasks.readers.fields import parse_json, read_text
from codev_env.types import Source, Task, TaskSet


class FilteredTaskSet:
    """The tasks that a file names, in the order of the file.

    Attributes:
        tasks: The whole set.
        rows: The file's rows: `task_id` and other fields.
    """

    name: str
    source: Source

    def __init__(self, tasks: TaskSet, file: str | os.PathLike[str]) -> None:
        """Look up every task.

        Args:
            tasks: The whole set.
            file: JSON lines with a field `task_id`.

        Raises:
            TaskError: A line without `task_id`, a repeated task, or one that is not in the set.
        """
        path = Path(file)
        self.name, self.source = f"{tasks.name} ({path.name})", tasks.source
        self.tasks = tasks
        self._at: dict[str, int] = {}
        self._indices: list[int] = []
        rows: list[Mapping[str, Any]] = []
        # splitlines() would also end a line at U+2028 or U+0085 inside a text.
        for number, line in enumerate(read_text(path).split("\n"), 1):
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            row = parse_json(where, line)
            task_id = row.get("task_id")
            if not isinstance(task_id, str):
                raise TaskError(f"{where}: 'task_id' is {task_id!r}; expected a text, as `codev data filter` writes.")
            if task_id in self._at:
                raise TaskError(f"{where}: the task {task_id!r} comes twice. Remove one of the lines.")
            try:
                self._indices.append(tasks.index_of(task_id))
            except TaskError as error:
                raise TaskError(
                    f"{where}: there is no task {task_id!r} in {tasks.name}. "
                    "Load the data, split and options that the file was made with."
                ) from error
            self._at[task_id] = len(rows)
            rows.append(row)
        if not rows:
            raise TaskError(f"{path}: names no task. Filter with a wider range of success rates.")
        self.rows = tuple(rows)

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> Task:
        return self.tasks[self._indices[index]]

    def index_of(self, task_id: str) -> int:
        """Return the index of a task; raises `TaskError` if the file does not name it."""
        if task_id not in self._at:
            raise TaskError(f"there is no task {task_id!r} in {self.name}.")
        return self._at[task_id]
