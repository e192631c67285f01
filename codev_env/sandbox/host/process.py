"""The trainer's side of the zygote: start it, ask it for workers, and never fork the trainer itself."""

from __future__ import annotations

import atexit
import errno
import importlib.util
import itertools
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from codev_env.errors import SandboxError
from codev_env.sandbox.host import descriptors
from codev_env.sandbox.host.locks import FinalizerLock
from codev_env.sandbox.wire import frames
from codev_env.sandbox.wire.messages import Setup

Kind = Literal["plain", "vision", "plots", "science", "tables"]
"""The libraries that a zygote has loaded: Pillow and NumPy; also OpenCV; also Matplotlib; also SciPy, scikit-image and
SymPy; also pandas and scikit-learn. Each library makes forking slower.
"""

_NAMES: dict[Kind, re.Pattern[str]] = {
    "tables": re.compile(r"\b(pandas|pd|sklearn)\b"),
    "science": re.compile(r"\b(scipy|skimage|sympy)\b"),
    "plots": re.compile(r"\b(matplotlib|pyplot|plt)\b"),
    "vision": re.compile(r"\bcv2?\b"),
}

_SLOW: dict[Kind, tuple[str, ...]] = {"science": ("scipy", "skimage", "sympy"), "tables": ("pandas", "sklearn")}
"""By kind: the libraries that take seconds to load."""

START_S = 120.0
"""Seconds that the zygote, or a worker, may take to be ready on a loaded machine."""

_PRELOAD_NICENESS = 5

_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "LC_ALL": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENCV_LOG_LEVEL": "OFF",
    "HOME": "/nonexistent",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",  # large blocks in huge pages: a crop costs few page faults
}
_KEPT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "TMPDIR")
_PACKAGE = Path(__file__).resolve().parents[2]
_BOOT = _PACKAGE / "sandbox" / "worker" / "boot.py"
_SHORTAGES = (errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM)


def kind_for(code: str, present: Kind) -> Kind:
    """The lightest kind that has the libraries which a program names and those of the present kind."""
    named = next((kind for kind, names in _NAMES.items() if names.search(code)), present)
    return max(named, present, key=get_args(Kind).index)


class ZygoteGone(SandboxError):
    """The zygote is gone, and all its workers with it; the next call of `zygote` starts another."""


@dataclass(frozen=True)
class Link:
    """A worker's number at its zygote, and our end of its socket."""

    token: int
    sock: socket.socket

    def is_waiting(self) -> bool:
        """Return whether the worker is alive and has sent nothing, so that it waits for its session."""
        try:
            self.sock.setblocking(False)
            self.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False


class Zygote:
    """A running zygote process, and a worker forked ahead of time. Thread-safe."""

    def __init__(self, kind: Kind, niceness: int = 0) -> None:
        self.kind = kind
        self._niceness = niceness
        if not hasattr(socket, "AF_UNIX") or not hasattr(os, "fork"):
            raise SandboxError(f"the sandbox needs a Unix system; {sys.platform} is none. Use WSL or a container.")
        self.owner = os.getpid()
        self._lock = FinalizerLock()
        self._tokens = itertools.count(1)
        self._gone = False
        self._spares: list[Link] = []
        self._forking_ahead = False
        with ExitStack() as undo, descriptors.explained("start its process"):
            self._stderr = undo.enter_context(tempfile.TemporaryFile())
            self._sock, theirs = socket.socketpair()
            undo.enter_context(self._sock)
            with theirs:
                self._process = self._start(theirs)
            _loading.add(self._process)
            try:
                ready = frames.receive(self._sock, deadline=time.monotonic() + START_S)
            except (frames.FrameClosed, frames.FrameTimeout, frames.FrameError) as error:
                said = self._end_of_stderr()
                if isinstance(error, frames.FrameTimeout):
                    said = f"no answer within {START_S:.0f} s. Is the machine overloaded? {said}".rstrip()
                elif not said:
                    said = f"it ended with code {self._process.returncode} and said nothing."
                raise SandboxError(f"the sandbox process did not start: {said}") from error
            finally:
                _loading.discard(self._process)
            undo.pop_all()
        self.modules: tuple[str, ...] = tuple(ready["modules"])
        for name, why in ready["left_out"].items():
            warnings.warn(f"programs cannot use {name} of the version installed: {why}", RuntimeWarning, stacklevel=2)
        self._sock.settimeout(START_S)

    def _start(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        path = [entry for entry in sys.path if entry and os.path.exists(entry)]
        environment = {**_ENVIRONMENT, **_font_cache()}
        environment.update({name: os.environ[name] for name in _KEPT if name in os.environ})
        # -S, -s and -P: no site-packages hooks and no folder of the script; the path comes from this process.
        command = [
            sys.executable,
            "-S",
            "-s",
            "-P",
            str(_BOOT),
            str(_PACKAGE),
            json.dumps(path),
            str(theirs.fileno()),
            self.kind,
            str(self._niceness),
        ]
        return subprocess.Popen(
            command,
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )

    def _end_of_stderr(self) -> str:
        self._process.kill()
        self._process.wait()
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace").strip()[-2000:]

    @property
    def alive(self) -> bool:
        """Whether the zygote runs, listens and belongs to this process (not to one that forked this process)."""
        return not self._gone and self.owner == os.getpid() and self._process.poll() is None

    def worker(self, setup: Setup, inputs_fd: int, arena_fd: int) -> Link:
        """Give a session a worker: the one forked ahead of time where it lives, else a new one.

        Args:
            setup: The settings of the session, as `worker.serve` reads them.
            inputs_fd: Shared memory with the input images, open for reading only.
            arena_fd: Shared memory for the images that programs save and show.

        Raises:
            ZygoteGone: The zygote has died.
            SandboxError: The system refuses; the zygote and its workers keep running.
            FrameError: The setup is too long.
        """
        while True:
            spare = self._take_spare()
            link = spare or self._fork()
            link.sock.settimeout(START_S)
            try:
                frames.send(link.sock, setup, (inputs_fd, arena_fd))
            except frames.FrameError:
                self._discard(link)
                raise
            except (frames.FrameClosed, frames.FrameTimeout) as error:
                cause = error.__cause__
                if isinstance(cause, OSError) and cause.errno in _SHORTAGES:
                    self._discard(link)
                    raise descriptors.refusal("reach a worker", cause) from error
                if spare is not None:
                    self._discard(spare)
                    continue
                # A new worker that has died has sent the reason, which its session reads.
            break
        self._fork_ahead()
        return link

    def _fork_ahead(self) -> None:
        """Fork a worker for the next session, unless one is waiting."""
        with self._lock:
            if self._spares or self._forking_ahead:
                return
            self._forking_ahead = True
        try:
            spare = self._fork()
            with self._lock:
                self._spares.append(spare)
        except SandboxError:
            pass  # the next session forks its own worker, and gets the error
        finally:
            self._forking_ahead = False

    def _take_spare(self) -> Link | None:
        while True:
            with self._lock:
                if not self._spares:
                    return None
                spare = self._spares.pop()
            if spare.is_waiting():
                return spare
            self._discard(spare)

    def _discard(self, link: Link) -> None:
        link.sock.close()
        self.kill(link.token)

    def _fork(self) -> Link:
        with descriptors.explained("open a socket to a worker"):
            ours, theirs = socket.socketpair()
        token = next(self._tokens)
        with theirs:
            try:
                self._ask({"op": "fork", "token": token}, (theirs.fileno(),))
            except SandboxError:
                ours.close()
                raise
        return Link(token, ours)

    def kill(self, token: int) -> None:
        """Kill a worker, at once or after the request that is being sent; does nothing if it has ended."""
        self._lock.run_or_defer(lambda: self._kill(token))

    def _kill(self, token: int) -> None:
        with suppress(SandboxError):  # without a zygote there is no worker: each dies with it
            self._send({"op": "kill", "token": token})

    def exit_code(self, token: int) -> int | None:
        """How a worker ended: its exit code, or minus the signal that ended it.

        Returns:
            `None` if unknown, because the zygote is gone too.

        Raises:
            SandboxError: No descriptor is left for the request.
        """
        return self._answer_to("end", token)

    def pid(self, token: int) -> int | None:
        """The process id of a worker; `None` where it is not known. Raises as `exit_code` does."""
        return self._answer_to("pid", token)

    def _answer_to(self, operation: str, token: int) -> int | None:
        with descriptors.explained("ask about a worker"):
            ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                try:
                    self._ask({"op": operation, "token": token}, (theirs.fileno(),))
                except ZygoteGone:
                    return None
            try:
                answer = frames.receive(ours, deadline=time.monotonic() + START_S).get(operation)
            except (frames.FrameClosed, frames.FrameTimeout, frames.FrameError):
                return None
        return answer if isinstance(answer, int) else None

    def _ask(self, request: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        with self._lock:
            self._send(request, fds)

    def _send(self, request: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        try:
            frames.send(self._sock, request, fds)
        except (frames.FrameClosed, frames.FrameTimeout) as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and cause.errno in _SHORTAGES:
                raise descriptors.refusal("reach its process", cause) from error
            self._gone = True  # it may take a moment to end, and must get no further requests
            raise ZygoteGone("the sandbox process is gone; open a new session.") from error

    def close(self) -> None:
        """End the process and all its workers."""
        if self.owner == os.getpid():
            self._process.kill()
            self._process.wait()
        self.release()
        self._stderr.close()

    def release(self) -> None:
        """Close the sockets; the zygote ends when no process holds them."""
        self._sock.close()
        while self._spares:
            self._spares.pop().sock.close()


def _font_cache() -> dict[str, str]:
    """Matplotlib's cache folder: the user's own if it exists, since building one takes seconds; else the zygote's."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.environ.get("MPLCONFIGDIR") or os.path.join(base, "matplotlib")
    return {"MPLCONFIGDIR": os.path.abspath(folder)} if os.path.isdir(folder) else {}


_shared: dict[Kind, Zygote] = {}
_shared_lock = threading.Lock()
_starting: dict[Kind, threading.Lock] = {kind: threading.Lock() for kind in get_args(Kind)}
_loading: set[subprocess.Popen[bytes]] = set()
_preloading: list[threading.Thread] = []


def zygote(kind: Kind, niceness: int = 0) -> Zygote:
    """A zygote of this process, shared by all sandboxes; started when first needed, or again when it died.

    Args:
        kind: Its libraries.
        niceness: Added to that of this process while a new one loads its libraries.
    """
    with _starting[kind]:
        running = _shared.get(kind)
        if running is None or not running.alive:
            if running is not None and _shared.pop(kind, None) is not None:
                running.close()
            running = Zygote(kind, niceness)
            with _shared_lock:
                _shared[kind] = running
        return running


def preload() -> None:
    """Start the zygotes with all libraries, once in this process, in a thread of its own and at a lower priority.

    Programs that name one of them, SciPy for example, then do not wait. A failure is left to those programs.
    """
    kinds = [kind for kind, libraries in _SLOW.items() if any(map(_is_installed, libraries))]
    if _preloading or not kinds:
        return

    def load() -> None:
        for kind in kinds:
            with suppress(SandboxError, OSError, Warning):
                zygote(kind, _PRELOAD_NICENESS)

    _preloading.append(threading.Thread(target=load, name="codev-sandbox-preload", daemon=True))
    _preloading[-1].start()


def _is_installed(library: str) -> bool:
    try:
        return importlib.util.find_spec(library) is not None
    except ValueError:  # it is hidden from this process, or a loaded module without a spec
        return False


@atexit.register
def shut_down() -> None:
    """End the shared zygotes; they start again when they are needed again."""
    for process in list(_loading):
        process.kill()
    with _shared_lock:
        while _shared:
            _shared.popitem()[1].close()


def _after_fork() -> None:
    """In a forked child of the trainer: release the parent's zygotes, so that they notice when the parent ends."""
    global _shared_lock
    _shared_lock = threading.Lock()
    _starting.update({kind: threading.Lock() for kind in _starting})
    _loading.clear()
    _preloading.clear()
    for running in _shared.values():
        running.release()
    _shared.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
