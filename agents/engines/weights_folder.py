"""The folder in which a process keeps the weights that servers read; what killed processes left is removed."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from codev_env.files import folder_of, lock_file

_PREFIX = "codev-weights-"
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
        self.path = folder_of(self, _PREFIX, parent or None, lock_file)


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
