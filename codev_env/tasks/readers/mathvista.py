"""MathVista, mathematics in images, from its Parquet or JSON files (arXiv 2310.02255; `AI4Math/MathVista`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codev_env.benches import Bench
from codev_env.errors import FormatError, TaskError
from codev_env.tasks.readers.boxes import Frame
from codev_env.tasks.readers.cells import nested_value
from codev_env.tasks.readers.fields import (
    brief,
    is_number,
    jsonable,
    number_form,
    optional,
    other_fields,
    plain,
    scorer_meta,
)
from codev_env.tasks.readers.files import find_files, json_table, only_split, table_of
from codev_env.tasks.readers.images import Rules
from codev_env.tasks.readers.rowset import DraftTask, OnError, RowTaskSet, Scan, problems_of
from codev_env.tasks.readers.table import RowTable

_QUESTION_TYPES = ("multi_choice", "free_form")
_ANSWER_TYPES = ("text", "integer", "float", "list")
_EXPECTED = "testmini-*.parquet, in the folder or in data/, or testmini.json beside images/"
_TYPES = ("question_type", "answer_type", "precision", "unit")
_USED = frozenset({"pid", "question", "answer", "choices", "decoded_image", "image", *_TYPES})


def open_mathvista(
    path: str | Path,
    split: str = "test",
    *,
    bench: Bench,
    subset: str | None = None,
    seed: int = 0,
    on_error: OnError = "raise",
    images: Rules = None,
) -> RowTaskSet:
    """Open MathVista testmini.

    The unit of the answer and its form (an integer, a number of decimals, a list) follow the question, as in the
    published `query`, in words of our own. The category of a task is `metadata.task`, for example `"geometry problem
    solving"`; the row's `metadata` and its `query` (the question with the published hint) are in the task's metadata.

    Args:
        path: A folder with `testmini-*.parquet` (also in `data/`) or `testmini.json` and `images/`, or such a file.
        split: `"test"` or `"testmini"`; both are the 1000 questions of *testmini*, on which scores are reported. The
            answers to *test* are not public.
        bench: The benchmark.
        subset: Only this category.
        seed: Not used: options stay in the row's order.
        on_error: How to treat bad rows, see `RowTaskSet`.
        images: Which images are accepted; `None` for the defaults.

    Raises:
        TaskError: Missing or invalid data; the message names file and row.
        ConfigError: An option that cannot be used.
    """
    only_split(bench.title, split, bench.splits)
    files = find_files(path, (".parquet", ".json"), _EXPECTED)
    if Path(path).is_dir():
        files = [file for file in files if "testmini" in file.name]
        if not files:
            raise FormatError(f"{path}: has no file of testmini. Expected {_EXPECTED}.")
    table = json_table(files[0]) if files[0].suffix == ".json" else table_of(files)
    return RowTaskSet(table, MathVistaReader(bench.name), subset=subset, on_error=on_error, images=images)


@dataclass(frozen=True)
class MathVistaReader:
    """Columns `pid, question, decoded_image, choices, answer, question_type, answer_type, precision, unit` and more."""

    bench: str
    image_column: str = "image"
    frame: Frame = "stored"

    def scan(self, table: RowTable) -> Scan:
        """Check ids, questions, answers and types of all rows."""
        table.require("pid", "question", "answer", "choices", "question_type", "answer_type")
        if not table.has("decoded_image"):
            table.require("image")
        names = ("pid", "question", "answer", "choices", "question_type", "answer_type", "precision")
        columns = {name: table.values(name) for name in names}
        ids = [f"{self.bench}-{plain(pid)}" for pid in columns["pid"]]
        categories = [plain(task) for task in table.values("metadata.task")]
        return Scan(ids, categories, problems_of(table, columns, _check))

    def read(self, row: Mapping[str, Any], where: str, index: int) -> DraftTask:
        """Read one row; choices as given."""
        question, answer, choices = _check(row, where)
        image, unit = row.get("decoded_image"), optional(row.get("unit"))
        precision = _precision(row.get("precision"), where)
        own = scorer_meta(
            self.bench,
            question_type=row["question_type"],
            answer_type=row["answer_type"],
            precision=precision,
            unit=unit,
        )
        form = "" if choices else _form(row["answer_type"], precision)
        rest = other_fields(row, _USED)
        return DraftTask(
            images=image if image is not None else row["image"],
            question=f"{question}{f' (Unit: {plain(unit)})' if unit else ''}{form}",
            answer=answer,
            choices=choices,
            category=plain(nested_value(row, "metadata.task")),
            meta={**rest, **own, "pid": plain(row["pid"]), "image": jsonable(row.get("image"))},
        )


def _check(fields: Mapping[str, Any], where: str) -> tuple[str, str, tuple[str, ...]]:
    """Return question, answer and choices."""
    for name in ("pid", "question", "answer"):
        if not plain(fields[name]):
            hint = " The answers to the split test are not public: use testmini." if name == "answer" else ""
            raise TaskError(f"{where}: {name!r} is empty.{hint}")
    for name, known in (("question_type", _QUESTION_TYPES), ("answer_type", _ANSWER_TYPES)):
        if fields[name] not in known:
            raise TaskError(f"{where}: {name!r} is {brief(fields[name])}; expected one of {', '.join(known)}.")
    _precision(fields.get("precision"), where)
    answer = plain(fields["answer"]) if not isinstance(fields["answer"], str) else fields["answer"].strip()
    if fields["question_type"] == "free_form":
        return plain(fields["question"]), answer, ()
    listed = fields["choices"]
    choices = tuple(map(plain, listed)) if isinstance(listed, list | tuple) else ()
    if not 2 <= len(choices) <= 26 or not all(choices):
        raise TaskError(f"{where}: 'choices' is {brief(fields['choices'])}; expected 2 to 26 texts.")
    if answer not in choices:
        raise TaskError(f"{where}: 'answer' is {brief(answer)}, but the choices are {', '.join(map(repr, choices))}.")
    return plain(fields["question"]), answer, choices


def _form(answer_type: str, precision: int | None) -> str:
    """Return a line that asks for the form of an answer, `""` where the row does not say it."""
    if answer_type == "list":
        return "\nAnswer with a list, such as [1, 2, 3] or [1.2, 1.3]."
    decimals = {"integer": 0, "float": precision}.get(answer_type)
    return "" if decimals is None else number_form(decimals)


def _precision(value: Any, where: str) -> int | None:
    """Return the decimals of an answer, which the files hold as floats."""
    value = optional(value)
    if value is None:
        return None
    if not is_number(value) or value != int(value) or not 0 <= value <= 15:
        raise TaskError(f"{where}: 'precision' is {brief(value)}; expected a whole number of decimals.")
    return int(value)
