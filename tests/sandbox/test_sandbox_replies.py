"""The host's checks of replies, against replies of every kind."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codev_env.sandbox import Limits
from codev_env.sandbox.host import replies
from codev_env.sandbox.wire import frames

LIMITS = Limits(output_chars=50, error_chars=50, images=2, image_pixels=100, files=2)
GAPS = [(64, 200), (400, 520)]
GOOD: dict[str, Any] = {
    "stop": "ok",
    "error": None,
    "stdout": "text",
    "repairs": ["indentation removed"],
    "images": [[64, 5, 4, "a.png"]],
    "files": [["a.png", 64, 5, 4, "RGB"], ["b.png", 400, 10, 10, "L"]],
    "data": [["notes.txt", "YQ=="]],
    "reads": ["c.png"],
    "cuts": [[9, 8, 1, 2, 9, 8]],
    "spent": False,
}


def test_an_honest_reply_passes() -> None:
    reply = replies.check(GOOD, LIMITS, GAPS)
    assert reply.images == (replies.Stored(64, 5, 4, "RGB", "a.png"),)
    assert [stored.bytes for stored in reply.files] == [80, 100]


@pytest.mark.parametrize(
    "change",
    [
        {"stop": "timeout"},
        {"stop": "fine"},
        {"stop": ["ok"]},
        {"stop": "error"},
        {"error": "but ok"},
        {"error": 3, "stop": "error"},
        {"error": "x" * 51, "stop": "error"},
        {"stdout": "x" * 51},
        {"stdout": None},
        {"repairs": "text"},
        {"repairs": ["x"] * 21},
        {"repairs": [3]},
        {"images": {}},
        {"images": [[64, 1, 1, ""]] * 3},
        {"images": [[64, 5, 4]]},
        {"images": [[63, 5, 4, ""]]},
        {"images": [[64.0, 5, 4, ""]]},
        {"images": [[True, 5, 4, ""]]},
        {"images": [[64, 0, 4, ""]]},
        {"images": [[64, -5, -4, ""]]},
        {"images": [[64, 11, 10, ""]]},
        {"images": [[64, 101, 1, ""]]},
        {"images": [[64, 5, 4, "x" * 101]]},
        {"images": [[10**30, 5, 4, ""]]},
        {"files": [["", 64, 5, 4, "RGB"]]},
        {"files": [["..", 64, 5, 4, "RGB"]]},
        {"files": [["a\\b.png", 64, 5, 4, "RGB"]]},
        {"files": [["a\n.png", 64, 5, 4, "RGB"]]},
        {"spent": None},
        {"data": [["..", "YQ=="]]},
        {"data": [["notes.txt", "Y"]]},
        {"data": [["notes.txt", "Y" * (4 << 20)]]},
        {"data": [["notes.txt"]]},
        {"data": None},
        {"reads": None},
        {"reads": ["a/b.png"]},
        {"reads": [3]},
        {"reads": [f"{number}.png" for number in range(13)]},
        {"cuts": None},
        {"cuts": [[9, 8, 1, 2, 9]]},
        {"cuts": [[9, 8, 1, 2, 10, 8]]},
        {"cuts": [[9, 8, 1, 2, 1, 8]]},
        {"cuts": [[9, 8, -1, 2, 9, 8]]},
        {"cuts": [[9, 8, 1.0, 2, 9, 8]]},
        {"cuts": [[1 << 21, 8, 1, 2, 9, 8]]},
        {"cuts": [[9, 8, 1, 2, 9, 8]] * 65},
        {"spent": 0},
        {"files": [["a.png", 64, 5, 4, "P"]]},
        {"files": [["a.png", 64, 5, 4, ["RGB"]]]},
        {"files": [["a.png", 64, 5, 4, "RGB"]] * 13},
        {"images": [[190, 5, 4, ""]]},
        {"images": [[300, 1, 1, ""]]},
        {"images": [[500, 5, 4, ""]]},
    ],
)
def test_a_lie_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(replies.BadReply):
        replies.check(GOOD | change, LIMITS, GAPS)


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=60)
    | st.sampled_from(["ok", "a.png", 64, 100]),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(sorted(GOOD)), ANYTHING))
def test_any_reply_is_refused_or_within_the_limits(change: dict[str, Any]) -> None:
    try:
        reply = replies.check(GOOD | change, LIMITS, GAPS)
    except replies.BadReply:
        return
    assert len(reply.stdout) <= LIMITS.output_chars
    reply.stdout.encode("utf-8")
    for stored in (*reply.images, *reply.files):
        assert any(start <= stored.offset and stored.offset + stored.bytes <= end for start, end in GAPS)
        assert 1 <= stored.width * stored.height <= LIMITS.image_pixels


@given(st.binary(max_size=200) | ANYTHING.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_message_or_an_error(body: bytes) -> None:
    try:
        assert isinstance(frames.decode(body), dict)
    except frames.FrameError:
        pass  # not a message


def test_deeply_nested_json_is_an_error() -> None:
    with pytest.raises(frames.FrameError):
        frames.decode(b"[" * 200_000)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", frames.FrameClosed),
        (b"\0\0", frames.FrameClosed),
        (struct.pack(">I", 100) + b"{}", frames.FrameClosed),
        (struct.pack(">I", 0xFFFFFFFF), frames.FrameError),
        (struct.pack(">I", 2) + b"[]", frames.FrameError),
        (struct.pack(">I", 2) + b"\xff\xfe", frames.FrameError),
    ],
)
def test_broken_messages(data: bytes, error: type[Exception]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(error):
            frames.receive(ours, deadline=time.monotonic() + 10)


def test_a_message_that_trickles_in_ends_at_the_deadline() -> None:
    ours, theirs = socket.socketpair()
    stop = threading.Event()

    def trickle() -> None:
        theirs.sendall(struct.pack(">I", 1000))
        while not stop.wait(0.02):
            theirs.sendall(b" ")

    thread = threading.Thread(target=trickle)
    with ours, theirs:
        thread.start()
        with pytest.raises(frames.FrameTimeout):
            frames.receive(ours, deadline=time.monotonic() + 0.2)
        stop.set()
        thread.join()
