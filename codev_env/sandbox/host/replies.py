"""Checks of what workers reply. Nothing in a reply is trusted before it has passed them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from codev_env.sandbox.wire.limits import (
    DATA_BYTES,
    FOLDERS,
    MOST_CUTS,
    MOST_REPAIRS,
    NAME_CHARS,
    REPAIR_CHARS,
    Limits,
    is_bare_name,
)
from codev_env.sandbox.wire.messages import FileEntry, ViewFiles
from codev_env.sandbox.wire.pixels import RAW, stored_bytes
from codev_env.types import Cut, Stop

_STOPS = frozenset(get_args(Stop)) - {"timeout"}


class BadReply(Exception):
    """A reply that no honest worker sends."""


@dataclass(frozen=True)
class Stored:
    """The place of an image in the arena."""

    offset: int
    width: int
    height: int
    mode: str
    name: str

    @property
    def bytes(self) -> int:
        """Bytes of its pixels."""
        return stored_bytes(self.mode, self.width, self.height)

    def entry(self) -> FileEntry:
        """The file as described to workers."""
        return {
            "where": "arena",
            "offset": self.offset,
            "width": self.width,
            "height": self.height,
            "mode": self.mode,
        }


@dataclass(frozen=True)
class CheckedReply:
    """A checked reply."""

    stop: Stop
    error: str | None
    stdout: str
    repairs: tuple[str, ...]
    images: tuple[Stored, ...]
    files: tuple[Stored, ...]
    data: tuple[tuple[str, str], ...]
    reads: tuple[str, ...]
    cuts: tuple[Cut, ...]
    spent: bool


def check(message: dict[str, Any], limits: Limits, gaps: Sequence[tuple[int, int]], given: int = 0) -> CheckedReply:
    """Check a reply to a run.

    Args:
        message: The message received.
        limits: The limits that the worker was given.
        gaps: The parts of the arena, as (start, end), that the worker may write to.
        given: How many input images there are; programs may save over each.

    Raises:
        BadReply: Something is missing, of another type, too long or outside the arena.
    """
    stop = message.get("stop")
    if not isinstance(stop, str) or stop not in _STOPS:
        raise BadReply("stop")
    error = message.get("error")
    if error is not None:
        error = _text(error, limits.error_chars, "error")
    if (error is None) != (stop == "ok"):
        raise BadReply("error without stop")
    spent = message.get("spent")
    if not isinstance(spent, bool):
        raise BadReply("spent")
    repairs = _list(message.get("repairs"), MOST_REPAIRS, "repairs")
    images = _list(message.get("images"), limits.images, "images")
    most = 2 * limits.files + given + 8
    files = _list(message.get("files"), most, "files")
    return CheckedReply(
        stop=stop,  # type: ignore[arg-type]
        error=error,
        stdout=_text(message.get("stdout"), limits.output_chars, "stdout"),
        repairs=tuple(_text(one, REPAIR_CHARS, "repair") for one in repairs),
        images=tuple(_image(one, limits, gaps) for one in images),
        files=tuple(_file(one, limits, gaps) for one in files),
        data=tuple(_data(one) for one in _list(message.get("data"), most, "data")),
        reads=tuple(_name(one, "reads") for one in _list(message.get("reads"), most, "reads")),
        cuts=tuple(_cut(one) for one in _list(message.get("cuts"), MOST_CUTS, "cuts")),
        spent=spent,
    )


def check_files(reply: CheckedReply, files: ViewFiles, limits: Limits) -> None:
    """Raise `BadReply` if files are read that no run saved, or more are saved than `Context.save` allows."""
    if len(set(reply.reads)) < len(reply.reads) or not set(reply.reads) <= set(saved(files)):
        raise BadReply("a file that no run saved")
    data = {**files["data"], **dict(reply.data)}
    names = files["saved"].keys() | {stored.name for stored in reply.files} | data.keys()
    if len(names - files["given"].keys() - {FOLDERS}) > limits.files:
        raise BadReply("more files than are allowed")
    if sum(len(text) * 3 // 4 - 2 for text in data.values()) > DATA_BYTES:
        raise BadReply("larger files than are allowed")


def saved(files: ViewFiles) -> tuple[str, ...]:
    """Names of the files that runs saved in a view."""
    return tuple(sorted(files["saved"].keys() | files["data"].keys()))


def _image(value: Any, limits: Limits, gaps: Sequence[tuple[int, int]]) -> Stored:
    offset, width, height, name = _fields(value, 4)
    stored = _stored(offset, width, height, "RGB", name, limits, gaps)
    if max(stored.width, stored.height) > limits.aspect * min(stored.width, stored.height):
        raise BadReply("aspect")
    return stored


def _file(value: Any, limits: Limits, gaps: Sequence[tuple[int, int]]) -> Stored:
    name, offset, width, height, mode = _fields(value, 5)
    return _stored(offset, width, height, mode, _name(name, "file"), limits, gaps)


def _data(value: Any) -> tuple[str, str]:
    name, contents = _fields(value, 2)
    text = _text(contents, -(-DATA_BYTES // 3) * 4, "data")
    try:
        base64.b64decode(text, validate=True)
    except ValueError as error:
        raise BadReply("data that is not base 64") from error
    return _name(name, "data"), text


def _cut(value: Any) -> Cut:
    width, height, left, top, right, bottom = (_int(one, 0, 1 << 20, "cut") for one in _fields(value, 6))
    if not (left < right <= width and top < bottom <= height):
        raise BadReply("cut")
    return (width, height), (left, top, right, bottom)


def _stored(
    offset: Any, width: Any, height: Any, mode: Any, name: Any, limits: Limits, gaps: Sequence[tuple[int, int]]
) -> Stored:
    if not isinstance(mode, str) or mode not in RAW:
        raise BadReply("mode")
    stored = Stored(
        offset=_int(offset, 0, gaps[-1][1], "offset"),
        width=_int(width, 1, limits.image_pixels, "width"),
        height=_int(height, 1, limits.image_pixels, "height"),
        mode=mode,
        name=_text(name, NAME_CHARS, "name"),
    )
    if stored.width * stored.height > limits.image_pixels:
        raise BadReply("pixels")
    if not any(start <= stored.offset and stored.offset + stored.bytes <= end for start, end in gaps):
        raise BadReply("place")
    return stored


def _fields(value: Any, count: int) -> list[Any]:
    if not isinstance(value, list) or len(value) != count:
        raise BadReply("fields")
    return value


def _list(value: Any, most: int, what: str) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise BadReply(what)
    return value


def _int(value: Any, low: int, high: int, what: str) -> int:
    if type(value) is not int or not low <= value <= high:
        raise BadReply(what)
    return value


def _name(value: Any, what: str) -> str:
    if not is_bare_name(value):
        raise BadReply(f"{what} without a bare name")
    return value


def _text(value: Any, most: int, what: str) -> str:
    if not isinstance(value, str) or len(value) > most:
        raise BadReply(what)
    # Lone surrogates are legal JSON and illegal UTF-8: writing such text to a file fails.
    return value.encode("utf-8", "replace").decode("utf-8")
