"""Files that are complete at any moment (written aside, then renamed), and locks among processes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file completely or not at all; also removes the partial file of a writer that was killed on this machine.

    Devices and pipes, such as `/dev/null`, are written to, and a link's file is replaced, not the link.

    Raises:
        OSError: The disk is full, or the folder cannot be written; an existing file stays as it was.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    path = path.resolve()
    # On a shared disk a process of another machine may have the same number.
    host = re.sub(r"[^\w-]", "_", socket.gethostname())
    for left in path.parent.glob(f".{path.name}.*"):
        writer = re.fullmatch(rf"\.(\d+)(\.{host})?", left.name[len(path.name) + 1 :])
        if writer and not _runs(int(writer[1])):
            left.unlink(missing_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.{host}")
    try:
        aside.write_bytes(content)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text completely or not at all; raises `OSError`."""
    # A model can emit lone surrogates, which UTF-8 cannot encode.
    write_bytes(path, text.encode("utf-8", "replace"))


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file completely or not at all; raises `OSError`."""
    write_text(path, json.dumps(content, indent=2) + "\n")


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock among threads and processes while the block runs; the lock file is made, and stays."""
    with path.open("a") as file:
        lock_file(file)
        yield


def lock_file(file: IO[Any], *, wait: bool = True) -> None:
    """Lock an open file until it is closed. On systems without `flock` (Windows) nothing is locked.

    Args:
        file: Any open file; locks exclude each other between files that were opened separately.
        wait: Wait while another one holds the lock.

    Raises:
        BlockingIOError: Another one holds the lock, with `wait=False`.
    """
    try:
        import fcntl
    except ImportError:
        return
    fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True
