"""HR-Bench, questions on pictures of 4K and 8K in four cyclic orders of the options (arXiv 2408.15556)."""

from __future__ import annotations

from pathlib import Path

from codev_env.errors import TaskError
from codev_env.tasks.readers.checks import Rules
from codev_env.tasks.readers.files import find_files, only_split, table_of
from codev_env.tasks.readers.lettered import LetteredReader
from codev_env.tasks.readers.rowset import OnError, RowTaskSet

CATEGORIES = ("single", "cross")
"""Categories of HR-Bench: one object, or several and how they relate."""


def open_hrbench4k(
    path: str | Path,
    split: str = "test",
    *,
    subset: str | None = None,
    seed: int = 0,
    on_error: OnError = "raise",
    images: Rules = None,
) -> RowTaskSet:
    """Open HR-Bench 4K: 200 questions, each in four orders of its options.

    Args:
        path: `hr_bench_4k.parquet` or `.tsv`, or a folder that holds one; of both, the Parquet file is read.
        split: HR-Bench has only `"test"`.
        subset: Only `"single"` or `"cross"`.
        seed: Not used: the order of the options is part of the benchmark.
        on_error: What to do about bad rows, see `RowTaskSet`.
        images: What pictures are accepted; `None` for the defaults.

    Raises:
        TaskError: Anything that is missing or makes no sense; the message names file and row.
        ConfigError: An option that cannot be used.
    """
    return _open("4k", path, split, subset, on_error, images)


def open_hrbench8k(
    path: str | Path,
    split: str = "test",
    *,
    subset: str | None = None,
    seed: int = 0,
    on_error: OnError = "raise",
    images: Rules = None,
) -> RowTaskSet:
    """Open HR-Bench 8K, as `open_hrbench4k`, from `hr_bench_8k.tsv` or `.parquet`."""
    return _open("8k", path, split, subset, on_error, images)


def _open(size: str, path: str | Path, split: str, subset: str | None, on_error: OnError, images: Rules) -> RowTaskSet:
    only_split("HR-Bench", split, ("test",))
    files = find_files(path, (".parquet", ".tsv"), f"hr_bench_{size}.parquet or hr_bench_{size}.tsv")
    if Path(path).is_dir():
        files = [file for file in files if size in file.name.lower()]
        if not files:
            raise TaskError(f"{path}: holds no HR-Bench {size.upper()}. Expected hr_bench_{size}.parquet or .tsv.")
    chosen = sorted(file for file in files if file.suffix == files[0].suffix)
    reader = LetteredReader(f"hrbench{size}", f"hrbench{size}", CATEGORIES, needs_cycle=True)
    return RowTaskSet(table_of(chosen), reader, subset=subset, on_error=on_error, images=images)
