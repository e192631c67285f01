"""Random programs: harmless ones behave as in plain Python, and none does any harm."""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grammar import harmless
from grammar_hostile import FORBIDDEN_KINDS, FOUND, anything, hostile
from hypothesis import HealthCheck, assume, event, given, settings
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageFont, ImageOps

from codev_env.sandbox import Limits, Sandbox, Session
from codev_env.types import Execution

LIMITS = Limits(
    wall_s=1.0, memory_mb=256, output_chars=4000, error_chars=500, images=3, image_pixels=250_000, files=6, files_mb=8
)
SECRET = "a-word-that-is-nowhere-else"
CHECK = "r = image.rotate(90, expand=True)\nprint(r.size, np.array([1, 2]).sum(), [v for v in (len('ab'), str(3))])"
CHECKED = "(120, 160) 3 [2, '3']\n"
HANGS_S = 120.0
_ADDRESS = re.compile(" at 0x[0-9A-Fa-f]+")  # the sandbox leaves addresses of objects out

_QUICK = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
_NEW = settings(_QUICK, derandomize=False, print_blob=True)

Check = Callable[[str], None]


def profiles(quick: int, long: int) -> Any:
    """Run a test with a few programs, always the same; as an integration test with new ones; in a soak with many."""
    cases = [
        pytest.param(settings(_QUICK, max_examples=quick // 2), id="quick"),
        pytest.param(settings(_NEW, max_examples=long // 10), marks=pytest.mark.integration, id="new"),
        pytest.param(settings(_NEW, max_examples=long), marks=pytest.mark.soak, id="long"),
    ]
    return pytest.mark.parametrize("profile", cases)


@contextlib.contextmanager
def ordinary_recursion() -> Iterator[None]:
    """Without the room that Hypothesis gives to recursion, in which a program could overflow the stack."""
    roomy = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    try:
        yield
    finally:
        sys.setrecursionlimit(roomy)


def run_plainly(code: str, image: Image.Image) -> tuple[str, Exception | None, Any]:
    """What plain Python prints, raises and leaves in `result`; `input.png` is in the current folder."""
    names: dict[str, Any] = {
        "__name__": "__main__", "image": image.copy(), "np": np, "math": math, "Image": Image, "ImageDraw": ImageDraw,
        "ImageEnhance": ImageEnhance, "ImageFilter": ImageFilter, "ImageFont": ImageFont, "ImageOps": ImageOps,
    }  # fmt: skip
    text = io.StringIO()
    with contextlib.redirect_stdout(text), warnings.catch_warnings(), ordinary_recursion():
        warnings.simplefilter("ignore")
        try:
            exec(compile(code, "<plain>", "exec"), names)
        except Exception as error:
            return _ADDRESS.sub("", text.getvalue()), error, None
    return _ADDRESS.sub("", text.getvalue()), None, names.get("result")


def line_of(error: Exception) -> int | None:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "<plain>"]
    return lines[-1] if lines else None


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@profiles(quick=150, long=4000)
def test_harmless_programs_equal_plain_python(
    profile: settings, box: Sandbox, image: Image.Image, folder: Path
) -> None:
    image.save(folder / "input.png")

    @profile
    @given(harmless())
    def check(code: str) -> None:
        execution = session.run(code)
        event(execution.stop)
        # What takes too long here is not tried outside.
        assume(execution.stop not in ("timeout", "memory", "output"))
        text, error, result = run_plainly(code, image)
        assert execution.stdout == text
        if error is None and 0 in result.size:
            assert execution.stop == "result"  # plain Python cannot hand over images
        elif error is None:
            assert (execution.error, execution.stop, execution.repairs) == (None, "ok", ())
            assert [(one.size, one.tobytes()) for one in execution.images] == [(result.size, result.tobytes())]
        else:
            assert execution.stop == "error" and execution.error is not None
            assert execution.error.startswith(f"{type(error).__name__}: ")
            if not isinstance(error, (SyntaxError, RecursionError)):  # how deep is too deep differs
                assert f"(line {line_of(error)}: " in execution.error

    with box.session({"input.png": image}) as session:
        check()


class Answers:
    """Runs programs so that one which never comes back fails a test instead of stopping it."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)

    def __call__(self, session: Session, code: str) -> Execution:
        return self._pool.submit(session.run, code).result(timeout=HANGS_S)


@pytest.fixture(scope="module")
def small_box() -> Iterator[Sandbox]:
    with Sandbox(LIMITS) as sandbox:
        yield sandbox


def assert_within_limits(execution: Execution) -> None:
    assert len(execution.stdout) <= LIMITS.output_chars
    assert (execution.error is None) == (execution.stop == "ok")
    assert execution.error is None or 0 < len(execution.error) <= LIMITS.error_chars
    f"{execution.stdout}{execution.error}{execution.repairs}{execution.names}".encode()
    assert len(execution.images) == len(execution.names) <= LIMITS.images
    for one in execution.images:
        assert one.mode == "RGB" and 1 <= one.width * one.height <= LIMITS.image_pixels
        assert max(one.size) <= LIMITS.aspect * min(one.size)


def content(execution: Execution) -> tuple[Any, ...]:
    pixels = [(one.size, one.tobytes()) for one in execution.images]
    return execution.stop, execution.error, execution.stdout, execution.names, execution.repairs, pixels


@profiles(quick=90, long=1000)
def test_any_text_gives_an_execution(profile: settings, small_box: Sandbox, image: Image.Image) -> None:
    answer = Answers()

    @profile
    @given(anything())
    def check(code: str) -> None:
        seen = []
        for _ in range(2):
            with small_box.session({"input.png": image}, seed=3) as session:
                seen.append(answer(session, code))
                assert_within_limits(seen[-1])
                after = answer(session, CHECK)
                assert (after.stop, after.stdout) == ("ok", CHECKED)
            with small_box.session({"input.png": image}) as fresh:
                assert answer(fresh, "show('input.png')\n" + CHECK).images[0].tobytes() == image.tobytes()
        event(seen[0].stop)
        # A busy machine may end one of two equal programs.
        assume(not {"timeout", "memory"} & {one.stop for one in seen})
        assert content(seen[0]) == content(seen[1])

    check()


@profiles(quick=250, long=10_000)
def test_no_program_finds_what_is_hidden(
    profile: settings, box: Sandbox, image: Image.Image, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "secret.txt").write_text(SECRET)
    Image.frombytes("L", (len(SECRET), 1), SECRET.encode()).save(folder / "secret.png")
    monkeypatch.setenv("SECRET", SECRET)
    memory = [SECRET * 3, np.frombuffer(SECRET.encode() * 99, np.uint8).copy()]  # in the trainer, as answers are
    word = re.compile(SECRET.encode())

    @profile
    @given(hostile())
    def check(code: str) -> None:
        execution = session.run(code.replace("{folder}", str(folder)))
        event(execution.stop)
        text = f"{execution.stdout}{execution.error}{execution.names}{execution.repairs}"
        assert SECRET not in text
        assert not any(word.search(one.tobytes()) for one in execution.images)
        kinds = {line.removeprefix(FOUND).split(" ")[0] for line in text.splitlines() if line.startswith(FOUND)}
        assert not kinds & FORBIDDEN_KINDS
        assert sorted(os.listdir(folder)) == ["secret.png", "secret.txt"]
        # One worker runs them all, so the next program would show any damage.
        assert session.run(CHECK).stdout == CHECKED

    with Sandbox(LIMITS) as own, own.session({"input.png": image}) as session:
        check()
    assert len(memory) == 2
