"""Rows of a data set on disk, read when they are asked for: lists, TSV and JSON lines."""

from __future__ import annotations

import json
import os
import sys
from abc import ABC, abstractmethod
from array import array
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from codev_env.errors import FormatError, TaskError
from codev_env.lazy import LazyProperty
from codev_env.tasks.readers.cells import nested_value
from codev_env.tasks.readers.fields import nearest, parse_json
from codev_env.tasks.readers.tab_separated import cells_of, leaves_open, next_record

_LONG = 4096  # longer texts, most of which are images, are not kept in memory
_BUFFER = 1 << 22  # bytes; lines with images are megabytes long
_LINK = 64  # characters up to which an image field of a TSV file is the index of the row that has the image


class RowTable(ABC):
    """Sized, indexable rows that are read when asked for; metadata can be read for all rows at once.

    Attributes:
        source: Name of the whole table in errors.
        columns: Names of the columns.
        problems: By row: why it cannot be read.
        signature: Changes when the files change.
    """

    source: str
    columns: tuple[str, ...]
    problems: Mapping[int, str] = {}
    signature: Hashable = ()

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def where(self, index: int) -> str:
        """Return file and row, for messages. Rows count from 0, lines from 1."""

    @abstractmethod
    def values(self, column: str) -> list[Any]:
        """Return a light column of all rows; `"a.b"` is field `b` of column `a`. `None` where a row has none."""

    @abstractmethod
    def row(self, index: int) -> dict[str, Any]:
        """Read one row, its image included."""

    @abstractmethod
    def folder(self, index: int) -> Path:
        """Return the folder that a row's relative image paths start from."""

    def has(self, column: str) -> bool:
        """Return whether there is a column, or a field of one."""
        return column in self.columns

    def peek(self, index: int, column: str) -> Any:
        """Return a field of one row if it is in memory, else `None`."""
        return None

    def require(self, *names: str) -> None:
        """Raise `FormatError` unless all columns are there; the message lists those that are and the nearest name."""
        for name in names:
            if not self.has(name):
                raise FormatError(
                    f"{self.source}: has no column {name!r}.{nearest(name, self.columns)} "
                    f"Its columns: {', '.join(self.columns) or 'none'}."
                )


class ListTable(RowTable):
    """Rows in memory, each with the place it comes from."""

    def __init__(self, source: str, rows: Sequence[Mapping[str, Any]], places: Sequence[str], folder: Path) -> None:
        """Take rows, and for each its place, for messages."""
        self.source = source
        self._rows, self._places, self._folder = rows, places, folder
        self.problems = {}
        self.columns = tuple(dict.fromkeys(key for row in rows for key in row))

    def __len__(self) -> int:
        return len(self._rows)

    def where(self, index: int) -> str:
        """Return file and row."""
        return self._places[index]

    def values(self, column: str) -> list[Any]:
        """Return a column of all rows."""
        return [nested_value(row, column) for row in self._rows]

    def row(self, index: int) -> dict[str, Any]:
        """Return one row."""
        return dict(self._rows[index])

    def folder(self, index: int) -> Path:
        """Return the folder of the file."""
        return self._folder

    def peek(self, index: int, column: str) -> Any:
        """Return a field of one row."""
        return nested_value(self._rows[index], column)

    def has(self, column: str) -> bool:
        """Return whether some row has it."""
        return any(nested_value(row, column) is not None for row in self._rows) or column in self.columns


class SelectedTable(RowTable):
    """Some rows of another table."""

    def __init__(self, table: RowTable, rows: Sequence[int]) -> None:
        """Take a table and the numbers of its rows."""
        self._table, self._numbers = table, rows
        self.source, self.columns = table.source, table.columns
        self.signature = (table.signature, tuple(rows))
        self.problems = {at: table.problems[row] for at, row in enumerate(rows) if row in table.problems}

    def __len__(self) -> int:
        return len(self._numbers)

    def where(self, index: int) -> str:
        """Return file and row."""
        return self._table.where(self._numbers[index])

    def folder(self, index: int) -> Path:
        """Return the folder of the row's file."""
        return self._table.folder(self._numbers[index])

    def has(self, column: str) -> bool:
        """Return whether there is a column, or a field of one."""
        return self._table.has(column)

    def values(self, column: str) -> list[Any]:
        """Return a column of the selected rows."""
        values = self._table.values(column)
        return [values[row] for row in self._numbers]

    def row(self, index: int) -> dict[str, Any]:
        """Return one row."""
        return self._table.row(self._numbers[index])

    def peek(self, index: int, column: str) -> Any:
        """Return a field of one row if it is in memory."""
        return self._table.peek(self._numbers[index], column)


class _LineTable(RowTable):
    """Rows that are records of one text file: offsets and short fields in memory, the rest on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source = str(path)
        self.signature = (str(path.resolve()), *file_state(path))
        self._starts, self._ends = array("Q"), array("Q")  # bytes
        self._lines = array("Q")
        self._light: list[dict[str, Any] | None] = []
        self._long: dict[str, set[int]] = {}  # rows by field
        self.problems = {}

    def __len__(self) -> int:
        return len(self._light)

    def where(self, index: int) -> str:
        """Return file and row."""
        return f"{self.path}, line {self._lines[index]}"

    def values(self, column: str) -> list[Any]:
        """Return a column of all rows; a long field is read from disk."""
        long = self._long.get(column.partition(".")[0], ())
        rows = (self._whole(at) if at in long else row for at, row in enumerate(self._light))
        return [nested_value(row or {}, column) for row in rows]

    def _keep(self, light: dict[str, Any], fields: Iterable[str]) -> None:
        """Keep the short fields of the next row, and which of its fields are long."""
        for name in set(fields) - light.keys():
            self._long.setdefault(name, set()).add(len(self._light))
        self._light.append(light)

    @abstractmethod
    def _whole(self, index: int) -> dict[str, Any]:
        """Return all fields of a row, as the file has them."""

    def has(self, column: str) -> bool:
        """Return whether some row has it."""
        return column in self.columns or any(nested_value(light or {}, column) is not None for light in self._light)

    def folder(self, index: int) -> Path:
        """Return the folder of the file."""
        return self.path.parent

    def peek(self, index: int, column: str) -> Any:
        """Return a field of one row unless it is long."""
        return nested_value(self._light[index] or {}, column)

    def _record(self, index: int) -> bytes:
        try:
            with self.path.open("rb") as file:
                file.seek(self._starts[index])
                return file.read(self._ends[index] - self._starts[index])
        except OSError as error:
            raise TaskError(f"{self.path}: can no longer be read ({error.strerror}).") from error


class JsonlTable(_LineTable):
    """One JSON object per line; fields longer than a few thousand characters stay on disk."""

    def __init__(self, path: Path) -> None:
        """Read the file once, line by line."""
        super().__init__(path)
        names: dict[str, None] = {}
        problems: dict[int, str] = {}
        with open_file(path) as file:
            start, number = 0, 0
            for line in file:
                number += 1
                end = start + len(line)
                if line.strip():
                    self._starts.append(start)
                    self._ends.append(end)
                    self._lines.append(number)
                    try:
                        row = _json_row(f"{path}, line {number}", line)
                        names.update(dict.fromkeys(row))
                        self._keep({key: value for key, value in row.items() if not _is_long(value)}, row)
                    except TaskError as error:
                        problems[len(self._light)] = str(error)
                        self._light.append(None)
                start = end
        self.columns, self.problems = tuple(names), problems
        if 0 in problems:
            self._refuse_one_document()

    def _refuse_one_document(self) -> None:
        """Raise `TaskError` if the lines together are one JSON document."""
        first, last = self._record(0).strip()[:1], self._record(len(self) - 1).strip()[-1:]
        if first + last not in (b"[]", b"{}"):
            return
        try:
            json.loads(self.path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return
        raise TaskError(f"{self.path}: this is JSON, not one object per line; name it .json.")

    def row(self, index: int) -> dict[str, Any]:
        """Return one row."""
        light = self._light[index]
        if light is not None and light.keys() >= set(self.columns):
            return dict(light)
        return self._whole(index)

    def _whole(self, index: int) -> dict[str, Any]:
        """Return a row as the file has it."""
        return _json_row(self.where(index), self._record(index))


class TsvTable(_LineTable):
    """Tab-separated values with a header, quoted as `csv` and pandas do; images are base64 text and stay on disk."""

    def __init__(self, path: Path) -> None:
        """Read the file once, record by record."""
        super().__init__(path)
        problems: dict[int, str] = {}
        with open_file(path) as file:
            start, number = 0, 1
            header, lines = next_record(file)
            self.columns = tuple(_text(name, f"{path}, line 1") for name in cells_of(header))
            if twice := next((name for name in self.columns if name and self.columns.count(name) > 1), ""):
                raise FormatError(f"{path}, line 1: the column {twice!r} occurs twice. Rename one of them.")
            start, number = start + len(header), number + lines
            while True:
                record, lines = next_record(file)
                if not record:
                    break
                if record.strip():
                    self._starts.append(start)
                    self._ends.append(start + len(record))
                    self._lines.append(number)
                    try:
                        self._keep(self._parse(record, number, longest=_LONG), self.columns)
                    except TaskError as error:
                        problems[len(self._light)] = str(error)
                        self._light.append(None)
                start, number = start + len(record), number + lines
        self.problems = problems

    def _parse(self, record: bytes, number: int, longest: int = sys.maxsize) -> dict[str, Any]:
        """Return a record's fields, without those that are too long."""
        where = f"{self.path}, line {number}"
        cells = cells_of(record)
        if len(cells) != len(self.columns):
            raise TaskError(
                f"{where}: has {len(cells)} fields, but the header has {len(self.columns)}"
                f"{', because a quote is never closed' if leaves_open(record, False) else ''}. "
                "Restore it or download it again."
            )
        named = zip(self.columns, cells, strict=True)
        return {name: _text(cell, where) for name, cell in named if len(cell) <= longest}

    def row(self, index: int) -> dict[str, Any]:
        """Return one row."""
        row = self._whole(index)
        link = row.get("image")
        if link is not None and len(link) <= _LINK and "index" in self.columns:
            row["image"] = self._linked(index, link)
        return row

    def _whole(self, index: int) -> dict[str, Any]:
        """Return a row as the file has it."""
        return self._parse(self._record(index), self._lines[index])

    def _linked(self, index: int, link: str) -> str:
        """Return the image of another row: VLMEvalKit writes a repeated image as the index of its first row.

        A text that is no index is returned as it is: a path.
        """
        other = self._indexes.get(link)
        if other is None and not link.isdecimal():
            return link
        if other is None:
            raise TaskError(
                f"{self.where(index)}: 'image' is {link!r}, which is neither base64 nor another row's index."
            )
        image = str(self._whole(other).get("image", ""))
        if not image or image in self._indexes:
            raise TaskError(f"{self.where(index)}: 'image' is {link!r}, but that row has no image either.")
        return image

    @LazyProperty
    def _indexes(self) -> dict[str, int]:
        """The first row of each index."""
        values = self.values("index")
        return {values[row]: row for row in reversed(range(len(values)))}


def _text(cell: bytes, where: str) -> str:
    try:
        return cell.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TaskError(f"{where}: is not UTF-8 text ({error.reason}). Restore it or download it again.") from error


def _json_row(where: str, line: bytes) -> dict[str, Any]:
    return parse_json(where, _text(line.removeprefix(b"\xef\xbb\xbf"), where))


def _is_long(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) > _LONG
    if isinstance(value, list):
        return any(_is_long(v) for v in value)
    return isinstance(value, dict) and any(_is_long(v) for v in value.values())


def open_file(path: Path) -> BinaryIO:
    """Open a file for reading bytes; raises `TaskError` with its name."""
    try:
        return path.open("rb", buffering=_BUFFER)
    except OSError as error:
        raise TaskError(f"{path}: cannot be opened ({error.strerror}). Check the path.") from error


def file_state(path: Path) -> tuple[int, int]:
    """Return when a file was changed and its size; raises `TaskError` where there is none."""
    try:
        stat = os.stat(path)
    except OSError as error:
        raise TaskError(f"{path}: cannot be read ({error.strerror}). Check the path.") from error
    return stat.st_mtime_ns, stat.st_size
