"""A user's own data as tasks: files, folders or a Hugging Face data set, with a mapping of columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from codev_env.benches import BENCHES, Bench
from codev_env.errors import ConfigError, FormatError, TaskError, unknown
from codev_env.tasks.readers.arrow import ArrowTable
from codev_env.tasks.readers.box_form import likely_form
from codev_env.tasks.readers.boxes import BoxForm, Frame, ask_form, boxes_from, by_image
from codev_env.tasks.readers.cells import image_sources, nested_value, parsed
from codev_env.tasks.readers.fields import brief, check_characters, other_fields, plain, scorer_meta, shuffled
from codev_env.tasks.readers.files import SPLIT_NAMES, find_files, split_of, table_of
from codev_env.tasks.readers.images import Rules, image_size
from codev_env.tasks.readers.in_memory import table_in_memory
from codev_env.tasks.readers.own_text import read_answer, read_choices, read_question, read_targets, without_options
from codev_env.tasks.readers.record import COLUMN, TaskRecord, record_from
from codev_env.tasks.readers.rowset import DraftTask, OnError, RowTaskSet, Scan
from codev_env.tasks.readers.table import RowTable, SelectedTable
from codev_env.types import Source

FIELDS = {
    "id": ("id",),
    "image": ("image", "images", "file_name", "file_names"),
    "question": ("question", "problem"),
    "answer": ("answer",),
    "choices": ("choices", "options"),
    "targets": ("targets",),
    "category": ("category",),
    "transform": ("transform",),
    "split": (),
    "task": (COLUMN,),
}
"""The task fields that `columns` can map, each with the column names that are tried where it does not, in order."""

_HEAVY = ("image", "task")
"""Fields that are read with the row alone."""
_REQUIRED = ("image", "question", "answer")
_SUFFIXES = (".parquet", ".jsonl", ".json", ".tsv")
_FILES = (*_SUFFIXES, ".csv")  # names with these are no data sets of the hub
_SAMPLES = 8  # images whose sizes are compared with their boxes
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def open_dataset(
    source: Any,
    split: str = "train",
    *,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    boxes: BoxForm | None = None,
    frame: Frame = "shown",
    shuffle_choices: bool = False,
    config: str | None = None,
    image_folder: str | Path | None = None,
    bench: Bench = BENCHES["dataset"],
    subset: str | None = None,
    seed: int = 0,
    on_error: OnError = "raise",
    images: Rules = None,
) -> RowTaskSet:
    """Open your own data.

    Args:
        source: A Parquet, JSONL, JSON or TSV file, used whatever the split; a folder with such files (also in `data/`,
            or in a folder named like the split), whose names may contain a split (`train-….parquet`, `val.jsonl`); a
            folder that `datasets` saved (`save_to_disk`); a data set's name on the hub, `"owner/name"`; or rows in
            memory: a list of dicts, a `DataFrame` of pandas or polars, a `datasets.Dataset` or `DatasetDict`.
        split: `"train"`, `"val"`, `"test"` or another name. Files whose names contain no split serve any.
        columns: Task field to column name; see `FIELDS`. `"a.b"` is field `b` of column `a`. `"choices"` may also be a
            list of columns, one per option. `"split"` names a column whose value must be the split.
        boxes: Form of the boxes: `"xyxy"` `[x1, y1, x2, y2]` or `"xywh"` `[x, y, width, height]` in pixels;
            `"normalized"` or `"thousand"`, `[x1, y1, x2, y2]` from 0 to 1 or to 1000; `None` for `"xyxy"` unless the
            boxes look like another form, which is an error that asks.
        frame: Box coordinates: `"shown"`, pixels of the upright image as viewers and annotation tools show it, or
            `"stored"`, pixels of the file before EXIF orientation.
        shuffle_choices: Shuffle options by `seed` and task id, for data whose first option is always the right one.
        config: Configuration of a data set on the hub.
        image_folder: Folder of relative image paths; `None` for the folder of the file with the rows.
        bench: The benchmark that the tasks are of; scorers read its name in `meta["bench"]`.
        subset: Only this category.
        seed: Seeds the order of shuffled options.
        on_error: How to treat bad rows, see `RowTaskSet`.
        images: Which images are accepted; `None` for the defaults.

    An image is a path (relative to `image_folder`, or to `images/` in it), base64 text, bytes, `{"bytes", "path"}` or a
    PIL image; or a list of these. An answer is the text of a choice, its letter, or its number from 0; without choices,
    any text. Places of images in front of a question, and options in it that are the choices, are left out.

    Raises:
        TaskError: Missing or invalid data; the message names file and row. For a
            column that does not exist it lists the existing ones.
        ConfigError: An option that cannot be used.
    """
    for option, value, allowed in (("boxes", boxes, get_args(BoxForm)), ("frame", frame, get_args(Frame))):
        if value not in allowed and not (option == "boxes" and value is None):
            raise unknown(option, value, allowed)
    table = _table(source, split, config)
    folder = None if image_folder is None else Path(image_folder)
    if folder is not None and not folder.is_dir():
        raise TaskError(f"image_folder {folder}: no such folder. Give the folder that image paths are relative to.")
    names = _columns(table, columns or {})
    if "split" in names:
        table = _of_split(table, names.pop("split")[0], split)
    reader = DatasetReader(tuple(names.items()), boxes, frame, seed if shuffle_choices else None, bench.name)
    tasks = RowTaskSet(table, reader, subset=subset, on_error=on_error, images=images, image_folder=folder)
    if boxes is None:
        reader.check_form(table, folder)
    return tasks


# ---- finding the rows


def _table(source: Any, split: str, config: str | None) -> RowTable:
    if not isinstance(source, str | Path):
        return table_in_memory(source, split)
    path = Path(source)
    if path.is_dir() and any((path / name).is_file() for name in ("dataset_dict.json", "state.json")):
        return ArrowTable.saved(path, split)
    if path.exists():
        return table_of(_files(path, split))
    if path.suffix.lower() in _FILES or path.parent != Path() and path.parent.is_dir():
        raise TaskError(f"{source}: no such file or folder. Check the path.")
    if _HUB_ID.fullmatch(str(source)):
        return ArrowTable.from_hub(str(source), split, config)
    raise TaskError(
        f"{source}: no such file or folder, nor a name of a data set on the hub ('owner/name'). Check the path."
    )


def _files(path: Path, split: str) -> list[Path]:
    """Return the files of a split: in a folder of its name, with its name in theirs, or all if no name has a split."""
    names = SPLIT_NAMES.get(split, (split,))
    folder = next((path / name for name in names if (path / name).is_dir()), path)
    try:
        files = find_files(folder, _SUFFIXES, f"a file of rows ({', '.join(_SUFFIXES)})")
    except FormatError as error:
        raise _advised(error, path, split) from None
    if path.is_file() or folder != path:
        return files
    own = [file for file in files if split_of(file.stem) == split or (split not in SPLIT_NAMES and split in file.stem)]
    if own or not any(split_of(file.stem) for file in files):
        return own or files
    raise TaskError(f"{path}: has no split {split!r}; its files are {', '.join(file.name for file in files)}.")


def _advised(error: FormatError, path: Path, split: str) -> TaskError:
    """Return the error for a path without rows, with what is there instead."""
    if path.suffix.lower() == ".csv" or (path.is_dir() and any(path.glob("*.csv"))):
        return FormatError(
            f"{error} CSV is not read from files: read it with pandas and pass the frame, data=pandas.read_csv(…), or "
            "write it as .jsonl, .tsv or .parquet."
        )
    folders = sorted(folder for folder in path.glob("*") if folder.is_dir())
    splits = [folder.name for folder in folders if any(any(folder.glob(f"*{suffix}")) for suffix in _SUFFIXES)]
    if splits and not (path / split).is_dir():
        return TaskError(f"{path}: has no split {split!r}; it has {', '.join(map(repr, splits))}.")
    return error


def _of_split(table: RowTable, column: str, split: str) -> RowTable:
    names = {split, *SPLIT_NAMES.get(split, ())}
    values = table.values(column)
    rows = [row for row, value in enumerate(values) if plain(value) in names]
    if not rows:
        known = ", ".join(sorted({repr(plain(value)) for value in values}))
        raise TaskError(f"{table.source}: no row has {column!r} {split!r}; the values are {known}.")
    return SelectedTable(table, rows)


def _columns(table: RowTable, columns: Mapping[str, str | Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Return the columns of each field, checked."""
    found: dict[str, tuple[str, ...]] = {}
    if len(table) == 0:
        raise TaskError(f"{table.source}: is empty. Give data with at least one row.")
    if len(table.problems) == len(table):
        raise TaskError(table.problems[0])
    if not isinstance(columns, Mapping):
        raise ConfigError(
            f"columns is {columns!r}; it must map task fields to column names: columns={{'image': …}} "
            "(--columns image=…)."
        )
    for name, column in columns.items():
        if name not in FIELDS:
            raise unknown("field in columns", name, FIELDS)
        found[name] = (column,) if isinstance(column, str) else tuple(column) if _is_names(column) else ()
        if len(found[name]) != 1 and (name != "choices" or not found[name]):
            raise ConfigError(f"columns[{name!r}] is {column!r}; it must be the name of one column.")
        try:
            table.require(*found[name])
        except TaskError as error:
            raise TaskError(
                f"{error} It was asked for by columns={{{name!r}: {column!r}}} (--columns {name}=…)."
            ) from None
    for name, defaults in FIELDS.items():
        default = next((column for column in defaults if table.has(column)), None)
        if name not in found and default is not None:
            found[name] = (default,)
        if name not in found and name in _REQUIRED:
            videos = name == "image" and table.has("video")
            raise TaskError(
                f"{table.source}: has no column for {name!r} ({' or '.join(map(repr, defaults))}). Its columns: "
                f"{', '.join(table.columns) or 'none'}. Say which one it is: columns={{{name!r}: …}} "
                f"(--columns {name}=…)." + (" Rows with a video: bench='video' (--bench video)." if videos else "")
            )
    return found


def _is_names(column: object) -> bool:
    return isinstance(column, Sequence) and all(isinstance(name, str) for name in column)


# ---- reading the rows


@dataclass(frozen=True)
class DatasetReader:
    """Reads rows by a mapping of task fields to columns.

    Attributes:
        columns: Field and its columns.
        boxes: Form of the boxes; `None` where it was not stated.
        frame: Box coordinates.
        shuffle_seed: Seeds the order of options; `None` keeps the rows' order.
    """

    columns: tuple[tuple[str, tuple[str, ...]], ...]
    boxes: BoxForm | None
    frame: Frame
    shuffle_seed: int | None
    bench: str

    @property
    def image_column(self) -> str:
        """Name of the column with images."""
        return dict(self.columns)["image"][0]

    @property
    def has_targets(self) -> bool:
        """Whether the rows have boxes."""
        return "targets" in dict(self.columns)

    def scan(self, table: RowTable) -> Scan:
        """Check ids, questions, answers, options and the form of boxes of all rows."""
        columns = {
            field: [table.values(name) for name in names] for field, names in self.columns if field not in _HEAVY
        }
        ids = [plain(value) for value in columns["id"][0]] if "id" in columns else []
        ids = ids or [f"{self.bench}-{row}" for row in range(len(table))]
        categories = [plain(value) for value in columns.get("category", [[None] * len(table)])[0]]
        problems: dict[int, str] = {}
        for row in range(len(table)):
            where = table.where(row)
            try:
                if not ids[row]:
                    raise TaskError(f"{where}: {dict(self.columns)['id'][0]!r} is empty. Give each row its own.")
                self._check({field: _cell([one[row] for one in several]) for field, several in columns.items()}, where)
            except TaskError as error:
                problems[row] = str(error)
        return Scan(ids, categories, problems, self._source(table, problems))

    def _source(self, table: RowTable, problems: Mapping[int, str]) -> Source:
        """Return the source of the first good row."""
        for row in range(len(table)) if "task" in dict(self.columns) else ():
            try:
                if row not in problems and row not in table.problems:
                    return self._record(table.row(row), table.where(row)).source
            except TaskError:  # reported when the task is read
                continue
        return "real"

    def _record(self, row: Mapping[str, Any], where: str) -> TaskRecord:
        column = dict(self.columns).get("task")
        return record_from(nested_value(row, column[0]), where) if column else TaskRecord()

    def check_form(self, table: RowTable, image_folder: Path | None) -> None:
        """Raise `TaskError` if the boxes look like another form than pixels; a few images are opened for their size."""
        found: list[tuple[int, tuple[tuple[float, ...], ...]]] = []
        for row, value in enumerate(table.values(dict(self.columns)["targets"][0]) if self.has_targets else ()):
            try:
                boxes = boxes_from(parsed(value, ""), "", numbered=True)
            except TaskError:  # a bad row, which was reported or skipped before
                continue
            found += [(row, boxes)] if boxes else []
        samples: list[tuple[list[Sequence[float]], tuple[int, int]]] = []
        for row, boxes in found[:_SAMPLES]:
            try:
                cell = nested_value(table.row(row), self.image_column)
                sources = image_sources(cell, "", image_folder or table.folder(row))
                for number, own in by_image(boxes).items():
                    samples.append((own, image_size(sources[number], "", upright=self.frame == "shown")))
            except (TaskError, IndexError):  # reported when the task is read
                continue
        form = likely_form([box[:4] for _, boxes in found for box in boxes], samples)
        if form is not None:
            own, (width, height) = samples[0]
            raise TaskError(
                f"{table.source}: boxes such as {list(own[0])}, on an image of {width}x{height} pixels, do not look "
                f"like pixels. {ask_form(form)}"
            )

    def _check(self, fields: Mapping[str, Any], where: str) -> tuple[str, str, tuple[str, ...], tuple[Any, ...]]:
        """Return question, answer, choices and boxes; also checks the names of transforms."""
        names = {field: several[0] for field, several in self.columns}
        exact = "task" in names  # An export of tasks has to come back as it was.
        question = read_question(fields["question"], where, exact=exact)
        gaps = len(dict(self.columns).get("choices", ())) > 1  # a column of an option may be empty
        options = read_choices(fields.get("choices"), where, names.get("choices", ""), exact=exact, gaps=gaps)
        choices = tuple(option.text for option in options)
        targets = read_targets(fields.get("targets"), where, names.get("targets", ""))
        boxes = boxes_from(targets, where, form=self.boxes, numbered=True)
        _transforms(fields.get("transform"), where)
        stem = question if exact else without_options(question, choices)
        answer = read_answer(fields["answer"], options, where)
        check_characters(where, stem, answer, *choices)
        return stem, answer, choices, boxes

    def read(self, row: Mapping[str, Any], where: str, index: int) -> DraftTask:
        """Read one row."""
        fields = {field: _cell([nested_value(row, name) for name in names]) for field, names in self.columns}
        question, answer, choices, boxes = self._check(fields, where)
        if self.shuffle_seed is not None:
            task_id = plain(fields["id"]) if "id" in fields else f"{self.bench}-{index}"
            choices = shuffled(choices, task_id, self.shuffle_seed)
        image = self.image_column.split(".")[0]
        rest = other_fields(row, (image,))
        own = scorer_meta(self.bench, question_type="multi_choice" if choices else "free_form")
        record = self._record(row, where)
        return DraftTask(
            images=fields["image"],
            question=question,
            answer=answer,
            choices=choices,
            boxes=boxes,
            box_form=self.boxes,
            transform=_transforms(fields.get("transform"), where),
            category=plain(fields.get("category")),
            meta={**rest, **own} if record.meta is None else record.meta,
            record=record,
        )


def _transforms(value: Any, where: str) -> tuple[str, ...]:
    """Return the names of transforms: of a text one, of a list, also as JSON, several."""
    names = parsed(value, where, plain_text=True)
    names = [names] if isinstance(names, str) else names or ()
    if not isinstance(names, list | tuple) or not all(isinstance(name, str | None) for name in names):
        raise TaskError(f"{where}: the transform is {brief(value)}; expected a name such as 'rotate_90', or a list.")
    return tuple(filter(None, names))


def _cell(values: Sequence[Any]) -> Any:
    """Return the value of a field's column, or the values of its several columns."""
    return values[0] if len(values) == 1 else list(values)
