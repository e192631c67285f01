"""Files that are complete at any moment (written aside, then renamed), locks among processes, folders of a process."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import socket
import tempfile
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

_OWNER = "owner"  # names the machine, and is locked as long as the process lives
_OWNER_PART = f"{_OWNER}.part"
_BOOT = Path("/proc/sys/kernel/random/boot_id")


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
    except OSError as error:
        error.filename, error.filename2 = str(path), None  # the file that was asked for, not the one aside
        raise
    finally:
        with contextlib.suppress(OSError):  # a read-only disk refuses this too
            aside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text completely or not at all; raises `OSError`."""
    # A model can emit lone surrogates, which UTF-8 cannot encode.
    write_bytes(path, text.encode("utf-8", "replace"))


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file completely or not at all; raises `OSError`."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read the whole lines of a JSON Lines file, none where there is no file: a kill may tear the last one."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def append_line(file: IO[bytes], line: bytes) -> None:
    """Append a line completely or not at all.

    Args:
        file: Open for appending, without a buffer; no other process may write to it at the same time.
        line: Ends with a newline.

    Raises:
        OSError: The disk is full; what was written of the line is removed.
    """
    start = os.fstat(file.fileno()).st_size
    try:
        if file.write(line) != len(line):
            raise OSError("short write: is the disk full?")
    except OSError:
        file.truncate(start)
        raise


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock among threads and processes while the block runs; the lock file is made, and stays."""
    with path.open("a") as file:
        lock_file(file)
        yield


def lock_file(file: IO[Any] | int, *, wait: bool = True) -> None:
    """Lock an open file until it is closed. On systems without `flock` (Windows) nothing is locked.

    Args:
        file: Any open file, or its descriptor; locks exclude each other between files that were opened separately.
        wait: Wait while another one holds the lock.

    Raises:
        BlockingIOError: Another one holds the lock, with `wait=False`.
    """
    try:
        import fcntl
    except ImportError:
        return
    fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def folder_of(
    owner: object, prefix: str, parent: Path | str | None = None, lock_file: Callable[..., None] = lock_file
) -> Path:
    """Make a folder that disappears with an object or, after a SIGKILL, when the next one is made beside it.

    Args:
        owner: The object; its copies in forked processes do not count.
        prefix: Begins the names of such folders.
        parent: Where it is made; by default the system's temporary folder.
        lock_file: Locks the file that says whose it is; an `OSError` where that cannot be: then others keep the folder.

    Raises:
        OSError: It cannot be made.
    """
    path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    weakref.finalize(owner, _remove, path, _own_first(path, prefix, lock_file), os.getpid())
    return path


@contextlib.contextmanager
def owned(folder: Path, prefix: str) -> Iterator[None]:
    """Mark a folder as this process's while the block runs; folders beside it that killed processes left are removed.

    Args:
        folder: The folder; others see by the file `owner` in it that its process lives.
        prefix: Begins the names of such folders.
    """
    lock = _own_first(folder, prefix, lock_file)
    try:
        yield
    finally:
        for name in (_OWNER, _OWNER_PART):
            (folder / name).unlink(missing_ok=True)
        if lock:
            lock.close()


def _own_first(folder: Path, prefix: str, lock_file: Callable[..., None]) -> IO[str] | None:
    """Own a folder, then remove those beside it whose processes have ended; returns the lock, if there is one."""
    lock: IO[str] | None = None
    if importlib.util.find_spec("fcntl"):
        with contextlib.suppress(OSError):  # without locks, as on some network disks, nobody can say who lives
            lock = _own(folder, lock_file)
            _remove_left(folder, prefix, lock_file)
    return lock


def _own(folder: Path, lock_file: Callable[..., None]) -> IO[str]:
    """Lock the file of a folder that says whose it is; it appears when it is locked."""
    part = folder / _OWNER_PART
    file = part.open("w", encoding="utf-8")
    try:
        lock_file(file, wait=False)
        file.write(_machine())
        file.flush()
        part.rename(folder / _OWNER)
    except BaseException:
        file.close()
        raise
    return file


def _remove_left(own: Path, prefix: str, lock_file: Callable[..., None]) -> None:
    """Remove the folders beside this one whose processes have ended on this machine."""
    for left in own.parent.glob(f"{prefix}*/"):
        # An error: it goes at the same time, belongs to another user, has no owner, or its process lives.
        with contextlib.suppress(OSError):
            owner = (left / _OWNER).open("r+", encoding="utf-8")
            with contextlib.closing(owner):
                # A lock may not be seen from another machine, so a free one says nothing of a process there.
                if left == own or owner.read() != _machine():
                    continue
                lock_file(owner, wait=False)
                shutil.rmtree(left, ignore_errors=True)
            left.rmdir()  # a network disk keeps an open file, and with it the folder


def _remove(folder: Path, lock: IO[str] | None, process: int) -> None:
    if os.getpid() == process:
        if lock:
            lock.close()
        shutil.rmtree(folder, ignore_errors=True)


def _machine() -> str:
    """Return what names this machine until it starts again: names of hosts repeat, and those of containers change."""
    return _BOOT.read_text().strip() if _BOOT.exists() else socket.gethostname()


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True
