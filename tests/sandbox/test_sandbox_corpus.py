"""A corpus of programs as models write them and of attacks on sandboxes: each case ends as expected.

`corpus.json` holds programs with an expectation. `{canary}` stands for a folder with a secret, `BOMB` for a
decompression bomb, port 45454 for a listener of this test, and `probe` is run afterwards and must find nothing changed.
"""

from __future__ import annotations

import base64
import io
import json
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from photos import photo
from PIL import Image
from zygotes import own_zygotes

from codev_env.sandbox import Execution, Limits, Sandbox, Session
from codev_env.sandbox.host import process

CASES: dict[str, dict[str, Any]] = {
    case["name"]: case for case in json.loads(Path(__file__).with_name("corpus.json").read_text())
}
SECRET = "a-word-that-is-nowhere-else"
TOKEN = "a-token-of-the-trainer"
IMAGE = photo(800, 600)
CHECK = (
    "print(image.size, image.getpixel((5, 5)), np.array([1, 2]).sum(), len([]), Image.new('L', (2, 2)).rotate(9).size)"
)
CHECKED = f"(800, 600) {IMAGE.getpixel((5, 5))} 3 0 (2, 2)\n"
# Long programs are let through here: that they are too deep is to be noticed too.
ORDINARY = Limits(wall_s=20, code_chars=300_000)
BRIEF = Limits(wall_s=0.5, memory_mb=512, code_chars=300_000)

STOPS = {
    "blocked": {"refused", "error"},
    "killed": {"timeout", "memory"},
    "blocked_or_killed": {"refused", "error", "timeout", "memory"},
    "blocked_or_rejected": {"refused", "error", "result"},
    "rejected_result": {"result"},
    "contained": {"ok", "error", "output"},
    "deterministic_or_blocked": {"ok", "refused", "error"},
    "clear_AttributeError": {"error"},
    "ok": {"ok"},
}


def saved_under_its_bare_name(name: str, size: tuple[int, int]) -> Any:
    def check(execution: Execution, session: Session) -> None:
        assert execution.stop == "ok" and "saved as" in execution.repairs[0]
        assert session.run(f"print(Image.open('{name}').size)").stdout == f"{size}\n"

    return check


def kept_in_the_episode(execution: Execution, session: Session) -> None:
    """The canary's folder is as it was: the file is one of the episode."""
    assert execution.stop == "ok" and "saved as" in execution.repairs[0]


def nothing_is_shown(execution: Execution, session: Session) -> None:
    assert (execution.stop, execution.images, execution.stdout) == ("ok", (), "")


def a_run_changes_its_own_copy(execution: Execution, session: Session) -> None:
    assert execution.stop == "ok"
    assert session.run("show(image)").images[0].tobytes() == IMAGE.tobytes()


def an_item_is_no_attribute(execution: Execution, session: Session) -> None:
    assert (execution.stop, execution.stdout) == ("ok", "PWNED 1\n")  # the program's own dict, under a telling key


DELIBERATE = {
    "cv2_imwrite": saved_under_its_bare_name("out_cv2.png", (4, 4)),
    "image_save_path": saved_under_its_bare_name("out_save.png", (800, 600)),
    "np_save": kept_in_the_episode,
    "np_savetxt": kept_in_the_episode,
    "result_missing": nothing_is_shown,
    "result_none": nothing_is_shown,
    "poison_input_image": a_run_changes_its_own_copy,
    "facade_format_getitem": an_item_is_no_attribute,
}
"""Cases in which this sandbox does something else than expected, and what."""


@pytest.fixture(scope="module", autouse=True)
def token() -> Iterator[None]:
    """A secret in the trainer's environment, there before anything is started."""
    with own_zygotes() as patch:
        patch.setenv("SECRET_TOKEN", TOKEN)
        yield


@pytest.fixture(scope="module")
def bomb() -> str:
    buffer = io.BytesIO()
    Image.new("1", (60_000, 20_000)).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


@pytest.fixture(scope="module")
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


@pytest.fixture
def canary() -> Iterator[Path]:
    # Not pytest's own folder, which only its owner can enter: here a worker's user could read and write.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "secret.txt").write_text(SECRET)
        Image.new("RGB", (32, 32)).save(folder / "pic.png")
        folder.chmod(0o777)
        yield folder


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str, canary: Path, listener: socket.socket, bomb: str) -> None:
    case = CASES[name]
    if "cv2" in case["code"]:
        pytest.importorskip("cv2")
    code = case["code"].replace("{canary}", str(canary)).replace("BOMB", bomb)
    code = code.replace("45454", str(listener.getsockname()[1]))
    expectation, before = case["expectation"], content(canary)
    with Sandbox(BRIEF if "killed" in expectation else ORDINARY) as box:
        with box.session({"input.png": IMAGE}) as session:
            execution = session.run(code)
            if name in DELIBERATE:
                DELIBERATE[name](execution, session)
            else:
                as_expected(case, execution)
            same = [session.run(case.get("probe", "pass")), session.run(CHECK)]
        with box.session({"input.png": IMAGE}) as session:
            following = [session.run(case.get("probe", "pass")), session.run(CHECK)]
        if expectation == "deterministic_or_blocked":
            process.shut_down()
            with box.session({"input.png": IMAGE}) as session:
                again = session.run(code)
            assert (again.stop, again.stdout, again.error) == (execution.stop, execution.stdout, execution.error)
    for probe, check in (same, following):
        assert "PWNED" not in f"{probe.stdout}{probe.error}"
        assert check.stdout == CHECKED
    said = f"{execution.stdout}{execution.error}"
    assert SECRET not in said and TOKEN not in said
    assert content(canary) == before
    with pytest.raises(BlockingIOError):
        listener.accept()


def as_expected(case: dict[str, Any], execution: Execution) -> None:
    expectation = case["expectation"]
    assert execution.stop in STOPS[expectation]
    assert (execution.stop == "ok") == (execution.error is None)
    assert "PWNED" not in execution.stdout
    assert len(execution.stdout) <= ORDINARY.output_chars
    if expectation == "ok":
        assert len(execution.images) == 1
        assert case.get("stdout_contains", "") in execution.stdout
    elif expectation == "clear_AttributeError":
        assert execution.error is not None and "'Image' object has no attribute 'croop'" in execution.error
        assert "line 1" in execution.error
    elif expectation not in ("contained", "deterministic_or_blocked"):
        assert execution.error and not execution.images


def test_every_expectation_is_known() -> None:
    assert {case["expectation"] for case in CASES.values()} <= STOPS.keys()
    assert DELIBERATE.keys() <= CASES.keys()
