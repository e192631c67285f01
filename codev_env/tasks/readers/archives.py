"""Archives of images that a data set ships beside its rows."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import zipfile
from pathlib import Path

from codev_env.errors import TaskError
from codev_env.tasks.readers.parquet import cache_dir
from codev_env.tasks.readers.table import file_state

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
_LEAST = 1 << 30  # bytes that any archive may unpack to
_MOST_TIMES = 20  # images hardly compress: more than so many times the archive's size is no archive of images


def unpacked(archive: Path) -> Path:
    """Unpack the images of a ZIP archive into the cache folder, once, and return the folder.

    Raises:
        TaskError: It is no ZIP archive, is damaged, or unpacks to far more than its own size.
    """
    state = (str(archive.resolve()), *file_state(archive))
    place = cache_dir() / "unpacked" / hashlib.sha256(repr(state).encode()).hexdigest()[:24]
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=place.parent, prefix=".partial-"))
    try:
        with zipfile.ZipFile(archive) as file:
            members = [m for m in file.infolist() if m.filename.lower().endswith(IMAGE_SUFFIXES)]
            size = sum(member.file_size for member in members)
            if size > max(_LEAST, _MOST_TIMES * archive.stat().st_size):
                raise TaskError(f"{archive}: unpacks to {size} bytes, far more than images would. Download it again.")
            for member in members:
                file.extract(member, partial)  # which keeps names inside of the folder
        # Another process may have been faster: its copy is the same.
        try:
            os.rename(partial, place)
        except OSError:
            if not place.is_dir():
                raise
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise TaskError(
            f"{archive}: cannot be unpacked ({error}). Download it again, or unpack it beside the rows."
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return place
