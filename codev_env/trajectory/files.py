"""Writing and reading `trajectories.jsonl`."""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from codev_env.errors import TrajectoryError
from codev_env.files import append_line, lock_file
from codev_env.trajectory.images import ImageSaver
from codev_env.trajectory.record import Trajectory
from codev_env.trajectory.rows import FILE_NAME, SCHEMAS, row_of, trajectory_of


class TrajectoryWriter:
    """Appends trajectories to a folder; what was written stays readable if the process dies at any moment.

    Image files, named by their content, are complete on disk before the line that names them. A line is written whole,
    in one call, or (disk full) taken back. Safe to use from several threads, and by several processes at once.

    Args:
        folder: Made if missing; an existing file is continued, and a torn last line removed with a warning.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.path = self.folder / FILE_NAME
        self._images = ImageSaver(self.folder)
        self._lock = threading.Lock()
        with _locked(self.path):
            _mend_tail(self.path)
        self._file = open(self.path, "ab", buffering=0)  # closed in close()

    def append(self, trajectory: Trajectory) -> None:
        """Write one trajectory; raises `TrajectoryError` for values that JSON or PNG cannot hold."""
        row = row_of(trajectory, self._images.save)
        try:
            line = _dump(row)
        except (TypeError, ValueError) as error:
            raise TrajectoryError(f"trajectory {trajectory.task_id!r} is not JSON: {error}.") from error
        with self._lock, _locked(self.path):  # else taking a line back could take another process's with it
            append_line(self._file, line)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> TrajectoryWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def write_trajectories(folder: str | os.PathLike[str], trajectories: Iterable[Trajectory]) -> Path:
    """Append trajectories to a folder and return the path of its `trajectories.jsonl`."""
    with TrajectoryWriter(folder) as writer:
        for trajectory in trajectories:
            writer.append(trajectory)
        return writer.path


def read_trajectories(folder: str | os.PathLike[str]) -> list[Trajectory]:
    """Read back what `TrajectoryWriter` wrote; images are decoded only when looked at.

    Args:
        folder: The folder, or the path of its `trajectories.jsonl`.

    Returns:
        The trajectories in the order written, equal to those written. A torn last line, left by a process that died
        while writing, is ignored with a warning.

    Raises:
        TrajectoryError: If the file is missing or a line cannot be used; names file and line.
    """
    path = Path(folder)
    path = path if path.is_file() else path / FILE_NAME
    found: list[Trajectory] = []
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    found += [_parse(path, number, line)] if line.strip() else []
                except TrajectoryError:
                    if line.endswith(b"\n"):
                        raise
                    _warn_torn(path, number)
    except OSError as error:
        raise TrajectoryError(f"cannot read {path}: {error.strerror}. Give the folder a run wrote to.") from error
    return found


def _dump(row: dict[str, Any]) -> bytes:
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    except UnicodeEncodeError:  # A lone surrogate, which a program may print, has no UTF-8: escape it.
        return json.dumps(row, allow_nan=False).encode() + b"\n"


def _parse(path: Path, number: int, line: bytes) -> Trajectory:
    where = f"{path}, line {number}"
    try:
        row = json.loads(line)
    except ValueError as error:
        raise TrajectoryError(f"{where}: not JSON ({error}). Remove the line or write the file again.") from error
    if not isinstance(row, dict) or "schema" not in row:
        raise TrajectoryError(f"{where}: not a trajectory (no `schema`).")
    schema = row["schema"]
    if schema not in SCHEMAS:
        known = " and ".join(map(str, SCHEMAS))
        raise TrajectoryError(f"{where}: schema {schema!r} is unknown; this version reads schema {known}.")
    try:
        return trajectory_of(row, path.parent)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise TrajectoryError(f"{where}: not a trajectory of schema {schema} ({error}).") from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other processes from writing to a file, where its disk has locks."""
    with path.open("ab") as file:
        with suppress(OSError):  # as on some network disks
            lock_file(file)
        yield


def _mend_tail(path: Path) -> None:
    """Make an existing file end with a whole line, so that the next one does not join a torn one."""
    if not path.exists() or not path.stat().st_size:
        return
    with open(path, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        if file.read() == b"\n":
            return
        file.seek(0)
        [(number, last)] = deque(enumerate(file, 1), 1)
        try:
            json.loads(last)
        except ValueError:
            _warn_torn(path, number)
            file.truncate(file.tell() - len(last))
        else:
            file.write(b"\n")


def _warn_torn(path: Path, number: int) -> None:
    warnings.warn(f"{path}, line {number}: torn (the writer died); ignored.", RuntimeWarning, stacklevel=3)
