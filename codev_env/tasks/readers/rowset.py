"""Task sets over tables: metadata is checked when the data is opened, images when a task is read."""

from __future__ import annotations

import hashlib
import json
import operator
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from codev_env.errors import BadRows, TaskError, unknown
from codev_env.tasks.readers.boxes import BoxForm, Frame, place_on
from codev_env.tasks.readers.cache import TASKS
from codev_env.tasks.readers.cells import changed, image_files, image_sources
from codev_env.tasks.readers.fields import check_characters
from codev_env.tasks.readers.images import Rules, decode, image_rules
from codev_env.tasks.readers.parquet import cache_dir
from codev_env.tasks.readers.record import TaskRecord
from codev_env.tasks.readers.table import RowTable
from codev_env.types import Source, Task

OnError = Literal["raise", "skip"]
"""Treatment of bad rows: raise at the first, or leave them out and count them."""

MOST_IMAGES = 126
"""Images that a task may have: as many as provenance distinguishes (`codev_env.provenance.codes.PixelCode`)."""

_Seen = tuple[dict[str, list[int] | None], str]
"""The image files of a row that was checked, as `image_files` returns them, and why it is bad; empty if it is good."""

_CHUNK = 50  # rows between two records of the progress of a validation


@dataclass(frozen=True)
class Bad:
    """One row that cannot be used: its number in the table, and a reason that names file and row."""

    row: int
    reason: str


@dataclass(frozen=True)
class Validation:
    """The result of `RowTaskSet.validate`.

    Attributes:
        checked: Number of rows that were checked.
        bad: The rows that cannot be used.
        path: The file that stores the result.
    """

    checked: int
    bad: tuple[Bad, ...]
    path: Path


@dataclass(frozen=True)
class DraftTask:
    """A row as a task, before its images are decoded.

    Attributes:
        images: A cell as `codev_env.tasks.readers.cells.image_sources` reads it.
        question: As in `Task`, as are `answer`, `choices`, `transform`, `category` and `meta`.
        answer: One of `choices` where there are any.
        choices: In the order shown.
        boxes: Boxes `(x1, y1, x2, y2)` in the frame of the reader, on the first image where no fifth number names one.
        box_form: The form they were read with, see `boxes_from`.
        transform: Transforms that were applied to the original image.
        category: Empty where there is none.
        meta: Other fields of the row, as JSON values.
        record: The fields that only a pushed data set has.
    """

    images: Any
    question: str
    answer: str
    choices: tuple[str, ...] = ()
    boxes: tuple[tuple[float, ...], ...] = ()
    box_form: BoxForm | None = "xyxy"
    transform: tuple[str, ...] = ()
    category: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)
    record: TaskRecord = TaskRecord()


class RowReader(Protocol):
    """Reads the rows of one format. Its `repr` is part of cache keys and names all its options."""

    @property
    def bench(self) -> str:
        """Name of the benchmark."""
        ...

    @property
    def image_column(self) -> str:
        """Name of the column with images."""
        ...

    @property
    def frame(self) -> Frame:
        """Box coordinates of this format."""
        ...

    def scan(self, table: RowTable) -> Scan:
        """Check all rows as far as possible without their images."""
        ...

    def read(self, row: Mapping[str, Any], where: str, index: int) -> DraftTask:
        """Turn one row into a draft; raises `TaskError` with `where` in it."""
        ...


@dataclass(frozen=True)
class Scan:
    """Ids and categories of all rows, and the bad rows.

    Attributes:
        ids: A task id per row.
        categories: A category per row.
        problems: By row: why it cannot be used, with file and row.
        source: The source of the set.
    """

    ids: Sequence[str]
    categories: Sequence[str]
    problems: Mapping[int, str] = field(default_factory=dict)
    source: Source = "real"


class RowTaskSet:
    """The rows of a table as tasks: sized, indexable, lazy; may be pickled and forked.

    Attributes:
        name: The benchmark.
        skipped: Rows left out with `on_error="skip"`, with reasons.
    """

    name: str
    source: Source

    def __init__(
        self,
        table: RowTable,
        reader: RowReader,
        *,
        subset: str | None = None,
        on_error: OnError = "raise",
        images: Rules = None,
        image_folder: Path | None = None,
    ) -> None:
        """Check the metadata of all rows.

        Args:
            table: The rows.
            reader: Reads them.
            subset: Only this category.
            on_error: `"raise"` at the first bad row, or `"skip"`: leave bad rows out, with one warning that counts
                them. Metadata is checked now. Images are decoded only when a task is read, so rows with a bad image
                are left out only if an earlier `validate` of the same files found them.
            images: Which images are accepted; `None` for the defaults, except that images that `codev data push` wrote
                are never scaled.
            image_folder: Folder of relative image paths; `None` for the one that the table names.

        Raises:
            BadRows: A bad row.
            TaskError: No rows at all.
            ConfigError: An option that cannot be used.
        """
        check_on_error(on_error)
        self.name = reader.bench
        self._table, self._reader = table, reader
        self._rules = image_rules(images)
        # Small images of a pushed data set are those of its tasks.
        self._pushed_rules = replace(self._rules, small="keep") if images is None else self._rules
        self._subset, self._image_folder = subset, image_folder
        scan = reader.scan(table)
        self.source = scan.source
        problems = {**scan.problems, **table.problems}
        _add_duplicates(scan.ids, problems, table)
        reasons = [Bad(row, why) for row, why in sorted(problems.items())]
        if on_error == "raise" and reasons:
            more = f" ({len(reasons) - 1} more rows are bad, too.)" if len(reasons) > 1 else ""
            raise BadRows(f"{reasons[0].reason}{more}")
        if on_error == "skip":
            known = {bad.row for bad in reasons}
            remembered = self._read_report(self._report())[1]
            reasons += [
                Bad(row, why)
                for row, (files, why) in remembered.items()
                if why and row not in known and not changed(files)
            ]
        out = {bad.row for bad in reasons}
        if subset is not None and subset not in scan.categories:
            raise unknown(f"category of {self.name}", subset, {c for c in scan.categories if c})
        self._rows = [row for row in range(len(table)) if row not in out and subset in (None, scan.categories[row])]
        self.skipped: tuple[Bad, ...] = tuple(reasons)
        if not self._rows:
            first = f" The first: {reasons[0].reason}" if reasons else ""
            raise TaskError(f"{table.source}: no rows that can be used ({len(out)} of {len(table)} are bad).{first}")
        if out:
            warnings.warn(
                f"{table.source}: left out {len(out)} of {len(table)} rows. The first: {reasons[0].reason}",
                stacklevel=3,
            )
        self._ids = scan.ids
        self._index = {scan.ids[row]: index for index, row in enumerate(self._rows)}

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Task:
        """Return a task; raises `TaskError` with file and row if its image or box is bad, never another task."""
        row = self._rows[operator.index(index)]
        files = image_files(self._table.peek(row, self._reader.image_column), self._folder(row))
        key = (*self._key(), row, str(files))
        return TASKS.get(key, lambda: self._make(row))

    def index_of(self, task_id: str) -> int:
        """Return the index of a task; raises `TaskError` if there is none."""
        if task_id not in self._index:
            raise TaskError(f"no task {task_id!r} in {self._table.source}. Ids look like {self._ids[self._rows[0]]!r}.")
        return self._index[task_id]

    def validate(self, progress: Callable[[int, int], None] | None = None) -> Validation:
        """Decode every task once and store which rows cannot be used.

        The result is stored in the cache folder for these files and rules: an interrupted validation continues where it
        stopped, and opening the same data with `on_error="skip"` leaves the bad rows out.

        Args:
            progress: Called with the number of rows checked and of all rows.
        """
        path = self._report()
        done, seen = self._read_report(path)
        # Progress of the whole set also counts for a subset, not the other way round.
        start = max(done.get(None, 0), done.get(self._subset, 0))
        todo = [row for row in self._rows if row >= start or (row in seen and changed(seen[row][0]))]
        checked = len(self._rows) - len(todo)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            for row in todo:
                seen[row] = files, reason = self._check(row)
                if reason or any(files.values()):
                    file.write(json.dumps({"row": row, "files": files, "reason": reason}) + "\n")
                checked += 1
                if checked % _CHUNK == 0 or checked == len(self._rows):
                    file.write(json.dumps({"done": row + 1, "subset": self._subset}) + "\n")
                    file.flush()
                if progress is not None:
                    progress(checked, len(self._rows))
        bad = tuple(Bad(row, seen[row][1]) for row in self._rows if row in seen and seen[row][1])
        return Validation(checked, bad, path)

    def _check(self, row: int) -> _Seen:
        """Decode a row's images."""
        files: dict[str, list[int] | None] = {}
        try:
            draft = self._draft(row)
            files = image_files(draft.images, self._folder(row))
            self._task(row, draft)
        except TaskError as error:
            return files, str(error)
        return files, ""

    def _key(self) -> tuple[Hashable, ...]:
        """Return a key that is different for other rows, readers and rules."""
        return (self._table.signature, repr(self._reader), self._rules, self._pushed_rules, self._image_folder)

    def _report(self) -> Path:
        """Return the file that stores validations of these files with this format and these rules."""
        key = repr(self._key())
        return cache_dir() / "checked" / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.jsonl"

    def _folder(self, row: int) -> Path:
        return self._image_folder or self._table.folder(row)

    def _read_report(self, path: Path) -> tuple[dict[str | None, int], dict[int, _Seen]]:
        """Read the progress of validations by subset, and the rows that are bad or have image files."""
        done: dict[str | None, int] = {}
        seen: dict[int, _Seen] = {}
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError:
            return done, seen
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:  # cut off when the validation was interrupted
                continue
            if "done" in entry:
                done[entry["subset"]] = max(done.get(entry["subset"], 0), entry["done"])
            elif entry["row"] < len(self._table):
                seen[entry["row"]] = entry["files"], entry["reason"]
        return done, seen

    def _make(self, row: int) -> Task:
        return self._task(row, self._draft(row))

    def _draft(self, row: int) -> DraftTask:
        where = self._table.where(row)
        draft = self._reader.read(self._table.row(row), where, row)
        check_characters(where, draft.question, draft.answer, *draft.choices)
        return draft

    def _task(self, row: int, draft: DraftTask) -> Task:
        where, folder = self._table.where(row), self._folder(row)
        rules = self._rules if draft.record.meta is None else self._pushed_rules
        sources = image_sources(draft.images, where, folder)
        if len(sources) > MOST_IMAGES:
            raise TaskError(
                f"{where}: the task has {len(sources)} images, but at most {MOST_IMAGES} can be distinguished in what "
                "programs show. Leave some out, or remove the row."
            )
        decoded = [decode(data, where, rules) for data in sources]
        draft.record.check(len(decoded), where)
        boxes = place_on(draft.boxes, decoded, where, self._reader.frame, draft.box_form)
        resized = [image.resized for image in decoded]
        return Task(
            task_id=self._ids[row],
            images=tuple(image.image for image in decoded),
            question=draft.question,
            answer=draft.answer,
            choices=draft.choices,
            targets=boxes,
            transform=draft.transform,
            source=draft.record.source,
            category=draft.category,
            meta={**draft.meta, **({"resized": resized} if any(resized) else {})},
            shown=draft.record.shown,
            times=draft.record.times,
        )

    def __repr__(self) -> str:
        return f"RowTaskSet({self.name!r}, {self._table.source!r}, {len(self)} tasks)"


def problems_of(
    table: RowTable, columns: Mapping[str, Sequence[Any]], check: Callable[[Mapping[str, Any], str], object]
) -> dict[int, str]:
    """Return the rows that a check rejects, with its messages.

    Args:
        table: The rows.
        columns: Values of the checked columns, one per row.
        check: Takes the values of one row and its place; raises `TaskError` for a bad row.
    """
    problems = {}
    for row in range(len(table)):
        if row not in table.problems:
            try:
                check({name: values[row] for name, values in columns.items()}, table.where(row))
            except TaskError as error:
                problems[row] = str(error)
    return problems


def check_on_error(on_error: str) -> None:
    """Raise `ConfigError` unless `on_error` is `"raise"` or `"skip"`."""
    if on_error not in get_args(OnError):
        raise unknown("on_error", on_error, get_args(OnError))


def _add_duplicates(ids: Sequence[str], problems: dict[int, str], table: RowTable) -> None:
    """Add the rows whose id an earlier good row has."""
    if len(set(ids)) == len(ids):
        return
    first: dict[str, int] = {}
    for row, task_id in enumerate(ids):
        if row in problems:
            continue
        if task_id in first:
            problems[row] = (
                f"{table.where(row)}: the id {task_id!r} occurs twice, first in {table.where(first[task_id])}. "
                "Remove one of them."
            )
        else:
            first[task_id] = row
