"""Sessions whose variables stay, and that need a worker with more libraries than the one that has them."""

from __future__ import annotations

import pytest
from photos import photo
from PIL import Image

from codev_env.errors import SandboxError
from codev_env.sandbox import Limits, Sandbox
from codev_env.sandbox.host import process
from codev_env.sandbox.host.session import Session

BEGIN = """
import random
draws = [random.random()]
class Look:
    at = (1, 2, 30, 40)
def grow(box, seen=[]):
    seen.append(box)
    return len(seen)
image = image.crop((0, 0, 50, 40))
image.save('a.png')
image.rotate(90, expand=True).save('b.png')
print(grow(Look.at))
"""
AGAIN = """
draws.append(np.random.rand())
Image.open('a.png').resize((25, 20)).save('a.png')
open('notes.txt', 'a').write('x' * grow(None))
raise ValueError('after all of that')
"""
END = """
print(grow(0), Look.at, draws, image.size, Image.open('a.png').size, Image.open('b.png').size)
print(open('notes.txt').read())
show('a.png', 'b.png')
"""


def kind(session: Session) -> str:
    """The kind of worker that a session has."""
    return session._kind


@pytest.mark.parametrize("library", ["cv2", "matplotlib.pyplot", pytest.param("pandas", marks=pytest.mark.integration)])
def test_variables_and_files_move_to_a_worker_with_more_libraries(
    library: str, box: Sandbox, image: Image.Image
) -> None:
    pytest.importorskip(library)
    seen = []
    for load in ("pass", f"import {library}"):
        with box.session({"input.png": image}, seed=4, persist="variables") as session:
            said = [session.run(code) for code in (BEGIN, AGAIN)]
            assert [execution.stop for execution in said] == ["ok", "error"]
            assert kind(session) == "plain"
            assert session.run(load).stop == "ok"
            assert (kind(session) == "plain") == (load == "pass")
            end = session.run(END)
            seen.append((end.stdout, end.reads, [shown.tobytes() for shown in end.images]))
    assert seen[0] == seen[1]
    assert seen[0][0].startswith("3 (1, 2, 30, 40) [0.")
    assert seen[0][0].endswith("(50, 40) (25, 20) (40, 50)\nxx\n")
    assert len(seen[0][2]) == 2


def test_each_view_moves_with_its_own(box: Sandbox, image: Image.Image) -> None:
    pytest.importorskip("cv2")
    with box.session({"input.png": image}, persist="variables") as session:
        session.add_view("probe", {"input.png": photo(seed=9)})
        for view, value in (("main", 1), ("probe", 2)):
            session.run(f"x = {value}\nimage.resize(({value}, 9)).save('a.png')", view=view)
        assert session.run("import cv2\nprint(cv2.imread('a.png').shape, x)", view="probe").stdout == "(9, 2, 3) 2\n"
        assert session.run("print(Image.open('a.png').size, x)").stdout == "(1, 9) 1\n"
        session.add_view("probe", {"input.png": photo(seed=9)}, replace=True)
        assert session.run("print(x)", view="probe").stop == "error"


def test_what_was_lost_before_a_move_stays_lost(quick_box: Sandbox, image: Image.Image) -> None:
    pytest.importorskip("cv2")
    with quick_box.session({"input.png": image}, persist="variables") as session:
        session.run("x = 1\nimage.resize((7, 9)).save('a.png')")
        assert session.run("while True: pass").stop == "timeout"
        assert session.run("y = 2").stop == "ok"
        assert session.run("import cv2\nprint(y, cv2.imread('a.png').shape)").stdout == "2 (9, 7, 3)\n"
        assert session.run("print(x)").stop == "error"


def test_a_move_needs_no_room_for_files_twice(image: Image.Image) -> None:
    pytest.importorskip("cv2")
    with Sandbox(Limits(files_mb=8)) as box, box.session({"input.png": image}, persist="variables") as session:
        assert session.run("x = 1\nImage.new('RGB', (1600, 1400), 'red').save('a.png')").stop == "ok"
        assert session.run("import cv2\nprint(x, cv2.imread('a.png').shape)").stdout == "1 (1400, 1600, 3)\n"


def test_a_program_that_does_not_end_when_it_runs_again_is_named(
    box: Sandbox, image: Image.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cv2")
    with box.session({"input.png": image}, persist="variables") as session:
        session.run("x = 1")
        session._past["main"].append(("import os\nwhile True: pass", 0))
        session._limits = Limits(wall_s=0.2)
        with pytest.raises(SandboxError, match="where an earlier program failed.*took longer.*again"):
            session.run("import cv2")
        assert session.run("print(3)").stdout == "3\n"


@pytest.mark.integration
def test_a_move_is_tried_twice(box: Sandbox, image: Image.Image, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cv2")
    with box.session({"input.png": image}, persist="variables") as session:
        session.run("x = 1\nimage.resize((7, 9)).save('a.png')")
        spawn, spawned = session._spawn, []

        def dying(view: str) -> object:
            worker = spawn(view)
            if not spawned:
                process.zygote(session._kind).close()
            spawned.append(worker)
            return worker

        monkeypatch.setattr(session, "_spawn", dying)
        assert session.run("import cv2\nprint(x, cv2.imread('a.png').shape)").stdout == "1 (9, 7, 3)\n"
        assert len(spawned) == 2
