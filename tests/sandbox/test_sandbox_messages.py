"""A session whose worker was taken over: for any message, the trainer gets a result in time and keeps its images."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from PIL import Image
from test_sandbox_fuzz import HANGS_S, profiles

from codev_env.errors import SandboxError
from codev_env.sandbox import Limits, Sandbox, Session
from codev_env.sandbox.wire import frames
from codev_env.types import Execution

LIMITS = Limits(wall_s=0.15, files_mb=1, output_chars=200, error_chars=200, images=2, files=4, image_pixels=20_000)
KEPT = 77
"""The value of every byte of the file that the session holds; free parts of the arena have none such."""

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.sampled_from(["ok", "b.png"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_NUMBER = st.sampled_from(
    [0, 1, 5, 40, 100, 101, 300, 4095, 4096, 8192, 1 << 20, 1 << 31, 1 << 64, -1, 2.0, True, None]
)
_NAME = st.sampled_from(["", "b.png", "c.png", "input.png", "../d.png", "\ud800", "x" * 101])
_IMAGE = st.tuples(_NUMBER, _NUMBER, _NUMBER, _NAME).map(list) | _JSON
_FILE = st.tuples(_NAME, _NUMBER, _NUMBER, _NUMBER, st.sampled_from(["RGB", "L", "RGBA", "P"])).map(list) | _JSON
_GOOD: dict[str, Any] = {
    "stop": "ok", "error": None, "stdout": "text", "repairs": [], "images": [], "files": [], "data": [],
    "reads": [], "cuts": [], "spent": False,
}  # fmt: skip
_LIE = st.fixed_dictionaries(
    {},
    optional={
        "images": st.lists(_IMAGE, max_size=4) | _JSON,
        "files": st.lists(_FILE, max_size=4) | _JSON,
        "stop": st.sampled_from(["ok", "error", "timeout", "memory"]) | _JSON,
        "error": st.text(max_size=300) | _JSON,
        "stdout": st.text(st.characters(), max_size=300) | _JSON,
        "repairs": _JSON,
        "number": _JSON,
        "spent": st.booleans() | _JSON,
        "cuts": st.lists(st.lists(_NUMBER, min_size=6, max_size=6) | _JSON, max_size=70) | _JSON,
        "reads": st.lists(_NAME | st.just("kept.png"), max_size=4) | _JSON,
        "data": st.lists(st.tuples(_NAME, st.sampled_from(["", "YQ==", "a", "é"])).map(list) | _JSON) | _JSON,
        "more": _JSON,
    },
)


def _frame(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


def _frames(number: int, lies: list[dict[str, Any]]) -> bytes:
    """Replies to request `number`; further ones are for later requests."""
    return b"".join(_frame(json.dumps(_GOOD | {"number": number + n} | lie).encode()) for n, lie in enumerate(lies))


# The bytes sent after a request, as a function of its number, and whether the sender then closes the socket.
_BYTES = st.one_of(
    st.binary(max_size=60).map(lambda data: lambda _number: data),
    _JSON.map(lambda value: lambda _number: _frame(json.dumps(value).encode())),
    st.lists(_LIE, min_size=1, max_size=3).map(lambda lies: lambda number: _frames(number, lies)),
    st.tuples(_LIE, st.integers(1, 60)).map(lambda lie: lambda number: _frames(number, [lie[0]])[: -lie[1]]),
    st.tuples(st.integers(0, 2**32 - 1), st.binary(max_size=9)).map(
        lambda head: lambda _number: struct.pack(">I", head[0]) + head[1]
    ),
    st.sampled_from(
        [b"[" * 100_000, b'{"a":' * 20_000, b"9" * 5000, b'{"number":NaN}', b"{} {}", b"\xef\xbb\xbf{}"]
    ).map(lambda body: lambda _number: _frame(body)),
)
_SCRIPT = st.tuples(_BYTES, st.sampled_from(["stay", "stay", "close", "trickle"]))


class Impostor:
    """The other end of a session's socket in place of its worker, which is left waiting."""

    def __init__(self, session: Session) -> None:
        assert session.run("pass").stop == "ok"
        assert session._worker is not None
        self.worker = session._worker
        self._true = self.worker._sock
        self.worker._sock, self._ours = socket.socketpair()
        self._over = threading.Event()

    def answer(self, scripts: list[Any]) -> None:
        """Answer one request after the other."""
        with contextlib.suppress(OSError, frames.FrameClosed):
            for make, then in scripts:
                data = make(frames.receive(self._ours)["number"])
                if then == "trickle":
                    for at in range(len(data)):
                        self._ours.sendall(data[at : at + 1])
                        if self._over.wait(0.01):
                            return
                self._ours.sendall(data)
                if then == "close":
                    break
            else:
                self._over.wait(HANGS_S)
        self._ours.close()

    @contextlib.contextmanager
    def playing(self, scripts: list[Any]) -> Iterator[None]:
        thread = threading.Thread(target=self.answer, args=(scripts,))
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            with contextlib.suppress(OSError):
                self._ours.shutdown(socket.SHUT_RDWR)
            thread.join()
            self._ours.close()
            self._true.close()


@pytest.fixture(scope="module")
def hasty_box() -> Iterator[Sandbox]:
    with Sandbox(LIMITS) as sandbox:
        yield sandbox


def ask(pool: ThreadPoolExecutor, session: Session, code: str) -> Execution | None:
    """An execution, or `None` for a `SandboxError`; fails for any other outcome."""
    try:
        return pool.submit(session.run, code).result(timeout=HANGS_S)
    except SandboxError:
        return None


@profiles(quick=40, long=500)
def test_no_message_does_harm(profile: Any, hasty_box: Sandbox, box: Sandbox, image: Image.Image) -> None:
    @profile
    @given(st.lists(_SCRIPT, min_size=1, max_size=3))
    def check(scripts: list[Any]) -> None:
        with hasty_box.session({"input.png": image}) as session, ThreadPoolExecutor(1) as pool:
            saved = f"Image.new('RGB', (30, 20), ({KEPT}, {KEPT}, {KEPT})).save('kept.png')"
            while session.run(saved).stop == "timeout":
                pass  # a busy machine
            impostor = Impostor(session)
            with impostor.playing(scripts):
                for _ in scripts:
                    execution = ask(pool, session, "pass")
                    if session._worker is not impostor.worker:
                        break
                    assert execution is not None
                    for one in execution.images:
                        assert one.width * one.height <= LIMITS.image_pixels
                        assert KEPT not in one.tobytes()
                    assert len(execution.stdout) <= LIMITS.output_chars
                    execution.stdout.encode()
                    assert execution.reads in ((), ("kept.png",))
            event("refused" if session._worker is not impostor.worker else "accepted")
            if session._worker is impostor.worker:
                session._drop("main")
            session._limits = box.limits  # the rest must not depend on time
            execution = session.run("print(set(Image.open('kept.png').tobytes()), image.size)")
            assert execution.stdout == f"{{{KEPT}}} {image.size}\n"

    check()


def answers(*replies: dict[str, Any]) -> tuple[Callable[[int], bytes], str]:
    """What an impostor does with one request."""
    return lambda number: _frames(number, list(replies)), "stay"


@pytest.mark.parametrize("number", [0, 1, 2, 4, 10**6, None, "3"])
def test_an_answer_to_another_request_is_none(number: Any, box: Sandbox, image: Image.Image) -> None:
    # Requests 2 and 3 go to the impostor, which sends two answers to the first of them.
    stale = _GOOD | {"stdout": "stale", "number": number}
    with box.session({"input.png": image}) as session:
        with Impostor(session).playing([answers({"stdout": "first"}, stale)]):
            assert session.run("print(1)").stdout == "first"
            execution = session.run("print(2)")
            assert execution.stop == "error" and execution.stdout == ""
        assert session.run("print(3)").stdout == "3\n"


def test_files_without_end_are_refused(image: Image.Image) -> None:
    with Sandbox(Limits(wall_s=20, files=4)) as box, box.session({"input.png": image}) as session:
        impostor = Impostor(session)
        # Each reply saves as many new files as one may, with names as long as they may be.
        lies = []
        for step in range(20):
            numbers = range(10 * step, 10 * step + 10)
            lies.append({"files": [[f"{number:06}".ljust(100, "é"), 4096 * number, 1, 1, "L"] for number in numbers]})
        with impostor.playing([answers(lie) for lie in lies]):
            for _ in lies:
                session.run("pass")
                if session._worker is not impostor.worker:
                    break
        if session._worker is impostor.worker:
            session._drop("main")
        assert len(session._files["main"]) <= 5
        assert session.run("print(1)").stdout == "1\n"
