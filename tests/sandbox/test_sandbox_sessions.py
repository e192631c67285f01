"""Sessions: state between runs, broken limits, and many sessions at once."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from leaks import leaks
from photos import photo
from PIL import Image

from codev_env.errors import ConfigError, SandboxError
from codev_env.sandbox import Limits, Sandbox, Session
from codev_env.sandbox.host import memory, process
from codev_env.sandbox.wire import frames

FOREVER = "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass"


def test_files_stay_and_variables_do_not(session: Session) -> None:
    session.run("x = 1\nimage.crop((0, 0, 8, 8)).save('a.png')\nimage.paste((0, 0, 0), (0, 0, 50, 50))")
    assert session.run("print(Image.open('a.png').size, image.getpixel((5, 5)) != (0, 0, 0))").stdout == "(8, 8) True\n"
    assert session.run("print(x)").stop == "error"


@pytest.mark.integration
def test_variables_stay_where_asked(box: Sandbox, image: Image.Image) -> None:
    with box.session({"input.png": image}, persist="variables") as session:
        session.run("x = [1]\ndef f():\n    return x\nimage = image.crop((0, 0, 9, 9))\nresult = image")
        execution = session.run("x.append(2)\nprint(f(), image.size)")
        assert (execution.stdout, execution.images) == ("[1, 2] (9, 9)\n", ())


MAKE = "import os\nos.makedirs('out/deep', exist_ok=True)\nimage.crop((0, 0, 8, 8)).save('out/a.png')"
FIND = "import os\nprint(Image.open('out/a.png').size, os.path.isdir('out/deep'), os.listdir('out'))"


@pytest.mark.parametrize(
    ("persist", "isolation"), [("images", "episode"), ("images", "step"), ("variables", "episode")]
)
def test_folders_stay_as_long_as_files(persist: Any, isolation: Any, image: Image.Image) -> None:
    """The repair of paths, which some dialects leave out, would find the file in any folder."""
    with Sandbox(Limits(files=1), isolation=isolation) as box:
        with box.session({"input.png": image}, persist=persist, repairs=("imports",)) as session:
            made = session.run(MAKE)
            assert (made.error, made.images) == (None, ())
            assert session.run(FIND).stdout == "(8, 8) True ['a.png', 'input.png']\n"
            assert session.run("x = [0] * 10**10").stop == "memory"
            assert session.run(FIND).stdout == "(8, 8) True ['a.png', 'input.png']\n"
            assert "there is no file 'in/a.png'" in (session.run("Image.open('in/a.png')").error or "")
            session.add_view("other", {"input.png": image})
            assert session.run("import os\nprint(os.path.isdir('out'))", view="other").stdout == "False\n"
        with box.session({"input.png": image}, persist=persist, repairs=("imports",)) as session:
            assert session.run("import os\nprint(os.path.isdir('out'), os.listdir())").stdout == "False ['input.png']\n"


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("os.makedirs('a\\nb')", "control characters"),
        (f"os.makedirs('{'x' * 101}/b')", "too long"),
        ("for n in range(9999):\n    os.mkdir(f'folder-{n}')", "16 KiB together"),
        ("open('\\u200bfolders', 'w').write('/etc')", "control characters"),
        ("open('\\u200bfolders')", "there is no file"),
    ],
)
def test_folders_are_named_like_files_and_bounded(code: str, problem: str, session: Session) -> None:
    session.run(MAKE)
    execution = session.run(f"import os\n{code}")
    assert execution.stop == "error" and problem in (execution.error or "")
    assert session.run(FIND).stdout == "(8, 8) True ['a.png', 'input.png']\n"


def test_nothing_passes_between_episodes(box: Sandbox, image: Image.Image) -> None:
    with box.session({"input.png": image}) as first:
        first.run("image.save('left.png')\nImage.new('RGB', (3, 3)).info['x'] = 1\nnp.set_printoptions(precision=2)")
    with box.session({"input.png": image}) as second:
        assert second.run("Image.open('left.png')").stop == "error"
        assert second.run("print(np.array([1 / 3]))").stdout == "[0.33333333]\n"


@pytest.mark.parametrize("code", ["while True: pass", FOREVER, "x = 10 ** (10 ** 8)", "'a' * 60", "sum(range(10**12))"])
def test_a_program_that_does_not_end_is_ended(code: str, quick_box: Sandbox, image: Image.Image) -> None:
    if code == "'a' * 60":
        code = "import re\nre.match('(a+)+$', 'a' * 60 + 'b')"
    with quick_box.session({"input.png": image}) as session:
        session.run("image.crop((0, 0, 8, 6)).save('early.png')")
        execution = session.run("Image.new('RGB', (2, 2)).save('late.png')\n" + code)
        assert execution.stop == "timeout"
        assert execution.error is not None and "0.5 s" in execution.error and "still there" in execution.error
        after = session.run("print(Image.open('early.png').size, image.size)\nshow('early.png')")
        assert after.stdout == "(8, 6) (160, 120)\n"
        assert after.images[0].tobytes() == image.crop((0, 0, 8, 6)).tobytes()
        assert session.run("Image.open('late.png')").stop == "error"


def test_memory_is_limited(image: Image.Image) -> None:
    with Sandbox(Limits(memory_mb=128, wall_s=20)) as box, box.session({"input.png": image}) as session:
        for code in (
            "x = np.ones((1 << 28,))",
            "b'x' * (1 << 30)",
            "f'{1:>2000000000}'",
            "Image.new('RGB', (20000, 20000))",
        ):
            execution = session.run(code)
            assert execution.stop == "memory"
            assert execution.error is not None and "smaller crop" in execution.error
        assert session.run("print(np.ones(9).sum())").stdout == "9.0\n"


def test_isolation_per_step(image: Image.Image) -> None:
    with Sandbox(isolation="step") as box:
        with box.session({"input.png": image}) as session:
            session.run("image.save('a.png')\nnp.set_printoptions(precision=2)")
            assert (
                session.run("print(Image.open('a.png').size, np.array([1 / 3]))").stdout == "(160, 120) [0.33333333]\n"
            )
        with pytest.raises(ConfigError, match="persist"):
            box.session({}, persist="variables")


@pytest.mark.integration
def test_views_are_worlds_of_their_own(box: Sandbox, image: Image.Image) -> None:
    other = photo(seed=9)
    code = "import random\nprint(random.random())\nx = 1\nc = image.crop((5, 6, 70, 80))\nc.save('c.png')\nshow(c)"
    with box.session({"input.png": image}, seed=3, persist="variables") as session:
        session.run("image.rotate(90).save('main_only.png')")
        session.add_view("probe", {"input.png": other})
        seen = session.run(code, view="probe")
        assert seen.images[0].tobytes() == other.crop((5, 6, 70, 80)).tobytes()
        assert session.run("print(x)").stop == "error"
        assert session.run("Image.open('c.png')").stop == "error"
        assert session.run("Image.open('main_only.png')", view="probe").stop == "error"
        main = session.run(code)
        assert main.stdout == seen.stdout
        assert main.images[0].tobytes() == image.crop((5, 6, 70, 80)).tobytes()
        assert session.run(code).stdout == session.run(code, view="probe").stdout != main.stdout
        with pytest.raises(SandboxError, match="exists already"):
            session.add_view("probe", {})
        with pytest.raises(SandboxError, match="Views: main, probe"):
            session.run("pass", view="prob")


def test_views_survive_a_killed_worker(quick_box: Sandbox, image: Image.Image) -> None:
    other = photo(seed=9)
    with quick_box.session({"input.png": image}) as session:
        session.add_view("probe", {"input.png": other})
        session.run("image.crop((0, 0, 4, 4)).save('a.png')", view="probe")
        assert session.run("while True: pass", view="probe").stop == "timeout"
        assert session.run("show('a.png')", view="probe").images[0].tobytes() == other.crop((0, 0, 4, 4)).tobytes()
        assert session.run("Image.open('a.png')").stop == "error"


def test_many_sessions_at_once(box: Sandbox) -> None:
    photos = [photo(64 + n, 48, seed=n) for n in range(12)]

    def run_episode(number: int) -> bool:
        with box.session({"input.png": photos[number]}, seed=number) as session:
            for step in range(3):
                execution = session.run(f"c = image.crop((0, 0, 20, {step + 10}))\nc.save('c.png')\nprint('c.png')")
                if execution.images[0].tobytes() != photos[number].crop((0, 0, 20, step + 10)).tobytes():
                    return False
            return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run_episode, range(12)))


def test_bad_use(box: Sandbox, image: Image.Image) -> None:
    with box.session({"input.png": image}) as session:
        with pytest.raises(TypeError, match="bytes"):
            session.run(b"print(1)")  # type: ignore[arg-type]
        execution = session.run("x = 1\n" * 10_000)
        assert execution.stop == "refused" and execution.error is not None and "20000 are allowed" in execution.error
    session.close()
    with pytest.raises(SandboxError, match="closed"):
        session.run("pass")
    with pytest.raises(SandboxError, match="bare file name"):
        box.session({"a/b.png": image})
    with pytest.raises(SandboxError, match="PIL image"):
        box.session({"a.png": "text"})  # type: ignore[dict-item]
    with pytest.raises(SandboxError, match="0x5 pixels"):
        box.session({"a.png": Image.new("RGB", (0, 5))})
    with pytest.raises(ConfigError, match="'variables'"):
        box.session({}, persist="variable")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="memory_mb"):
        Limits(memory_mb=0)
    with pytest.raises(ConfigError, match="whole number"):
        Limits(images=2.5)  # type: ignore[arg-type]
    closed = Sandbox()
    closed.close()
    with pytest.raises(SandboxError, match="closed"):
        closed.session({})


def test_the_zygote_loads_nothing_of_the_trainer() -> None:
    modules = set(process.zygote("plain").modules)
    assert {"numpy", "PIL", "RestrictedPython"} <= modules
    assert not modules & {
        "gymnasium",
        "torch",
        "transformers",
        "pytest",
        "codev_agents",
        "codev_train",
        "matplotlib",
        "cv2",
        "unittest",  # of NumPy's own tests
    }


@pytest.mark.integration
def test_a_script_may_end_in_the_middle_of_an_episode() -> None:
    script = (
        "import gymnasium as gym, codev_env\n"
        "env = gym.make('CodeV-Corruption-v0', data='synthetic', scenes='toy')\n"
        "env.reset(seed=0)\n"
        "env.step('<code>\\n```python\\nprint(1)\\n```\\n</code>')\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_descriptors_are_given_back(box: Sandbox, image: Image.Image) -> None:
    def use() -> None:
        with box.session({"input.png": image}) as session:
            session.run("show(image)")

    assert leaks(use) <= 0


@pytest.mark.parametrize("lock", ["zygote", "pool", None])
def test_a_session_that_the_garbage_collector_ends_blocks_nothing(
    lock: str | None, image: Image.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    box, zygote = Sandbox(), process.zygote("plain")
    module, name, wanted = {
        "zygote": (frames, "send", zygote._sock),
        "pool": (memory, "_kinds", None),
        None: (memory, "_sample", None),
    }[lock]
    garbage: list[Any] = [box.session({"input.png": image})]
    garbage.append(garbage)
    token = garbage[0]._worker._token
    real, collected = getattr(module, name), []

    def collect(first: Any, *others: Any) -> Any:
        if not collected and wanted in (first, None):
            collected.append(True)
            gc.collect()
        return real(first, *others)

    def use() -> None:
        with box.session({"input.png": image}) as session:
            session.run("pass")

    monkeypatch.setattr(module, name, collect)
    del garbage
    thread = threading.Thread(target=use, daemon=True)
    thread.start()
    thread.join(60)
    assert collected and not thread.is_alive()
    assert [file.users for file in box.pool._files] == [0]
    while zygote.pid(token) is not None:
        time.sleep(0.01)
    box.close()


def test_a_forked_child_gets_a_zygote_of_its_own(box: Sandbox, image: Image.Image) -> None:
    with box.session({"input.png": image}) as session:
        session.run("pass")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with Sandbox() as own, own.session({"input.png": image}) as session:
                os.write(writer, session.run("print(image.size)").stdout.encode())
        finally:
            process.shut_down()
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as file:
        assert file.read() == "(160, 120)\n"
    with box.session({"input.png": image}) as session:
        assert session.run("print(1)").stdout == "1\n"


def test_a_session_can_be_closed_while_it_runs(image: Image.Image) -> None:
    with Sandbox(Limits(wall_s=1.0)) as box:
        session = box.session({"input.png": image})
        thread = threading.Thread(target=session.run, args=("while True: pass",))
        thread.start()
        session.close()
        thread.join(20)
        assert not thread.is_alive()


def test_saving_the_same_file_again_needs_no_more_room(image: Image.Image) -> None:
    with Sandbox(Limits(files_mb=1)) as box, box.session({"input.png": image}) as session:
        session.add_view("probe", {"input.png": image})
        session.run("image.crop((0, 0, 9, 9)).save('keep.png')\nImage.new('L', (5, 5), 7).save('grey.png')")
        for number in range(60):
            execution = session.run(f"image.putpixel((0, 0), ({number}, 0, 0))\nimage.save('a.png')\nprint('a.png')")
            assert execution.error is None
            assert execution.images[0].getpixel((0, 0)) == (number, 0, 0)
        assert session.run("show('keep.png')").images[0].tobytes() == image.crop((0, 0, 9, 9)).tobytes()
        assert session.run("show(image)", view="probe").images[0].tobytes() == image.tobytes()
        full = session.run("for n in range(40):\n    image.resize((900, 600)).save(f'{n}.png')")
        assert full.stop == "result" and full.error is not None and "1 MiB" in full.error


@pytest.mark.parametrize("save", ["image.save(name)", "open(name, 'w').write('x')"])
def test_programs_save_over_any_number_of_inputs(save: str) -> None:
    images = {f"{n}.png": Image.new("RGB", (4, 3), (n, 0, 0)) for n in range(20)}
    with Sandbox(Limits(files=2)) as box, box.session(images) as session:
        saved = session.run(f"import os\nfor name in os.listdir():\n    {save}\nprint('done')")
        assert (saved.stdout, saved.error, len(saved.saves)) == ("done\n", None, 20)
        read = session.run("import os\nprint(sum(len(open(name, 'rb').read()) > 0 for name in os.listdir()))")
        assert (read.stdout, len(read.reads)) == ("20\n", 20)


class Stop(BaseException):
    """As a signal's handler raises it, or Ctrl-C."""


def stopped(*_args: Any, **_options: Any) -> Any:
    raise Stop


@pytest.mark.parametrize("persist", ["images", "variables"])
def test_a_program_that_the_caller_gave_up_is_no_fault_of_the_next(
    persist: Any, quick_box: Sandbox, image: Image.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    with quick_box.session({"input.png": image}, persist=persist) as session:
        session.run("x = 1\nimage.resize((7, 9)).save('a.png')")
        with monkeypatch.context() as patched, pytest.raises(Stop):
            patched.setattr(frames, "receive", stopped)
            session.run("while True:\n    pass")
        assert session.run("print(Image.open('a.png').size)").stdout == "(7, 9)\n"
        assert session.run("print(x)").stdout == ("1\n" if persist == "variables" else "")


def test_variables_survive_a_new_worker_that_was_given_up(
    quick_box: Sandbox, image: Image.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    with quick_box.session({"input.png": image}, persist="variables") as session:
        session.run("x = 1")
        session.run("y = 2")
        session._drop("main")
        calls = iter([session._attempt, stopped])
        with monkeypatch.context() as patched, pytest.raises(Stop):
            patched.setattr(session, "_attempt", lambda *args: next(calls)(*args))
            session.run("print(x, y)")
        assert session.run("print(x, y)").stdout == "1 2\n"
