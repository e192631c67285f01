"""MVToolBench: questions on small text in documents that were rotated or flipped (arXiv 2512.03746)."""

from __future__ import annotations

from pathlib import Path

from codev_env.tasks.readers.checks import Rules
from codev_env.tasks.readers.files import find_files, only_split, table_of
from codev_env.tasks.readers.rowset import OnError, RowTaskSet
from codev_env.tasks.readers.verl import VerlReader, open_stored


def open_mvtool(
    path: str | Path,
    split: str = "test",
    *,
    subset: str | None = None,
    seed: int = 0,
    on_error: OnError = "raise",
    images: Rules = None,
) -> RowTaskSet:
    """Open MVToolBench (`kkwok/MVToolBench`).

    The box of a row lies in the frame of the *transformed* image, which is the one that is stored and shown, so it is
    the target as it is. `Task.transform` holds the names of what was done to the image (`"rotate_90"`); the row's own
    list, in which `"crop"` says that the answer is too small to read without a crop, is `meta["transform"]`.

    Args:
        path: The Parquet file, or the folder that holds it.
        split: MVToolBench has only `"test"`, whatever its own file calls it.
        subset: Only this `data_source`.
        seed: Not used: nothing is drawn at random.
        on_error: What to do about bad rows, see `RowTaskSet`.
        images: What pictures are accepted; `None` for the defaults. EXIF orientation is never applied.

    Raises:
        TaskError: Anything that is missing or makes no sense; the message names file and row.
        ConfigError: An option that cannot be used.
    """
    only_split("MVToolBench", split, ("test",))
    files = find_files(path, (".parquet",), "a Parquet file with the columns prompt, images and extra_info")
    return open_stored(table_of(files), VerlReader("mvtool"), subset, on_error, images)
