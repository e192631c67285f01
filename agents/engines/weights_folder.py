"""The folder in which a process keeps the weights that servers read; what killed processes left is removed."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import shutil
import socket
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from codev_env.files import lock_file

_PREFIX = "codev-weights-"
_OWNER = "owner"  # names the machine, and is locked as long as the process lives
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


class WeightsFolder:
    """A folder that disappears with this object or, after a SIGKILL, when the next one is made beside it.

    Args:
        parent: Where it is made; empty is the system's temporary folder.

    Attributes:
        path: The folder.

    Raises:
        OSError: It cannot be made.
    """

    def __init__(self, parent: str = "") -> None:
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent or None))
        owner: IO[str] | None = None
        if importlib.util.find_spec("fcntl"):
            with contextlib.suppress(OSError):  # without locks, as on some network disks, nobody can say who lives
                owner = _own(self.path)
                _remove_left(self.path)
        weakref.finalize(self, _remove, self.path, owner)


@contextlib.contextmanager
def locked_if_possible(path: Path) -> Iterator[None]:
    """Hold a lock among processes while the block runs; on a disk without locks, as some network disks, hold none."""
    with path.open("a") as file:
        try:
            lock_file(file)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        yield


def _own(folder: Path) -> IO[str]:
    """Lock the file of a folder that says whose it is; it appears when it is locked."""
    part = folder / f"{_OWNER}.part"
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


def _remove_left(own: Path) -> None:
    """Remove the folders beside this one whose processes have ended on this machine."""
    for left in own.parent.glob(f"{_PREFIX}*/"):
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


def _remove(folder: Path, owner: IO[str] | None) -> None:
    if owner:
        owner.close()
    shutil.rmtree(folder, ignore_errors=True)


def _machine() -> str:
    """Return what names this machine until it starts again: names of hosts repeat, and those of containers change."""
    return _BOOT.read_text().strip() if _BOOT.exists() else socket.gethostname()
