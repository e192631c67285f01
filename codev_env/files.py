"""Files that are complete at any moment (written aside, then renamed), and locks among processes."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all; also removes what a process that was killed here left of it.

    Raises:
        OSError: The disk is full, or the place cannot be written; what was there before is untouched.
    """
    for left in path.parent.glob(f".{path.name}.*"):
        if (writer := re.fullmatch(r"\.(\d+)", left.name[len(path.name) + 1 :])) and not _runs(int(writer[1])):
            left.unlink(missing_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_bytes(content)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text whole or not at all; raises `OSError`."""
    # A model can emit lone surrogates, which UTF-8 cannot hold.
    write_bytes(path, text.encode("utf-8", "replace"))


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file whole or not at all; raises `OSError`."""
    write_text(path, json.dumps(content, indent=2) + "\n")


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold a lock on a file among threads and processes. Without locks of this kind (Windows) nothing is locked.

    Args:
        path: The lock file; it is made where it is missing, and stays.
        wait: Wait while another one holds the lock.

    Raises:
        BlockingIOError: Another one holds the lock, with `wait=False`.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True
