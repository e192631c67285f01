"""The kernel layers alone: in a real session whose worker runs unrestricted Python, attacks fail."""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from leaks import leaks
from photos import photo
from zygotes import own_zygotes

from codev_env.sandbox import Limits, Sandbox, Session
from codev_env.sandbox.host import process
from codev_env.sandbox.worker import seccomp

ATTACKS = Path(__file__).with_name("raw_attacks.py")
# Actions that any user may take without the layers, in the most restricted container too.
ORDINARY = frozenset(
    "send_udp connect_tcp listen_tcp connect_abstract make_socket_pair read_secret write_file list_root remove_file "
    "make_link change_mode read_environment reopen_descriptor limit_victim pin_victim open_process signal_thread "
    "start_thread fork execute make_memory_file execute_memory_file many_descriptors much_memory "
    "much_memory_in_parts much_heap set_alarm outlive_parent kill_victim".split()
)
CHECK = "print(image.size, image.getpixel((5, 5)))\nprint(Image.open('a.png').size)"
CHECKED = f"(160, 120) {photo().getpixel((5, 5))}\n(8, 6)\n"
FIND_WORKER = """
import sys
frame = sys._getframe()
while not hasattr(frame.f_locals.get('self'), 'memory'):
    frame = frame.f_back
worker = frame.f_locals['self']
while 'sock' not in frame.f_locals:
    frame = frame.f_back
sock = frame.f_locals['sock']
"""


@pytest.fixture(scope="module")
def without_language(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let workers run programs as they are: nothing is checked or rewritten, and the builtins are Python's own."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        pytest.skip("these layers are Linux's, on x86-64 and arm64")
    boot = tmp_path_factory.mktemp("boot") / "boot.py"
    boot.write_text(
        textwrap.dedent(f"""
        import builtins, os, runpy, sys

        def compile_plainly(source, limits):
            from codev_env.sandbox.language.policy import Program
            return Program(compile(source, "<code>", "exec"), frozenset({{"image", "Image"}}), frozenset())

        def fork(real=os.fork):
            worker = sys.modules["codev_env.sandbox.worker.worker"]
            worker.compile_program = compile_plainly
            worker._builtins = lambda: {{**vars(builtins), "print": worker._print, "show": worker._show}}
            return real()

        os.fork = fork
        runpy.run_path({str(process._BOOT)!r}, run_name="__main__")
        """)
    )
    with own_zygotes() as patch:
        patch.setattr(process, "_BOOT", boot)
        yield


@pytest.fixture
def box(without_language: None) -> Iterator[Sandbox]:
    with Sandbox(Limits(wall_s=20, code_chars=100_000)) as opened:
        layers = opened.describe()
        if layers["landlock"] != "on" or layers["seccomp"] != "on":
            pytest.skip(f"this machine lacks layers: {layers}")
        yield opened


@pytest.fixture
def victim(box: Sandbox) -> Iterator[Session]:
    """A session that is at work when others attack, and is the same afterwards."""
    with box.session({"input.png": photo()}) as session:
        assert session.run("image.crop((0, 0, 8, 6)).save('a.png')").stop == "ok"
        yield session
        assert session.run(CHECK).stdout == CHECKED


@pytest.fixture
def attacker(box: Sandbox, victim: Session) -> Iterator[Session]:
    """A session to attack from; the next one must work as ever."""
    with box.session({"input.png": photo(seed=1)}) as session:
        yield session
    with box.session({"input.png": photo()}) as session:
        assert session.run("image.crop((0, 0, 8, 6)).save('a.png')\n" + CHECK).stdout == CHECKED


@pytest.fixture
def facts() -> Iterator[dict[str, Any]]:
    """The targets of the attacks: a folder, and a listener of each kind."""
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        abstract.bind(f"\0codev-test-{os.getpid()}")
        abstract.listen()
        for name in ("secret.txt", "victim.txt"):
            Path(folder, name).write_text("secret")
        Path(folder).chmod(0o777)
        yield {"folder": folder, "port": tcp.getsockname()[1], "abstract": f"codev-test-{os.getpid()}"}


def somewhere_in(pid: int) -> int:
    """An address that a process has memory at."""
    return int(Path(f"/proc/{pid}/maps").read_text().partition("-")[0], 16)


def worker_pid(session: Session) -> int:
    assert session._worker is not None
    pid = session._worker.pid()
    assert pid is not None
    return pid


def zygote_pid(session: Session) -> int:
    assert session._worker is not None
    return session._worker._zygote._process.pid


def trainer_pid(_session: Session) -> int:
    return os.getpid()


def test_the_attacks_work_where_no_layer_is(facts: dict[str, Any]) -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        facts |= {"victim": sleeper.pid, "address": somewhere_in(sleeper.pid)}
        command = [sys.executable, str(ATTACKS), json.dumps(facts)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        sleeper.kill()
    outcomes = json.loads(done.stdout)
    assert {name for name, outcome in outcomes.items() if outcome == "worked"} >= ORDINARY


@pytest.mark.parametrize("whom", [worker_pid, zygote_pid, trainer_pid])
def test_nothing_outside_can_be_touched(
    whom: Callable[[Session], int], victim: Session, attacker: Session, facts: dict[str, Any]
) -> None:
    pid = whom(victim)
    facts |= {"victim": pid, "address": somewhere_in(pid)}
    before = sorted(os.listdir(facts["folder"]))
    execution = attacker.run(f"FACTS = {facts!r}\n{ATTACKS.read_text()}")
    assert execution.error is None
    outcomes = json.loads(execution.stdout)
    assert outcomes.keys() >= ORDINARY
    assert {name: outcome for name, outcome in outcomes.items() if outcome == "worked"} == {}
    assert sorted(os.listdir(facts["folder"])) == before


def test_every_system_call_that_is_not_on_the_list_is_refused(attacker: Session) -> None:
    _arch, calls, _prlimit = seccomp._MACHINES[platform.machine()]
    # The kernel itself lets uretprobe and uprobe of x86-64 past any filter: they do something in a probe only.
    passed = set(calls.values()) | ({335, 336} if platform.machine() == "x86_64" else set())
    code = f"""
        import ctypes, errno
        libc = ctypes.CDLL(None, use_errno=True)
        found = {{}}
        for number in set(range(600)) - {passed}:
            ctypes.set_errno(0)
            if libc.syscall(number, -1, -1, -1, -1, -1, -1) != -1 or ctypes.get_errno() != errno.EPERM:
                found[number] = ctypes.get_errno()
        print(found)
    """
    execution = attacker.run(textwrap.dedent(code))
    assert (execution.error, execution.stdout) == (None, "{}\n")


def test_inputs_cannot_be_written(attacker: Session, box: Sandbox) -> None:
    code = f"""{FIND_WORKER}
import ctypes, errno
import numpy as np
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
inputs = worker.memory['inputs']
address, size = np.frombuffer(inputs, np.uint8).ctypes.data, len(inputs)
assert address % 4096 == 0
write, remove, shared, fixed = 2, 9, 1, 16
print('protect', libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(4096), 1 | write))
print('remove', libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(4096), remove))
for fd in range(16):
    found = libc.mmap(None, ctypes.c_size_t(4096), 1 | write, shared, fd, ctypes.c_long(0))
    if ctypes.c_long(found).value != -1:
        ctypes.memset(found, 255, 4096)  # the arena, which this worker writes to anyway
try:
    inputs[0] = 1
except TypeError:
    print('readonly')
image.putpixel((5, 5), (1, 2, 3))
"""
    execution = attacker.run(code)
    assert (execution.error, execution.stdout) == (None, "protect -1\nremove -1\nreadonly\n")
    shown = attacker.run("show(image)").images[0]
    assert shown.tobytes() == photo(seed=1).tobytes()


@pytest.mark.parametrize(
    "code",
    [
        "import ctypes\nctypes.CDLL(None).syscall(0x40000000 | 39)",  # getpid by the numbers of x32
        "import ctypes\nctypes.string_at(0)",
        "import os\nos._exit(0)",
        f"{FIND_WORKER}\nsock.sendall(b'\\xff' * 100)",
        f"{FIND_WORKER}\nsock.close()",
        f"{FIND_WORKER}\nsock.sendall((10).to_bytes(4, 'big') + b'[1, 2, 3] ')",
    ],
    ids=["other_numbers", "crash", "exit", "no_length", "hang_up", "no_object"],
)
def test_a_worker_that_breaks_ends_alone(code: str, attacker: Session) -> None:
    if "0x40000000" in code and platform.machine() != "x86_64":
        pytest.skip("only x86-64 has other numbers for the same calls")
    attacker.run("image.crop((0, 0, 8, 6)).save('a.png')")
    execution = attacker.run(code)
    # A worker that closes its socket is killed, which looks like a lack of memory unless it ended by itself before.
    assert execution.stop in ("error", "memory") and execution.error is not None
    assert attacker.run("print(Image.open('a.png').size)").stdout == "(8, 6)\n"


def test_calls_of_32_bit_code_end_the_worker(attacker: Session) -> None:
    if platform.machine() != "x86_64":
        pytest.skip("this machine code is for x86-64")
    # mov eax, 20 (getpid of i386); int 0x80; ret
    code = """
        import ctypes, mmap
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(bytes.fromhex("b814000000cd80c3"))
        entry = ctypes.addressof(ctypes.c_char.from_buffer(page))
        print(ctypes.CFUNCTYPE(ctypes.c_int)(entry)())
    """
    execution = attacker.run(textwrap.dedent(code))
    assert (execution.stop, execution.stdout) == ("error", "")


@pytest.mark.usefixtures("attacker")
def test_descriptors_that_a_worker_sends_are_not_kept(box: Sandbox) -> None:
    code = f"""{FIND_WORKER}
import array, json, socket
number = frame.f_locals['request']['number']
reply = {{"number": number, "stop": "ok", "error": None, "stdout": "forged", "repairs": [], "images": [], "files": []}}
reply |= {{"data": [], "reads": [], "cuts": [], "spent": False}}
body = json.dumps(reply).encode()
descriptors = array.array('i', [0, 1, 2, sock.fileno()])
sock.sendmsg([len(body).to_bytes(4, 'big') + body], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
"""

    def use() -> None:
        with box.session({"input.png": photo(seed=1)}) as session:  # one reply too many: a worker lies once
            assert session.run(code).stdout == "forged"

    assert leaks(use) <= 0
