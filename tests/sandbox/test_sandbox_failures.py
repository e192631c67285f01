"""Failures around a program are not failures of the program; processes that die leave nothing behind."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import pytest
from PIL import Image
from zygotes import own_zygotes

from codev_env.errors import SandboxError, ViewLost
from codev_env.sandbox import Limits, Sandbox, Session
from codev_env.sandbox.host import process
from codev_env.sandbox.host.handle import WorkerHandle
from codev_env.types import Execution

SLOW = "total = sum(range(30_000_000))\nprint(total)"
ANSWER = f"{sum(range(30_000_000))}\n"


def linux() -> None:
    if not Path("/proc/self/stat").exists():
        pytest.skip("there is no /proc here")


def worker_of(session: Session) -> int:
    """The process id of a session's worker."""
    session.run("pass")
    assert session._worker is not None
    pid = session._worker.pid()
    assert pid is not None
    return pid


def used(pid: int) -> int:
    """The processor time that a process has used, in ticks of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def while_it_runs(
    session: Session, code: str, action: Callable[[int], None], view: str = "main", worker: int | None = None
) -> Execution:
    """Run code, act once its worker is busy, and return the result of the run."""
    linux()
    worker = worker or worker_of(session)
    with ThreadPoolExecutor(1) as pool:
        before, running = used(worker), pool.submit(session.run, code, view=view)
        while used(worker) < before + 5 and not running.done():
            time.sleep(0.005)
        action(worker)
        return running.result()


def kill_zygote(kind: process.Kind = "plain", *, idle: Session | None = None) -> None:
    """Kill a zygote and, if the worker of a session is waiting for a program, wait until it has died too."""
    process.zygote(kind)._process.kill()
    if idle is not None:
        see_it_die(idle)


def see_it_die(session: Session) -> None:
    assert session._worker is not None
    assert session._worker._sock.recv(1, socket.MSG_PEEK) == b""


@pytest.mark.parametrize("view", ["main", "probe"])
def test_a_program_runs_again_where_the_zygote_died(view: str, box: Sandbox, image: Image.Image) -> None:
    code = SLOW + "\nimport random\nprint(random.random(), Image.open('a.png').size)"
    seen = []
    for action in (lambda _worker: kill_zygote(), lambda _worker: None):
        with box.session({"input.png": image}, seed=5) as session:
            session.add_view("probe", {"input.png": image})
            session.run("image.save('a.png')", view=view)
            seen.append(while_it_runs(session, code, action, view))
            assert session.run("print(Image.open('a.png').width)", view=view).stdout == "160\n"
    assert [execution.stop for execution in seen] == ["ok", "ok"]
    assert seen[0].stdout == seen[1].stdout and seen[0].stdout.startswith(ANSWER)


@pytest.mark.integration
def test_variables_cannot_be_had_again_and_that_is_said(box: Sandbox, image: Image.Image) -> None:
    with box.session({"input.png": image}, persist="variables") as session:
        kill_zygote()
        assert session.run("x = 1\nprint(x)").stdout == "1\n"  # there was none to lose
        kill_zygote(idle=session)
        with pytest.raises(SandboxError, match="not to blame.*variables of earlier runs.*start the episode again"):
            session.run("x += 1")
        assert session.run("print(1)").stdout == "1\n"


def test_a_zygote_that_died_between_runs_is_not_noticed(box: Sandbox, image: Image.Image) -> None:
    with box.session({"input.png": image}) as session:
        session.run("image.save('a.png')")
        kill_zygote(idle=session)
        assert session.run("print(Image.open('a.png').size)").stdout == "(160, 120)\n"
        kill_zygote()
        with box.session({"input.png": image}) as other:
            assert other.run("print(1)").stdout == "1\n"


def test_a_worker_killed_while_idle_is_no_programs_fault(session: Session) -> None:
    linux()
    session.run("image.save('a.png')")
    os.kill(worker_of(session), signal.SIGKILL)
    see_it_die(session)
    assert session.run("print(Image.open('a.png').size)").stdout == "(160, 120)\n"


@pytest.mark.parametrize(
    ("number", "stop"), [(signal.SIGKILL, "memory"), (signal.SIGSEGV, "error"), (signal.SIGXCPU, "timeout")]
)
def test_a_worker_that_its_program_crashed_is_an_execution(number: int, stop: str, session: Session) -> None:
    linux()
    session.run("image.save('a.png')")
    execution = while_it_runs(session, "while True: pass", lambda worker: os.kill(worker, number))
    assert execution.stop == stop and execution.error is not None and "still there" in execution.error
    assert session.run("print(Image.open('a.png').width)").stdout == "160\n"


@pytest.fixture
def refuse_forks(tmp_path: Path) -> Iterator[Callable[[int], None]]:
    """Make the next forks of a zygote fail as on a machine without room for another process."""
    # Only the test writes: the zygote may be forking ahead at any time.
    order = tmp_path / "order"
    order.write_text("0 0")
    boot = tmp_path / "boot.py"
    boot.write_text(
        textwrap.dedent(f"""
        import errno, os, pathlib, runpy
        real, order = os.fork, pathlib.Path({str(order)!r})
        obeyed, refused = "", 0

        def fork():
            global obeyed, refused
            text = order.read_text()
            if text != obeyed:
                obeyed, refused = text, 0
            if refused < int(text.split()[1]):
                refused += 1
                raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            return real()

        os.fork = fork
        runpy.run_path({str(process._BOOT)!r}, run_name="__main__")
        """)
    )
    numbers = itertools.count(1)

    def refuse(number: int) -> None:
        order.with_suffix(".new").write_text(f"{next(numbers)} {number}")
        order.with_suffix(".new").replace(order)

    with own_zygotes() as patch:
        patch.setattr(process, "_BOOT", boot)
        yield refuse


def test_a_failed_fork_fails_one_request(refuse_forks: Callable[[int], None], image: Image.Image) -> None:
    with Sandbox(Limits(wall_s=20)) as box, box.session({}, persist="images") as other:
        other.run("Image.new('RGB', (3, 3)).save('a.png')")
        assert other._worker is not None
        worker = other._worker
        refuse_forks(1)
        with box.session({"input.png": image}) as session:
            assert session.run("print(image.size)").stdout == "(160, 120)\n"
        refuse_forks(1000)
        with box.session({"input.png": image}) as session:
            with pytest.raises(SandboxError, match="no process could be forked: .*not to blame.*ulimit -u"):
                session.run("print(image.size)")
            refuse_forks(0)
            assert session.run("print(image.size)").stdout == "(160, 120)\n"
        assert other.run("print(Image.open('a.png').size)").stdout == "(3, 3)\n"
        assert other._worker is worker


def test_a_timeout_stays_one_where_no_worker_can_follow(refuse_forks: Callable[[int], None]) -> None:
    with Sandbox(Limits(wall_s=0.5)) as box, box.session({}) as session:
        session.run("Image.new('RGB', (3, 3)).save('a.png')")
        refuse_forks(1000)
        assert session.run("while True: pass").stop == "timeout"
        assert session.run("print(1)").stdout == "1\n"  # the worker forked ahead of time
        assert session.run("while True: pass").stop == "timeout"
        with pytest.raises(SandboxError, match="forked"):
            session.run("pass")
        refuse_forks(0)
        assert session.run("print(Image.open('a.png').size)").stdout == "(3, 3)\n"


@pytest.mark.integration
def test_a_library_that_cannot_be_guarded_is_left_out_aloud(tmp_path: Path) -> None:
    pytest.importorskip("sympy")
    boot = tmp_path / "boot.py"
    boot.write_text(
        "import runpy, sys, types\n"
        "scipy = sys.modules['scipy'] = types.ModuleType('scipy')\n"
        f"runpy.run_path({str(process._BOOT)!r}, run_name='__main__')\n"
    )
    with own_zygotes() as patch:
        patch.setattr(process, "_BOOT", boot)
        with Sandbox(Limits(wall_s=20)) as box, box.session({}) as session:
            with pytest.warns(RuntimeWarning, match="programs cannot use scipy of the version installed"):
                execution = session.run("import scipy")
            assert execution.stop == "refused" and "'scipy' is not available here" in str(execution.error)
            assert session.run("import sympy\nprint(sympy.Rational(1, 2))").stdout == "1/2\n"


def run_script(script: str, **environment: str) -> str:
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_processes_of_our_own_may_have_as_many_descriptors_as_the_system_allows() -> None:
    """1024, as shells have, are enough for 254 sessions."""
    linux()
    out = run_script("""
        import resource, sys
        from codev_env.app import cli
        from codev_env.farm.work import NodeWork

        hard = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1] % (1 << 63), 4000)  # -1 is no limit
        allowed = []
        for start in (cli.run, NodeWork(1).hello):
            resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
            sys.argv = ["codev", "--version"]
            try:
                start()
            except SystemExit:
                pass
            allowed.append(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        print(allowed == [hard, hard])
    """)
    assert out.split()[-1] == "True"


@pytest.mark.integration
def test_no_descriptors_left() -> None:
    linux()
    out = run_script("""
        import os, resource
        from PIL import Image
        from codev_env.errors import SandboxError
        from codev_env.sandbox import Sandbox
        from codev_env.sandbox.host import process

        def count():
            return len(os.listdir("/proc/self/fd"))

        image = Image.new("RGB", (9, 9))
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, hard))
        box = Sandbox()
        box.describe()  # the zygote and a worker start under a low limit too
        sessions, spare, messages, leaks = [], [], [], []
        while True:
            before = count()
            try:
                sessions.append(box.session({"input.png": image}))
            except SandboxError as error:
                messages.append(str(error))
                leaks.append(count() - before)
                if before + 1 >= 40:  # `count` itself needs one
                    break
                spare.append(os.open("/dev/null", os.O_RDONLY))
        assert sum(leaks) <= 1, leaks  # one file for images is kept for the next session
        assert sessions[0].run("print(image.size)").stdout == "(9, 9)\\n"
        for fd in spare:
            os.close(fd)
        for message in messages:
            assert "ulimit -n" in message and " 40 descriptors" in message, message
            assert f"{len(sessions)} sandbox sessions are open" in message, message
        process.shut_down()
        resource.setrlimit(resource.RLIMIT_NOFILE, (count() + 1, hard))
        before = count()
        try:
            sessions[0].run("pass")
            raise AssertionError("a zygote without descriptors")
        except SandboxError as error:
            assert "ulimit -n" in str(error), error
        assert count() <= before, (before, count())  # the lost worker's socket is closed
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        for session in sessions:
            assert session.run("print(image.size)").stdout == "(9, 9)\\n"
            session.close()
        box.close()
        process.shut_down()
        assert count() < 12, os.listdir("/proc/self/fd")
        print(len(sessions), "done")
    """)
    number, done = out.split()
    assert int(number) >= 3 and done == "done"


def test_a_zygote_starts_where_very_many_descriptors_are_open(many_descriptors: None) -> None:
    """Its socket keeps its number."""
    with own_zygotes(), Sandbox() as box, box.session({}) as session:
        assert session.run("print(1)").stdout == "1\n"


def alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


def test_nothing_outlives_a_killed_trainer(tmp_path: Path) -> None:
    linux()
    pytest.importorskip("matplotlib")
    script = """
        import threading, time
        from codev_env.sandbox import Sandbox
        from codev_env.sandbox.host import process
        process.preload = lambda: None
        session = Sandbox().session({})
        plots = Sandbox().session({})
        assert plots.run("import matplotlib.pyplot as plt\\nplt.plot([1])\\nplt.show()").images
        threading.Thread(target=session.run, args=("while True: pass",), daemon=True).start()
        time.sleep(0.2)
        for kind in ("plain", "plots"):
            zygote = process.zygote(kind)._process.pid
            print(zygote, open(f"/proc/{zygote}/task/{zygote}/children").read(), end=" ")
        print(flush=True)
        time.sleep(60)
    """
    # Without a cache of Matplotlib, one has to be made somewhere.
    folders = {"TMPDIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "none")}
    environment = {name: value for name, value in os.environ.items() if name != "MPLCONFIGDIR"} | folders
    command = [sys.executable, "-c", textwrap.dedent(script)]
    trainer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert trainer.stdout is not None
    pids = [int(pid) for pid in trainer.stdout.readline().split()]
    assert len(pids) == 6  # two zygotes, each with a worker in use and one forked ahead of time
    assert all(alive(pid) for pid in pids)
    trainer.send_signal(signal.SIGKILL)
    trainer.wait()
    trainer.stdout.close()
    deadline = time.monotonic() + 20
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in pids)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("persist", ["images", "variables"])
def test_a_killed_view_runs_again_as_it_was(
    persist: Literal["images", "variables"], box: Sandbox, image: Image.Image
) -> None:
    code = SLOW + "\nimport random\nprint(random.random(), Image.open('a.png').size)"
    kept = "image.resize((7, 9)).save('a.png')\nx = 5"
    code += "\nprint(x)" if persist == "variables" else ""
    seen = []
    for number in (signal.SIGKILL, 0):
        with box.session({"input.png": image}, seed=5, persist=persist) as session:
            session.add_view("probe", {"input.png": image})
            session.run(kept, view="probe")
            worker = session._workers[session._place("probe")].pid()
            assert worker is not None
            seen.append(while_it_runs(session, code, lambda pid, number=number: os.kill(pid, number), "probe", worker))
            assert session.run("print(Image.open('a.png').size)", view="probe").stdout == "(7, 9)\n"
    assert [execution.stop for execution in seen] == ["ok", "ok"]
    assert seen[0].stdout == seen[1].stdout and seen[0].stdout.startswith(ANSWER)


def test_a_view_that_is_killed_twice_is_lost_and_the_session_goes_on(
    session: Session, image: Image.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    linux()
    ask, killed = WorkerHandle.ask, []

    def ask_and_kill(self: WorkerHandle, *request: Any) -> dict[str, Any]:
        killed.append(self.pid())
        threading.Timer(0.05, os.kill, (killed[-1], signal.SIGKILL)).start()
        return ask(self, *request)

    session.run("image.save('a.png')")
    session.add_view("probe", {"input.png": image})
    with monkeypatch.context() as patch:
        patch.setattr(WorkerHandle, "ask", ask_and_kill)
        with pytest.raises(ViewLost, match="killed; the program is not to blame. It was tried twice"):
            session.run("while True: pass", view="probe")
    assert len(set(killed)) == 2
    assert session.run("print(Image.open('a.png').size)").stdout == "(160, 120)\n"
    assert session.run("print(image.size)", view="probe").stdout == "(160, 120)\n"


@pytest.mark.parametrize("view", ["main", "probe"])
def test_a_program_that_the_machine_stopped_has_more_time(view: str, image: Image.Image) -> None:
    with Sandbox(Limits(wall_s=1)) as box, box.session({"input.png": image}) as session:
        session.add_view("probe", {"input.png": image})

        def stop(worker: int) -> None:
            os.kill(worker, signal.SIGSTOP)
            time.sleep(1.4)
            os.kill(worker, signal.SIGCONT)

        execution = while_it_runs(session, "print(sum(range(6_000_000)))", stop, view)
        assert execution.stdout == f"{sum(range(6_000_000))}\n", execution


def test_a_view_that_gets_no_processor_is_lost(image: Image.Image, monkeypatch: pytest.MonkeyPatch) -> None:
    linux()
    ask = WorkerHandle.ask

    def stop_and_ask(self: WorkerHandle, *request: Any) -> dict[str, Any]:
        pid = self.pid()
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        return ask(self, *request)

    with Sandbox(Limits(wall_s=0.3)) as box, box.session({"input.png": image}) as session:
        session.add_view("probe", {"input.png": image})
        with monkeypatch.context() as patch:
            patch.setattr(WorkerHandle, "ask", stop_and_ask)
            with pytest.raises(ViewLost, match="too little processor time"):
                session.run("pass", view="probe")
        assert session.run("print(1)", view="probe").stdout == "1\n"
