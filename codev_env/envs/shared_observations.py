"""Observations of any size between the processes of `gymnasium.vector.AsyncVectorEnv(shared_memory=True)`.

Gymnasium sizes a block of memory by the space, which texts and images of any size do not allow. Each environment writes
its values to a file in shared memory instead. Importing this module registers that for the spaces of this package.
"""

from __future__ import annotations

import contextlib
import errno
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gymnasium.vector.utils import create_shared_memory, read_from_shared_memory, write_to_shared_memory

from codev_env.files import folder_of
from codev_env.spaces import Images, Unicode

_MEMORY = Path("/dev/shm")


class SharedValues(Sequence[Any]):
    """The latest value of each environment, read when it is asked for; a deep copy is a tuple of values.

    Args:
        number: Environments.
        empty: The value before an environment wrote one.
    """

    def __init__(self, number: int, empty: Any) -> None:
        self._number, self._empty = number, empty
        # In containers the memory often holds 64 MB, which an image of 8K exceeds: then the disk is used.
        places = (_MEMORY, None) if _MEMORY.is_dir() else (None,)
        self._folders = tuple(folder_of(self, "codev-observations-", place) for place in places)

    def __len__(self) -> int:
        return self._number

    def __getitem__(self, index: Any) -> Any:
        """Return the value of an environment, or a tuple of values for a slice."""
        if isinstance(index, slice):
            return tuple(self[at] for at in range(*index.indices(self._number)))
        if not -self._number <= index < self._number:
            raise IndexError(f"there are {self._number} environments, so no number {index}.")
        for folder in self._folders:
            with contextlib.suppress(FileNotFoundError):
                return pickle.loads((folder / str(index % self._number)).read_bytes())
        return self._empty

    def __deepcopy__(self, memo: dict[int, Any]) -> tuple[Any, ...]:
        return tuple(self)

    def write(self, index: int, value: Any) -> None:
        """Replace the value of an environment; a reader sees the old one or the new one.

        Raises:
            OSError: There is no room for it.
        """
        data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
        first, *others = (folder / str(index) for folder in self._folders)
        try:
            _replace(first, data)
        except OSError as error:
            if error.errno != errno.ENOSPC or not others:
                raise
            _replace(others[0], data)
            first.unlink(missing_ok=True)


def _replace(path: Path, data: bytes) -> None:
    part = path.with_suffix(".part")
    try:
        part.write_bytes(data)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


@create_shared_memory.register(Images)
@create_shared_memory.register(Unicode)
def _create(space: Images | Unicode, n: int = 1, ctx: Any = None) -> SharedValues:
    return SharedValues(n, "" if isinstance(space, Unicode) else ())


@read_from_shared_memory.register(Images)
@read_from_shared_memory.register(Unicode)
def _read(space: Images | Unicode, shared_memory: SharedValues, n: int = 1) -> SharedValues:
    return shared_memory


@write_to_shared_memory.register(Images)
@write_to_shared_memory.register(Unicode)
def _write(space: Images | Unicode, index: int, value: Any, shared_memory: SharedValues) -> None:
    shared_memory.write(index, value)
