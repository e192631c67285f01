"""Messages between the processes of the sandbox: a length, then JSON, with file descriptors where needed.

Pickle and pixels never pass through here. Both ends check the length before they read the rest.
"""

from __future__ import annotations

import array
import json
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any

MAX_FRAME = 4 << 20
"""Bytes of the longest message that either end accepts."""

_LENGTH = struct.Struct(">I")


class FrameError(Exception):
    """The other end sent something that is not a message."""


class FrameTimeout(Exception):
    """No complete message arrived in time."""


class FrameClosed(Exception):
    """The other end is gone."""


def encode(message: Mapping[str, Any]) -> bytes:
    """Make the bytes of a message; raises `FrameError` where it is too long."""
    body = json.dumps(message, separators=(",", ":")).encode("ascii")
    if len(body) > MAX_FRAME:
        raise FrameError(f"a message of {len(body)} bytes is longer than {MAX_FRAME}")
    return _LENGTH.pack(len(body)) + body


def send(sock: socket.socket, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
    """Send one message, with file descriptors attached; raises `FrameClosed`."""
    data = encode(message)
    try:
        if fds:
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
            sent = sock.sendmsg([data], ancillary)
            data = data[sent:]
        sock.sendall(data)
    except TimeoutError as error:
        raise FrameTimeout from error
    except OSError as error:
        raise FrameClosed(str(error)) from error


def receive(sock: socket.socket, *, deadline: float | None = None, cap: int = MAX_FRAME) -> dict[str, Any]:
    """Receive one message without descriptors.

    Args:
        sock: A stream socket.
        deadline: A value of `time.monotonic()`; `None` waits indefinitely.
        cap: Bytes of the longest message accepted.

    Returns:
        The message.

    Raises:
        FrameTimeout: The deadline passed first.
        FrameClosed: The other end is gone.
        FrameError: The bytes received are not a message.
    """
    (length,) = _LENGTH.unpack(_read(sock, _LENGTH.size, deadline))
    if length > cap:
        raise FrameError(f"a message of {length} bytes is longer than {cap}")
    return decode(_read(sock, length, deadline))


def receive_with_fds(sock: socket.socket, most: int) -> tuple[dict[str, Any], list[int]]:
    """Receive one message from a trusted sender, with up to `most` descriptors; raises as `receive` does."""
    size = array.array("i").itemsize
    head, ancillary, _flags, _address = sock.recvmsg(_LENGTH.size, socket.CMSG_SPACE(most * size))
    fds: list[int] = []
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers = array.array("i")
            numbers.frombytes(data[: len(data) - len(data) % size])
            fds.extend(numbers)
    if not head:
        raise FrameClosed("closed")
    head += _read(sock, _LENGTH.size - len(head), None)
    (length,) = _LENGTH.unpack(head)
    if length > MAX_FRAME:
        raise FrameError(f"a message of {length} bytes is longer than {MAX_FRAME}")
    return decode(_read(sock, length, None)), fds


def decode(body: bytes) -> dict[str, Any]:
    """Parse the JSON of a message; raises `FrameError` for anything but an object."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise FrameError("a message that is not JSON") from error
    if not isinstance(message, dict):
        raise FrameError("a message that is not an object")
    return message


def _read(sock: socket.socket, count: int, deadline: float | None) -> bytes:
    chunks = []
    while count > 0:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise FrameTimeout
            sock.settimeout(left)
        try:
            chunk = sock.recv(min(count, 1 << 16))
        except TimeoutError as error:
            raise FrameTimeout from error
        except OSError as error:
            raise FrameClosed(str(error)) from error
        if not chunk:
            raise FrameClosed("closed")
        chunks.append(chunk)
        count -= len(chunk)
    return b"".join(chunks)
