"""Streams of a program: its printed text, and the text and bytes it keeps in the episode's files."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import Any


class Output:
    """`sys.stdout` or `sys.stderr`: passes text on, and cannot be closed."""

    __module__ = "_io"

    encoding = "utf-8"
    errors = "strict"
    closed = False

    def __init__(self, name: str, write: Callable[[str], None]) -> None:
        self.name = name
        self._write = write

    def write(self, text: str) -> int:
        """Write text; raises `TypeError` for anything else."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        text = str.__str__(text)
        self._write(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Nothing waits."""

    def isatty(self) -> bool:
        """Return whether this is a terminal: never."""
        return False

    def writable(self) -> bool:
        """Return whether text can be written: always."""
        return True

    def reconfigure(self, **_settings: Any) -> None:
        """Change nothing."""


Keep = Callable[[bytes], None]
"""Called with the contents of a file that a program wrote."""
Lose = Callable[[OSError], None]
"""Called with the reason why the contents of a file that nobody holds any more could not be kept."""


class TextFile(io.StringIO):
    """An open text file of the episode; its text is kept when it is flushed or closed, and at the end of the run.

    One that nobody holds any more is closed at once, as in CPython.
    """

    __module__ = "_io"

    def __init__(self, name: str, mode: str, data: bytes, keep: Keep | None, lose: Lose) -> None:
        self.name, self._keep, self._lose, self._dirty = name, keep, lose, False
        super().__init__(data.decode("utf-8"), newline="\n")
        self.mode = mode  # type: ignore[misc]
        if "a" in mode:
            self.seek(0, io.SEEK_END)

    def flush(self) -> None:
        """Keep what has been written."""
        if self._keep is not None and self._dirty and not self.closed:
            self._dirty = False
            self._keep(self.getvalue().encode("utf-8", "surrogatepass"))

    def close(self) -> None:
        """Keep what has been written, and end."""
        self.flush()
        super().close()

    def __del__(self) -> None:
        """Close the file."""
        try:
            self.close()
        except OSError as problem:
            self._lose(problem)

    def writable(self) -> bool:
        """Return whether the mode allows writing."""
        return self._keep is not None

    def write(self, text: str) -> int:
        """Write text; raises `io.UnsupportedOperation` for a file that is open for reading."""
        if self._keep is None:
            raise io.UnsupportedOperation("not writable")
        self._dirty = True
        return super().write(text)

    def read(self, size: int | None = -1, /) -> str:
        """Read text; raises `io.UnsupportedOperation` for a file that is open for writing."""
        if self.mode[0] != "r" and "+" not in self.mode:
            raise io.UnsupportedOperation("not readable")
        return super().read(size)


class BytesFile(io.BytesIO):
    """An open binary file of the episode; see `TextFile`."""

    __module__ = "_io"

    def __init__(self, name: str, mode: str, data: bytes, keep: Keep | None, lose: Lose) -> None:
        self.name, self._keep, self._lose, self._dirty = name, keep, lose, False
        super().__init__(data)
        self.mode = mode  # type: ignore[misc]
        if "a" in mode:
            self.seek(0, io.SEEK_END)

    def flush(self) -> None:
        """Keep what has been written."""
        if self._keep is not None and self._dirty and not self.closed:
            self._dirty = False
            self._keep(self.getvalue())

    def close(self) -> None:
        """Keep what has been written, and end."""
        self.flush()
        super().close()

    def __del__(self) -> None:
        """Close the file."""
        try:
            self.close()
        except OSError as problem:
            self._lose(problem)

    def writable(self) -> bool:
        """Return whether the mode allows writing."""
        return self._keep is not None

    def write(self, data: Any) -> int:
        """Write bytes; raises `io.UnsupportedOperation` for a file that is open for reading."""
        if self._keep is None:
            raise io.UnsupportedOperation("not writable")
        self._dirty = True
        return super().write(data)
