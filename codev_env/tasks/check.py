"""Reads every task of a set once and reports those that cannot be used, with reasons (`codev data check`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePath

from codev_env.errors import TaskError
from codev_env.tasks.readers.rowset import Bad, RowTaskSet
from codev_env.tasks.wrappers import TransformedTaskSet
from codev_env.types import TaskSet

_REMARK = re.compile(r"\s*\(.*?\)+")
# Texts, lists, letters, paths and numbers. The path of a file that is missing may have spaces.
_VALUE = re.compile(
    r"'[^']*'|\"[^\"]*\"|\[[^\]]*\]|\b[A-Z](?:, [A-Z])+\b|(?<=the (?:image|video) )\S.*(?= is missing\.)|\S*/\S+|"
    r"(?<!\w)-?\d[\d.,x:]*(?<![.,:])"
)


@dataclass(frozen=True)
class Checked:
    """The result of `check_tasks`.

    Attributes:
        checked: Number of tasks that were read, and of rows that were left out when the data was opened.
        bad: The tasks and rows that cannot be used.
    """

    checked: int
    bad: tuple[Bad, ...]

    def kinds(self) -> dict[str, tuple[Bad, ...]]:
        """Return the bad tasks by kind of error, the most frequent kind first."""
        groups: dict[str, list[Bad]] = {}
        for bad in self.bad:
            groups.setdefault(kind_of(bad.reason), []).append(bad)
        return {kind: tuple(groups[kind]) for kind in sorted(groups, key=lambda kind: (-len(groups[kind]), kind))}


def check_tasks(tasks: TaskSet, n: int | None = None, progress: Callable[[int, int], None] | None = None) -> Checked:
    """Read every task once.

    Rows of data sets are checked by `RowTaskSet.validate`, which stores its progress and its findings. Of a set under
    transforms only the source tasks are read: nothing else in it can be bad.

    Args:
        tasks: Any task set. Rows that were left out when it was opened with `on_error="skip"` count as bad.
        n: Only the first `n` tasks; `None` for all.
        progress: Called with the number of tasks read and of all tasks.
    """
    if isinstance(tasks, TransformedTaskSet):
        per_source = len(tasks) // len(tasks.tasks)
        return check_tasks(tasks.tasks, None if n is None else -(-n // per_source), progress)
    skipped = tasks.skipped if isinstance(tasks, RowTaskSet) else ()
    if isinstance(tasks, RowTaskSet) and n is None:
        found = tasks.validate(progress)
        return Checked(found.checked + len(skipped), tuple(sorted((*skipped, *found.bad), key=lambda bad: bad.row)))
    total = len(tasks) if n is None else min(n, len(tasks))
    bad = []
    for index in range(total):
        try:
            tasks[index]
        except TaskError as error:
            bad.append(Bad(index, str(error)))
        if progress is not None:
            progress(index + 1, total)
    return Checked(total + len(skipped), (*skipped, *bad))


def kind_of(reason: str) -> str:
    """Return the kind of an error, its message without place and values: `"the image is broken"`."""
    text = reason.partition(": ")[2] or reason
    head, _, rest = text.partition(": ")
    # An image file is named after the row that refers to it.
    text = rest if rest and len(PurePath(head).parts) > 1 else text
    column = re.match(r"'\w+' ", text)
    start = column.end() if column else 0
    generic = _VALUE.sub("…", _REMARK.sub("", text[start:]))
    clauses = re.split(r"[;,] |\. |\.$", re.sub(r"…([,\s]+…)*", "…", generic))
    # "is …" alone is no kind: add the clause with the expected value.
    kind = ", ".join(clauses[:2]) if clauses[0].endswith("is …") else clauses[0]
    return text[:start] + kind


def summary(checked: Checked, most: int = 20) -> Iterable[str]:
    """Yield the lines of a report: counts by kind of error, then the first bad rows with file and row."""
    if not checked.bad:
        yield "The only task can be used." if checked.checked == 1 else f"All {checked.checked} tasks can be used."
        return
    yield f"{len(checked.bad)} of {checked.checked} tasks cannot be used:"
    yield from (f"  {len(bad):>6}  {kind}" for kind, bad in checked.kinds().items())
    yield ""
    yield from (bad.reason for bad in checked.bad[:most])
    if len(checked.bad) > most:
        yield f"and {len(checked.bad) - most} more"
