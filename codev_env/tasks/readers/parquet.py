"""Parquet files with embedded images, read a row group at a time; needs pyarrow.

A row group is the smallest unit that Parquet reads. Small groups are read when one of their rows is asked for, and the
last ones are kept in memory. Many published files have one row group of a gigabyte: such a group is unpacked once, in
small pieces, to an Arrow file in the cache folder, which is mapped into memory so that single rows can be read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from codev_env.errors import FormatError, TaskError
from codev_env.files import locked
from codev_env.tasks.readers.cache import SizedCache, cleared_after_fork
from codev_env.tasks.readers.cells import import_optional
from codev_env.tasks.readers.fields import nearest
from codev_env.tasks.readers.labels import Labels
from codev_env.tasks.readers.table import RowTable, file_state

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_BYTES = 16 << 20
"""Row groups above this many bytes (16 MiB) are unpacked to a file instead of being read again."""

KEPT_BYTES = 64 << 20
"""Bytes of row groups that a process keeps in memory: 64 MiB."""

_PIECE_BYTES = 4 << 20


def cache_dir() -> Path:
    """Return the folder for cached files: `$CODEV_CACHE`, else `codev_env` in the user's cache folder."""
    own = os.environ.get("CODEV_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(own) if own else Path(base) / "codev_env"


class ParquetTable(RowTable):
    """The rows of one or several Parquet files, in order."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Read the footers.

        Args:
            paths: Files of one data set; a column counts as missing unless all files have it.

        Raises:
            TaskError: A file that cannot be read, or pyarrow is not installed.
        """
        pq = import_optional("pyarrow.parquet", "pyarrow", "A Parquet file")
        self._paths = [Path(path) for path in paths]
        self.source = str(self._paths[0]) if len(paths) == 1 else f"{self._paths[0].parent} ({len(paths)} files)"
        self._states = [file_state(path) for path in self._paths]
        self.signature = tuple((str(p.resolve()), *s) for p, s in zip(self._paths, self._states, strict=True))
        self._meta: list[Any] = []
        self._schemas: list[Any] = []
        self._labels: list[Labels] = []
        self._groups: list[tuple[int, int]] = []  # (file, row group)
        self._starts: list[int] = []  # first row of each group
        self._firsts: list[int] = []  # first row of each file
        self._len = 0
        for number, path in enumerate(self._paths):
            with _named(path):
                file = pq.ParquetFile(path)
            self._schemas.append(file.schema_arrow)
            self._labels.append(Labels(file.schema_arrow))
            self._meta.append(file.metadata)
            self._firsts.append(self._len)
            for group in range(file.metadata.num_row_groups):
                self._groups.append((number, group))
                self._starts.append(self._len)
                self._len += file.metadata.row_group(group).num_rows
        self.columns = tuple(name for name in self._schemas[0].names if all(name in s.names for s in self._schemas))

    def __len__(self) -> int:
        return self._len

    def where(self, index: int) -> str:
        """Return file and row; rows count from 0 in each file."""
        number = bisect_right(self._firsts, index) - 1
        return f"{self._paths[number]}, row {index - self._firsts[number]}"

    def folder(self, index: int) -> Path:
        """Return the folder of the row's file."""
        return self._paths[bisect_right(self._firsts, index) - 1].parent

    def stem(self, index: int) -> str:
        """Return the name of the row's file without suffix, and the row's number in it, as `name-number`."""
        number = bisect_right(self._firsts, index) - 1
        return f"{self._paths[number].stem}-{index - self._firsts[number]}"

    def has(self, column: str) -> bool:
        """Return whether there is a column, or a field of a struct column."""
        return all(has_field(schema, column) for schema in self._schemas)

    def require(self, *names: str) -> None:
        """Raise `TaskError` unless all files have all columns; the message names the file without it."""
        for path, schema in zip(self._paths, self._schemas, strict=True):
            for name in names:
                if not has_field(schema, name):
                    raise FormatError(
                        f"{path}: has no column {name!r}.{nearest(name, schema.names)} "
                        f"Its columns: {', '.join(schema.names) or 'none'}."
                    )

    def values(self, column: str) -> list[Any]:
        """Read one column, or one field of a struct column, of all rows, without the others."""
        pq = import_optional("pyarrow.parquet", "pyarrow", "A Parquet file")
        found: list[Any] = []
        for path, meta, schema, labels in zip(self._paths, self._meta, self._schemas, self._labels, strict=True):
            if not has_field(schema, column):
                found += [None] * meta.num_rows
                continue
            with _named(path):
                read = pq.ParquetFile(path, metadata=meta).read(columns=[column]).column(column.split(".")[0])
                for name in column.split(".")[1:]:
                    read = import_optional("pyarrow.compute", "pyarrow", "A Parquet file").struct_field(read, name)
                found += [labels.named(column, value) for value in read.to_pylist()]
        return found

    def row(self, index: int) -> dict[str, Any]:
        """Read one row."""
        at = bisect_right(self._starts, index) - 1
        number, group = self._groups[at]
        path = self._paths[number]
        if file_state(path) != self._states[number]:
            raise TaskError(f"{path}: has changed since it was opened. Open the data again.")
        state, meta = self._states[number], self._meta[number]
        found = _GROUPS.get((str(path), state, group), lambda: _read_group(path, state, meta, group))
        with _named(path):
            return self._labels[number].row(found.table.slice(index - self._starts[at], 1).to_pylist()[0])


def has_field(schema: Any, column: str) -> bool:
    """Return whether an Arrow schema has a column, or for `"a.b"` a struct column `a` with a field `b`."""
    name, *inner = column.split(".")
    kind = schema.field(name).type if name in schema.names else None
    for part in inner:
        if kind is None or kind.num_fields == 0 or not hasattr(kind, "get_field_index"):
            return False
        at = kind.get_field_index(part)
        kind = kind.field(at).type if at >= 0 else None
    return kind is not None


class _Group(NamedTuple):
    """A row group, and the bytes of memory that it takes: 0 where it is mapped from a file."""

    table: pa.Table
    size: int


_GROUPS = cleared_after_fork(SizedCache[_Group](KEPT_BYTES, lambda group: group.size))
"""The row groups of this process that were read last."""


def _read_group(path: Path, state: tuple[int, int], meta: Any, group: int) -> _Group:
    """Read or map a row group. Files are opened each time: threads and forks share none."""
    pq = import_optional("pyarrow.parquet", "pyarrow", "A Parquet file")
    with _named(path):
        if meta.row_group(group).total_byte_size > GROUP_BYTES:
            return _Group(_unpacked(path, state, meta, group), 0)
        table = pq.ParquetFile(path, metadata=meta).read_row_group(group, use_threads=False)
        return _Group(table, table.nbytes)


def _unpacked(path: Path, state: tuple[int, int], meta: Any, group: int) -> pa.Table:
    """Map the Arrow file of a large row group into memory; writes the file if it does not exist."""
    import pyarrow as pa

    name = hashlib.sha256(repr((str(path.resolve()), state, group)).encode()).hexdigest()[:24]
    target = cache_dir() / "row-groups" / f"{name}.arrow"
    if not target.is_file():
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with locked(target.with_suffix(".lock")):
                if not target.is_file():
                    _unpack(path, meta, group, target)
        except OSError as error:
            raise TaskError(
                f"{path}: its row group {group} is too large to be read at once and could not be unpacked to {target} "
                f"({error.strerror or error}). Make room there, or set CODEV_CACHE to another folder."
            ) from error
    return pa.ipc.open_file(pa.memory_map(str(target))).read_all()


def _unpack(path: Path, meta: Any, group: int, target: Path) -> None:
    """Write a row group as an Arrow file of small batches; memory holds a few of them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    info = meta.row_group(group)
    rows = max(1, _PIECE_BYTES * info.num_rows // max(1, info.total_byte_size))
    file = pq.ParquetFile(path, metadata=meta, buffer_size=1 << 20, pre_buffer=False)
    part = target.with_suffix(f".{os.getpid()}.part")
    try:
        with pa.OSFile(str(part), "wb") as sink, pa.ipc.new_file(sink, file.schema_arrow) as writer:
            for batch in file.iter_batches(rows, row_groups=[group], use_threads=False):
                writer.write_batch(batch)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turn pyarrow's errors into one that names the file."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise TaskError(f"{path}: cannot be read as Parquet ({reason}). Restore it or download it again.") from error
