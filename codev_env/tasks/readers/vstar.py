"""V*Bench from disk, in the forms it is published in (arXiv 2312.14135; `craigwu/vstar_bench`)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codev_env.benches import BENCHES, Bench
from codev_env.errors import FormatError, TaskError, unknown
from codev_env.tasks.readers.boxes import Frame, check_inside
from codev_env.tasks.readers.cells import image_path
from codev_env.tasks.readers.fields import (
    brief,
    field,
    is_number,
    parse_json,
    read_text,
    scorer_meta,
    shuffled,
    split_inline,
    text,
    texts,
)
from codev_env.tasks.readers.files import only_split, table_of
from codev_env.tasks.readers.images import Rules, image_size
from codev_env.tasks.readers.lettered import LetteredReader
from codev_env.tasks.readers.rowset import DraftTask, OnError, RowReader, RowTaskSet, Scan, check_on_error
from codev_env.tasks.readers.table import ListTable, RowTable
from codev_env.tasks.readers.vstar_parquet import ParquetReader

VSTAR = BENCHES["vstar"]
CATEGORIES = VSTAR.categories
"""The folders of V*Bench; the names are the categories of its questions."""

QUESTIONS = "test_questions.jsonl"
"""The file that makes a folder the Hugging Face form."""

_TABLES = (".parquet", ".tsv")
_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp")


class VStarTaskSet(RowTaskSet):
    """The questions of V*Bench; all metadata is checked when it is opened, images when a task is read."""

    def __init__(
        self,
        folder: str | Path,
        split: str = "test",
        *,
        category: str | None = None,
        seed: int = 0,
        on_error: OnError = "raise",
        images: Rules = None,
        bench: Bench = VSTAR,
    ) -> None:
        """Read the metadata of all rows, and of image files their headers.

        Args:
            folder: The folder that holds `direct_attributes/` and `relative_position/`, each with images and a JSON
                file of the same name per image. Where it also holds `test_questions.jsonl`, the questions and the
                order of the options are read from there, and the JSON files only give the boxes. Or a Parquet file
                (`ParquetReader`) or a TSV file (`VStarBench.tsv`: options in columns A to D, images as base64), both
                without boxes, or a folder with one (also in `data/`).
            split: V*Bench has only `"test"`.
            category: Only this category, or `None` for both.
            seed: Seeds the order of the options in the folder form, where the first option is always the right one.
            on_error: How to treat bad rows, see `RowTaskSet`.
            images: Which images are accepted; `None` for the defaults. Boxes are in pixels as the file stores them,
                as in Pillow without EXIF orientation; they turn with the image.
            bench: The benchmark: V*Bench, or another one in its format.

        Raises:
            TaskError: Missing or invalid data; the message names the file.
            ConfigError: An option that cannot be used.
        """
        check_on_error(on_error)
        root = Path(folder)
        files = _files(root)
        if not files and root.is_file():
            raise FormatError(
                f"{root}: is no Parquet or TSV file ({', '.join(_TABLES)}). Give one, or the folder that "
                f"holds {CATEGORIES[0]}/ and {CATEGORIES[1]}/."
            )
        if not files and not root.is_dir():
            raise TaskError(
                f"{root}: no such file or folder. Give the folder that holds {CATEGORIES[0]}/ and "
                f"{CATEGORIES[1]}/, or a Parquet or TSV file."
            )
        only_split(bench.title, split, bench.splits)
        if category is not None and category not in CATEGORIES:
            raise unknown(f"category of {bench.title}", category, CATEGORIES)
        reader: RowReader
        if files:
            table: RowTable = table_of(files)
            is_tsv = files[0].suffix.lower() == ".tsv"
            reader = (LetteredReader if is_tsv else ParquetReader)(bench.name, CATEGORIES)
        else:
            found = _read_questions(root) if (root / QUESTIONS).is_file() else _read_folders(root, seed)
            table, reader = found.table(root), _RowReader(bench.name)
        if not len(table) or category not in (None, *table.values("category")):
            raise (TaskError if len(table) else FormatError)(
                f"{root}: no questions{f' of category {category!r}' if category else ''} here. Expected "
                f"{CATEGORIES[0]}/ and {CATEGORIES[1]}/ with an image and a JSON file each, {QUESTIONS}, or a Parquet "
                "or TSV file."
            )
        super().__init__(table, reader, subset=category, on_error=on_error, images=images)
        self.folder = root

    def __repr__(self) -> str:
        return f"VStarTaskSet({str(self.folder)!r}, {len(self)} tasks)"


def open_vstar(
    path: str | Path,
    split: str = "test",
    *,
    bench: Bench = VSTAR,
    subset: str | None = None,
    seed: int = 0,
    on_error: OnError = "raise",
    images: Rules = None,
) -> VStarTaskSet:
    """Open V*Bench; see `VStarTaskSet`. `subset` is a category."""
    return VStarTaskSet(path, split, category=subset, seed=seed, on_error=on_error, images=images, bench=bench)


def _files(root: Path) -> list[Path]:
    """Return the Parquet files or the TSV file; nothing for the folder forms."""
    if root.is_file():
        return [root] if root.suffix.lower() in _TABLES else []
    if (root / QUESTIONS).is_file() or any((root / name).is_dir() for name in CATEGORIES):
        return []
    found = (sorted(folder.glob(f"*{suffix}")) for suffix in _TABLES for folder in (root, root / "data"))
    files = next((files for files in found if files), [])
    return files if files and files[0].suffix == ".parquet" else files[:1]


@dataclass(frozen=True)
class _RowReader:
    """Reads rows that `_read_pair` or `_read_question` has checked."""

    bench: str
    image_column: str = "image"
    frame: Frame = "stored"

    def scan(self, table: RowTable) -> Scan:
        return Scan(table.values("task_id"), table.values("category"))

    def read(self, row: Mapping[str, Any], where: str, index: int) -> DraftTask:
        return DraftTask(
            images=row["image"],
            question=row["question"],
            answer=row["answer"],
            choices=row["choices"],
            boxes=row["boxes"],
            category=row["category"],
            meta={**row["meta"], **scorer_meta(self.bench, question_type="multi_choice")},
        )


class _Rows:
    """Collects rows, good and bad ones."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._places: list[str] = []
        self._problems: dict[int, str] = {}

    def add(self, place: str, row: dict[str, Any]) -> None:
        """Add a good row."""
        self._rows.append(row)
        self._places.append(place)

    def reject(self, place: str, category: str, reason: str) -> None:
        """Add a bad row; the reason names its place."""
        self._problems[len(self._rows)] = reason
        self.add(place, {"task_id": place, "category": category})

    def table(self, root: Path) -> ListTable:
        """Return all rows as a table."""
        table = ListTable(str(root), self._rows, self._places, root)
        table.problems = self._problems
        table.signature = (str(root.resolve()), hashlib.sha256(repr(self._rows).encode()).hexdigest())
        return table


# ---- folder form


def _read_folders(root: Path, seed: int) -> _Rows:
    """Read image and JSON pairs, sorted by category and name."""
    rows = _Rows()
    for category in CATEGORIES:
        files = sorted(p for p in (root / category).glob("*") if p.is_file() and not p.name.startswith("."))
        images = _by_stem((p for p in files if p.suffix.lower() in _SUFFIXES), rows, category)
        notes = _by_stem((p for p in files if p.suffix.lower() == ".json"), rows, category)
        for stem in sorted({*images, *notes}):
            place = str(notes.get(stem) or images[stem])
            try:
                rows.add(place, _read_pair(images.get(stem), notes.get(stem), category, seed))
            except TaskError as error:
                rows.reject(place, category, str(error))
    return rows


def _by_stem(files: Iterable[Path], rows: _Rows, category: str) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in files:
        if path.stem in found:
            reason = f"{path}: {found[path.stem].name} has the same name before the dot. Remove one of them."
            rows.reject(str(path), category, reason)
        found.setdefault(path.stem, path)
    return found


def _read_pair(image: Path | None, note: Path | None, category: str, seed: int) -> dict[str, Any]:
    if image is None:
        raise TaskError(
            f"{note}: there is no image of the same name (one of {', '.join(_SUFFIXES)}). "
            "Download the image, or remove this file."
        )
    if note is None:
        raise TaskError(
            f"{image}: there is no JSON file of the same name with its question. Download it, or remove this image."
        )
    data = parse_json(note, read_text(note))
    question = text(note, data, "question")
    options = texts(note, data, "options")
    task_id = f"{category}-{image.stem}"
    return {
        "task_id": task_id,
        "image": str(image.resolve()),
        "question": question,
        "answer": options[0],
        "choices": shuffled(options, task_id, seed),
        "boxes": _boxes(note, data, image),
        "category": category,
        "meta": {"target_object": data.get("target_object", []), "file": f"{category}/{image.name}"},
    }


# ---- Hugging Face form


def _read_questions(root: Path) -> _Rows:
    """Read `test_questions.jsonl`, in its order."""
    path = root / QUESTIONS
    rows = _Rows()
    # splitlines() would also end a line at U+2028 or U+0085 inside a text.
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            rows.add(where, _read_question(root, where, line))
        except TaskError as error:
            rows.reject(where, "", str(error))
    return rows


def _read_question(root: Path, where: str, line: str) -> dict[str, Any]:
    data = parse_json(where, line)
    full, label = text(where, data, "text"), text(where, data, "label")
    category, name = text(where, data, "category"), text(where, data, "image")
    if category not in CATEGORIES:
        raise TaskError(f"{where}: 'category' is {category!r}; expected one of {', '.join(CATEGORIES)}.")
    question, options = split_inline(full)
    if label not in options:
        raise TaskError(f"{where}: 'label' is {label!r}, but 'text' has the options {sorted(options) or 'none'}.")
    if not all(options.values()):
        raise TaskError(f"{where}: 'text' has an option without text: {brief(options)}.")
    image = root / name
    if image_path(name, root) != image:  # The text may be longer than names can be.
        raise TaskError(f"{where}: the image {image} is missing. Download it, or remove this line.")
    note = image.with_suffix(".json")
    boxes: tuple[tuple[float, ...], ...] = ()
    target_object: Any = []
    if note.is_file():
        extra = parse_json(note, read_text(note))
        boxes, target_object = _boxes(note, extra, image), extra.get("target_object", [])
    else:
        image_size(image, str(image))
    return {
        "task_id": f"{category}-{image.stem}",
        "image": str(image.resolve()),
        "question": question,
        "answer": options[label],
        "choices": tuple(options.values()),
        "boxes": boxes,
        "category": category,
        "meta": {"target_object": target_object, "file": name, "question_id": data.get("question_id"), "text": full},
    }


def _boxes(where: Path, data: Mapping[str, Any], image: Path) -> tuple[tuple[float, ...], ...]:
    """Turn `bbox`, a list of `[x, y, width, height]`, into boxes `(x1, y1, x2, y2)` that lie inside the image."""
    value = field(where, data, "bbox")
    width, height = image_size(image, str(image))
    if not isinstance(value, list) or not value:
        raise TaskError(f"{where}: 'bbox' is {brief(value)}; expected a list of boxes [x, y, width, height].")
    boxes = []
    for entry in value:
        numbers = isinstance(entry, list) and len(entry) == 4 and all(is_number(v) for v in entry)
        if not numbers or entry[2] <= 0 or entry[3] <= 0:
            raise TaskError(
                f"{where}: 'bbox' holds {brief(entry)}; expected [x, y, width, height] in pixels, "
                "with width and height above 0."
            )
        box = (float(entry[0]), float(entry[1]), float(entry[0] + entry[2]), float(entry[1] + entry[3]))
        check_inside(box, width, height, str(where))
        boxes.append(box)
    return tuple(boxes)
