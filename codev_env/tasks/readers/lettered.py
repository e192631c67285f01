"""Questions with their options in columns A, B, C, D: HR-Bench, and other benchmarks as VLMEvalKit publishes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codev_env.benches import Bench
from codev_env.errors import FormatError, TaskError
from codev_env.tasks.readers.boxes import Frame
from codev_env.tasks.readers.fields import LETTERS, brief, letter_answer, other_fields, plain, scorer_meta
from codev_env.tasks.readers.files import find_files, only_split, table_of
from codev_env.tasks.readers.images import Rules
from codev_env.tasks.readers.rowset import DraftTask, OnError, RowTaskSet, Scan, problems_of
from codev_env.tasks.readers.table import RowTable

_SUFFIXES = (".parquet", ".tsv")
_USED = frozenset({"index", "question", "answer", "category", "image", *LETTERS})


def open_lettered(
    path: str | Path,
    split: str = "test",
    *,
    bench: Bench,
    needs_cycle: bool = False,
    subset: str | None = None,
    seed: int = 0,
    on_error: OnError = "raise",
    images: Rules = None,
) -> RowTaskSet:
    """Open a benchmark of lettered options, such as HR-Bench (200 questions, each in four orders of its options).

    Args:
        path: A Parquet or TSV file, or a folder that holds one; of both, the Parquet file is read.
        split: A split of the benchmark.
        bench: The benchmark; of a folder's files those that match `bench.files` are read.
        needs_cycle: Each row must name the order of its options in `cycle_category`.
        subset: Only this category.
        seed: Not used: the order of the options is part of the data.
        on_error: How to treat bad rows, see `RowTaskSet`.
        images: Which images are accepted; `None` for the defaults.

    Raises:
        TaskError: Missing or invalid data; the message names file and row.
        ConfigError: An option that cannot be used.
    """
    only_split(bench.title, split, bench.splits)
    stems = [Path(pattern).stem for pattern in bench.hub.patterns] if bench.hub else [bench.files or "*"]
    expected = " or ".join(f"{stem}{suffix}" for stem in stems for suffix in _SUFFIXES)
    files = find_files(path, _SUFFIXES, expected)
    if Path(path).is_dir() and bench.files:
        files = [file for file in files if file.match(bench.files)]
        if not files:
            raise FormatError(f"{path}: holds no {bench.title}. Expected {expected}.")
    chosen = sorted(file for file in files if file.suffix == files[0].suffix)
    reader = LetteredReader(bench.name, bench.categories, needs_cycle)
    return RowTaskSet(table_of(chosen), reader, subset=subset, on_error=on_error, images=images)


@dataclass(frozen=True)
class LetteredReader:
    """Columns `index, question, A, B, …, answer (a letter), category, image (base64 or bytes)`, as published.

    Attributes:
        bench: Name of the benchmark.
        categories: The allowed categories.
        needs_cycle: Each row must have a `cycle_category`, since the score is a mean over cycles.
    """

    bench: str
    categories: tuple[str, ...]
    needs_cycle: bool = False
    image_column: str = "image"
    frame: Frame = "stored"

    def scan(self, table: RowTable) -> Scan:
        """Check ids, questions, options, letters and categories of all rows."""
        table.require("index", "question", "A", "B", "answer", "image", "category")
        if self.needs_cycle:
            table.require("cycle_category")
        names = (*_letters(table), "index", "question", "answer", "category", "cycle_category")
        columns = {name: table.values(name) for name in names}
        ids = [f"{self.bench}-{plain(index)}" for index in columns["index"]]
        categories = [plain(category) for category in columns["category"]]
        return Scan(ids, categories, problems_of(table, columns, self._check))

    def _check(self, fields: Mapping[str, Any], where: str) -> tuple[str, dict[str, str], str]:
        """Return question, options and the right option's text."""
        if not plain(fields["index"]):
            raise TaskError(f"{where}: 'index' is empty. Give each row its own.")
        question = plain(fields["question"])
        if not question:
            raise TaskError(f"{where}: 'question' is empty.")
        category = plain(fields["category"])
        if category not in self.categories:
            raise TaskError(
                f"{where}: 'category' is {brief(fields['category'])}; expected one of {', '.join(self.categories)}."
            )
        if self.needs_cycle and not plain(fields.get("cycle_category")):
            raise TaskError(f"{where}: 'cycle_category' is empty.")
        options = {name: plain(fields[name]) for name in LETTERS if name in fields and plain(fields[name])}
        if list(options) != list(LETTERS[: len(options)]) or len(options) < 2:
            raise TaskError(f"{where}: has the options {', '.join(options) or 'none'}; expected A, B and so on.")
        return question, options, letter_answer(where, fields["answer"], options)

    def read(self, row: Mapping[str, Any], where: str, index: int) -> DraftTask:
        """Read one row; the options keep the row's order, which the cycles permute."""
        question, options, answer = self._check(row, where)
        rest = other_fields(row, _USED)
        cycle = rest.pop("cycle_category", None)
        own = scorer_meta(self.bench, question_type="multi_choice", cycle_category=cycle)
        return DraftTask(
            images=row["image"],
            question=question,
            answer=answer,
            choices=tuple(options.values()),
            category=plain(row["category"]),
            meta={**rest, **own, "index": plain(row["index"]), "label": plain(row["answer"]).strip("().: ").upper()},
        )


def _letters(table: RowTable) -> list[str]:
    return [name for name in LETTERS if table.has(name)]
