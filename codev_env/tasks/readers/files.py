"""Finding the files of a data set and opening them as tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from codev_env.errors import FormatError, TaskError
from codev_env.tasks.readers.fields import brief, read_text
from codev_env.tasks.readers.parquet import ParquetTable
from codev_env.tasks.readers.table import JsonlTable, ListTable, RowTable, TsvTable

SPLIT_NAMES = {"train": ("train", "training"), "val": ("val", "validation", "valid", "dev"), "test": ("test", "eval")}
"""Names of splits in file names and data sets."""


def only_split(title: str, split: str, splits: Sequence[str]) -> None:
    """Raise `TaskError` unless a benchmark has the split."""
    if split not in splits:
        known = ", ".join(map(repr, splits))
        raise TaskError(
            f"{title} has no split {split!r}, only {known}. "
            "For the others use generated tasks (data='synthetic') or another data set."
        )


def find_files(path: str | Path, suffixes: Sequence[str], expected: str) -> list[Path]:
    """Return the files of a data set: the path itself, or files of a folder or its `data/`, by order of `suffixes`.

    Args:
        path: A file or a folder.
        suffixes: Suffixes to look for; a folder with files of the first is not searched for the second.
        expected: Description of the expected files, for errors.

    Raises:
        TaskError: No such path.
        FormatError: None of the expected files.
    """
    root = Path(path)
    if root.is_file():
        if root.suffix.lower() not in suffixes:
            raise FormatError(f"{root}: is not a file of a known kind ({', '.join(suffixes)}). Expected {expected}.")
        return [root]
    if not root.is_dir():
        raise TaskError(f"{root}: no such file or folder. Expected {expected}.")
    for suffix in suffixes:
        for folder in (root, root / "data"):
            files = (file for file in folder.glob(f"*{suffix}") if not file.name.startswith("."))
            found = sorted(file for file in files if file.is_file())
            if found:
                return found
    raise FormatError(f"{root}: has none of the files that are expected here: {expected}.")


def of_split(files: Sequence[Path], split: str) -> list[Path]:
    """Return the files of a split; files whose names contain no split belong to `"train"`.

    A name contains a split if one of `SPLIT_NAMES` is a word of it, as in `train-00000-of-00002.parquet`.
    """
    return [file for file in files if (split_of(file.stem) or "train") == split]


def split_of(name: str) -> str | None:
    """Return the split that a file's name contains, or `None`."""
    words = name.lower().replace("-", "_").replace(".", "_").split("_")
    for split, aliases in SPLIT_NAMES.items():
        if any(alias in words for alias in aliases):
            return split
    return None


def table_of(files: Sequence[Path]) -> RowTable:
    """Open files of one kind, Parquet files together, others one."""
    suffix = files[0].suffix.lower()
    if suffix == ".parquet":
        return ParquetTable(files)
    if len(files) > 1:
        raise TaskError(
            f"{files[0].parent}: has several files that could be meant: {', '.join(f.name for f in files)}. "
            "Give the path of one."
        )
    if suffix == ".tsv":
        return TsvTable(files[0])
    return JsonlTable(files[0]) if suffix == ".jsonl" else json_table(files[0])


def json_table(path: Path) -> ListTable:
    """Open a JSON file that holds a list of rows, or a mapping of ids to rows."""
    try:
        data = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{path}: is not JSON ({error}). Restore it or download it again.") from error
    named = data.items() if isinstance(data, dict) else enumerate(data if isinstance(data, list) else [])
    rows, places = [], []
    for name, row in named:
        if not isinstance(row, dict):
            raise TaskError(f"{path}, entry {name!r}: is {brief(row)}; expected a JSON object with the fields.")
        rows.append(row)
        places.append(f"{path}, entry {name!r}")
    if not rows:
        raise TaskError(f"{path}: holds no rows; expected a list of JSON objects.")
    table = ListTable(str(path), rows, places, path.parent)
    table.signature = (str(path.resolve()), path.stat().st_mtime_ns, path.stat().st_size)
    return table


def json_tables(paths: Sequence[Path], folder: Path) -> ListTable:
    """Open several JSON files as one table, whose image paths start in `folder`; see `json_table`."""
    tables = [json_table(path) for path in paths]
    rows = [table.row(index) for table in tables for index in range(len(table))]
    places = [table.where(index) for table in tables for index in range(len(table))]
    whole = ListTable(f"{folder} ({len(paths)} files)", rows, places, folder)
    whole.signature = tuple(table.signature for table in tables)
    return whole
