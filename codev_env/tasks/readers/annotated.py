"""Annotation files of newer benchmarks: one image, a question, its options in one text or in columns, and boxes.

Formats read in public sources: data/README.md and the JSONL files of m-Just/InSight-o3 (TreeBench, VisualProbe,
MME-RealWorld-Lite, O3-Bench), inference_treebench.py of Haochen-Wang409/TreeVGR (TreeBench.tsv), docs/mini_o3_demo.md
of Mini-o3/Mini-o3 (VisualProbe's val.json: images, doc_id, problem, solution, data_source), and
vlmeval/dataset/image_mcq.py of open-compass/VLMEvalKit (MME-RealWorld-Lite and BLINK as TSV). ZoomBench on the hub: the
loader of zsxm1998/awesome-perception-aware-rlvr (id, query, response, question_type, bbox, image, crop_image); of
inclusionAI/Zooming-without-Zooming, utils/eval_coverage.py (bbox is x1 y1 x2 y2 in pixels of the whole image) and
utils/convert_benchmark.py (the zoombench.json that it writes: images, crop_images, query, response). CharXiv is in the
module `charxiv`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codev_env.benches import Bench
from codev_env.errors import FormatError, TaskError
from codev_env.python_text import literal
from codev_env.tasks.readers.blink import BlinkReader
from codev_env.tasks.readers.boxes import Frame, boxes_from
from codev_env.tasks.readers.cells import image_path
from codev_env.tasks.readers.fields import (
    LETTERS,
    brief,
    given_options,
    letter_answer,
    other_fields,
    plain,
    scorer_meta,
    split_options,
)
from codev_env.tasks.readers.files import find_files, json_tables, only_split, table_of
from codev_env.tasks.readers.images import Rules
from codev_env.tasks.readers.own_text import single_text
from codev_env.tasks.readers.rowset import DraftTask, OnError, RowTaskSet, Scan, problems_of
from codev_env.tasks.readers.table import RowTable

_SUFFIXES = (".jsonl", ".parquet", ".tsv", ".json")
_NAMES = {
    "image": ("image", "images", "file_name"),
    "question": ("question", "problem", "prompt", "query"),
    "options": ("options", "multi-choice options"),
    "answer": ("answer", "solution", "response"),
    "category": ("category", "subset", "inst_category", "data_source"),
    "id": ("question_id", "index", "figure_id", "doc_id"),
    "boxes": ("target_instances",),
}
"""The columns of each field, the first one that a table has."""
_PLACES = ("imgs", "data", "..")
"""Folders of the images beside the annotations, where they are not in the annotations' folder or its `images/`."""
_REPEAT = re.compile(r"#[0-9]+$")


def open_annotated(
    path: str | Path,
    split: str = "test",
    *,
    bench: Bench,
    needs: Sequence[str] = (),
    image: str = "",
    box_column: str = "",
    suffix: str = "",
    repeats: bool = False,
    subset: str | None = None,
    seed: int = 0,
    on_error: OnError = "raise",
    images: Rules = None,
) -> RowTaskSet:
    """Open a benchmark whose annotations are one file.

    Args:
        path: A JSONL, Parquet, TSV or JSON file, a folder that holds one, also in a folder named like the split, or
            the folder of BLINK's subtasks or of VisualProbe's parts.
        split: A split of the benchmark.
        bench: The benchmark; of a folder's files those that match `bench.files` are read.
        needs: Fields that each row must have besides image, question and answer: `"options"`, `"boxes"`, `"category"`.
        image: Column of the image instead of the usual ones.
        box_column: Column of the boxes instead of the usual one.
        suffix: What the column's value lacks of a file name, such as `".jpg"`.
        repeats: The data repeat some rows in full, each of which counts: from the second on `#2` is added to the id.
        subset: Only this category.
        seed: Not used: the order of the options is part of the data.
        on_error: How to treat bad rows, see `RowTaskSet`.
        images: Which images are accepted; `None` for the defaults.

    Raises:
        TaskError: Missing or invalid data; the message names file and row.
        ConfigError: An option that cannot be used.
    """
    only_split(bench.title, split, bench.splits)
    parts = sorted(Path(path).glob(bench.subfolders)) if bench.subfolders else []
    if parts and parts[0].suffix == ".parquet":
        return RowTaskSet(table_of(parts), BlinkReader(bench.name), subset=subset, on_error=on_error, images=images)
    table: RowTable = json_tables(parts, Path(path)) if parts else table_of(_files(path, bench, split))
    return open_rows(
        table,
        bench,
        needs=needs,
        image=image,
        box_column=box_column,
        suffix=suffix,
        repeats=repeats,
        subset=subset,
        on_error=on_error,
        images=images,
    )


def _files(path: str | Path, bench: Bench, split: str) -> list[Path]:
    """Find the tables of a folder, all of the first one's kind; raises `FormatError`."""
    expected = f"{bench.files or '*'} as {', '.join(_SUFFIXES)}"
    try:
        files = find_files(path, _SUFFIXES, expected)
    except FormatError:
        inner = Path(path) / split  # as O3-Bench is on the hub
        if not inner.is_dir():
            raise
        files = find_files(inner, _SUFFIXES, expected)
    if Path(path).is_dir() and bench.files:
        files = [file for file in files if file.match(bench.files)]
        if not files:
            raise FormatError(f"{path}: holds no {bench.title}. Expected {expected}.")
    return [file for file in files if file.suffix == files[0].suffix]


def open_rows(
    table: RowTable,
    bench: Bench,
    *,
    needs: Sequence[str],
    image: str,
    suffix: str,
    box_column: str = "",
    repeats: bool = False,
    subset: str | None,
    on_error: OnError,
    images: Rules,
) -> RowTaskSet:
    """Open the rows of a table; see `open_annotated`."""
    columns = _columns(table, bench.title, image, box_column, needs)
    reader = AnnotatedReader(bench.name, columns, bench.categories, tuple(needs), suffix, repeats)
    folder = _image_folder(table, reader)
    return RowTaskSet(table, reader, subset=subset, on_error=on_error, images=images, image_folder=folder)


def _columns(
    table: RowTable, title: str, image: str, box_column: str, needs: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """Return the column of each field that the table has; raises `FormatError` if one that is needed is missing."""
    names = (
        _NAMES | ({"image": (image, f"{image}s")} if image else {}) | ({"boxes": (box_column,)} if box_column else {})
    )
    found = {field: next((name for name in known if table.has(name)), "") for field, known in names.items()}
    lettered = table.has("A") and table.has("B")
    for field in ("image", "question", "answer", *needs):
        if not found[field] and not (field == "options" and lettered):
            raise FormatError(
                f"{table.source}: has no column {' or '.join(map(repr, names[field]))}, which {title} needs. "
                "docs/data.md describes the format that is read."
            )
    letters = [(letter, letter) for letter in LETTERS if lettered and not found["options"] and table.has(letter)]
    return (*((field, name) for field, name in found.items() if name), *letters)


def _image_folder(table: RowTable, reader: AnnotatedReader) -> Path | None:
    """Return the folder that the first row's image path is relative to; `None` for the table's own, or no path."""
    if not len(table):
        return None
    cell, folder = table.peek(0, reader.image_column), table.folder(0)
    first = reader.image_of(cell[0] if isinstance(cell, list | tuple) and cell else cell)
    if not isinstance(first, str) or image_path(first, folder) is not None:
        return None
    return next((folder / place for place in _PLACES if image_path(first, folder / place) is not None), None)


@dataclass(frozen=True)
class AnnotatedReader:
    """Rows of one image, a question, options or none, and boxes or none.

    Attributes:
        bench: Name of the benchmark.
        columns: Pairs of a field (a key of `_NAMES`, or an option's letter) and its column.
        categories: The allowed categories; any if empty.
        needs: Fields that each row must have.
        suffix: Added to the image column's value.
        repeats: Rows may be repeated in full.
    """

    bench: str
    columns: tuple[tuple[str, str], ...]
    categories: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    suffix: str = ""
    repeats: bool = False
    frame: Frame = "stored"

    @property
    def image_column(self) -> str:
        """Name of the column with images."""
        return dict(self.columns)["image"]

    def image_of(self, cell: Any) -> Any:
        """Return the image that a cell names, as `DraftTask.images` takes it."""
        return f"{plain(cell)}{self.suffix}" if self.suffix else cell

    def scan(self, table: RowTable) -> Scan:
        """Check ids, questions, options, letters, categories and boxes of all rows."""
        columns = {name: table.values(name) for field, name in self.columns if field != "image"}
        own = dict(self.columns).get("id")
        numbers = columns[own] if own else range(len(table))
        ids = [f"{self.bench}-{plain(number)}" for number in numbers]
        if self.repeats:
            ids = _numbered(ids, zip(*columns.values(), strict=True))
        named = dict(self.columns).get("category")
        categories = [plain(value) for value in columns[named]] if named else [""] * len(table)
        return Scan(ids, categories, problems_of(table, columns, self._check))

    def _check(self, row: Mapping[str, Any], where: str) -> tuple[str, dict[str, str], str]:
        """Return question, options by letter and the right answer's text."""
        cells = {field: row.get(name) for field, name in self.columns if field != "image"}
        question = plain(cells["question"]).replace("<image>", "").strip()
        answer = plain(single_text(cells["answer"], "answer", where))
        for field, value in (("question", question), ("answer", answer)):
            if not value:
                raise TaskError(f"{where}: {dict(self.columns)[field]!r} is empty.")
        if "id" in cells and not plain(cells["id"]):
            raise TaskError(f"{where}: {dict(self.columns)['id']!r} is empty. Give each row its own.")
        category = plain(cells.get("category"))
        if (self.categories and category not in self.categories) or ("category" in self.needs and not category):
            expected = ", ".join(self.categories) or "a name"
            raise TaskError(f"{where}: 'category' is {brief(cells.get('category'))}; expected one of {expected}.")
        options = self._options(cells, where)
        if not options and "options" not in dict(self.columns):
            question, options = split_options(question)
        if "options" in self.needs and not options:
            raise TaskError(f"{where}: has no options.")
        if "boxes" in self.needs and not self._boxes(cells, where):
            raise TaskError(f"{where}: 'target_instances' is empty; expected boxes [x1, y1, x2, y2] in pixels.")
        return question, options, letter_answer(where, answer, options) if options else answer

    def _options(self, cells: Mapping[str, Any], where: str) -> dict[str, str]:
        """Read options from columns A, B, ..., from a list or mapping, or from a text with a letter before each."""
        if "A" in cells:
            return {name: plain(cells[name]) for name in LETTERS if plain(cells.get(name))}
        value = cells.get("options")
        value = _literal(value) if isinstance(value, str) and value.lstrip()[:1] in ("[", "{") else value
        given = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else [value]
        if not any(map(plain, given)):
            return {}
        options = given_options(value)
        if not options:
            raise TaskError(
                f"{where}: the options are {brief(value)}; expected a list of 2 to 26 texts, a mapping of letters to "
                "texts, or a text with 'A. ...' or '(A) ...', one a line."
            )
        return options

    def _boxes(self, cells: Mapping[str, Any], where: str) -> tuple[tuple[float, ...], ...]:
        value = cells.get("boxes")
        return boxes_from(_literal(value) if isinstance(value, str) else value, where)

    def read(self, row: Mapping[str, Any], where: str, index: int) -> DraftTask:
        """Read one row; the options keep the row's order."""
        question, options, answer = self._check(row, where)
        names = dict(self.columns)
        used = {*names.values(), "crop_image", "crop_images"}
        rest = other_fields(row, used)
        kind = "multi_choice" if options else "free_form"
        label = {"label": plain(row[names["answer"]]).strip("().: ").upper()} if options else {}
        return DraftTask(
            images=self.image_of(row[self.image_column]),
            question=question,
            answer=answer,
            choices=tuple(options.values()),
            boxes=self._boxes({"boxes": row.get(names.get("boxes", ""))}, where),
            category=plain(row.get(names.get("category", ""))),
            meta={**rest, **scorer_meta(self.bench, question_type=kind), **label},
        )


def original_id(task_id: str) -> str:
    """Return the id of the row that a row of a benchmark with repeated rows repeats; its own if it repeats none."""
    return _REPEAT.sub("", task_id)


def _numbered(ids: Sequence[str], rows: Iterable[object]) -> list[str]:
    """Return ids with a number after those of rows that are repeated; other rows with one id keep it."""
    found, times = list[str](), Counter[tuple[str, str]]()
    for task_id, row in zip(ids, rows, strict=True):
        times[task_id, repr(row)] += 1
        count = times[task_id, repr(row)]
        found.append(task_id if count == 1 else f"{task_id}#{count}")
    return found


def _literal(text: str) -> Any:
    """Read a list that a TSV or JSONL file holds as text; `None` for an empty text, the text itself if it is none."""
    try:
        return literal(text) if text.strip() else None
    except ValueError:
        return text
