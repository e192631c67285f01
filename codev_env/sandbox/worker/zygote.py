"""The process that workers are forked from. It has loaded everything that programs need, and nothing else.

It is started by `exec` with a clean environment, so that neither the trainer's memory (data, answers, rewards)
nor its descriptors are in it. It ends when its parent does.
"""

from __future__ import annotations

import ctypes
import gc
import os
import select
import signal
import socket
import sys
import tempfile
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from codev_env.sandbox.wire import frames
from codev_env.sandbox.worker import arrays, kernel, worker

_SOCKET = 3
_TICK_S = 1.0


class ZygoteLoop:
    """Forks, kills and reaps workers for one parent."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.parent = os.getppid()
        self.pids: dict[int, int] = {}
        self.ended: dict[int, int] = {}
        self.wake, self._wake_in = os.pipe()
        os.set_blocking(self._wake_in, False)
        signal.set_wakeup_fd(self._wake_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            signal.signal(getattr(signal, name), signal.SIG_DFL if name == "SIGTERM" else signal.SIG_IGN)

    def serve(self) -> None:
        """Answer requests until the parent has ended."""
        poll = select.poll()  # not `select`: the socket keeps the number of the host, which may be above 1023
        for fd in (self.sock.fileno(), self.wake):
            poll.register(fd, select.POLLIN)
        while os.getppid() == self.parent:
            ready = {fd for fd, _ in poll.poll(1000 * _TICK_S)}
            if self.wake in ready:
                os.read(self.wake, 4096)
            self._reap()
            if self.sock.fileno() in ready:
                try:
                    request, fds = frames.receive_with_fds(self.sock, 1)
                except (frames.FrameClosed, frames.FrameError, OSError):
                    break
                self._answer(request, fds)
        for pid in self.pids.values():
            os.kill(pid, signal.SIGKILL)

    def _answer(self, request: dict[str, Any], fds: list[int]) -> None:
        """Serve the request of one session. A failure concerns that session only; other workers keep running."""
        operation, token = request["op"], request["token"]
        try:
            if operation == "fork":
                self._fork(token, fds)
            elif operation == "kill" and token in self.pids:
                # Not reaped yet, so the process id still belongs to this worker.
                os.kill(self.pids[token], signal.SIGKILL)
            elif operation == "end":
                _reply(fds, {"end": self._end(token)})
            elif operation == "pid":
                _reply(fds, {"pid": self.pids.get(token)})
        except (frames.FrameClosed, OSError) as error:
            print(f"{operation} {token}: {error}", file=sys.stderr, flush=True)
        finally:
            for fd in fds:
                os.close(fd)

    def _fork(self, token: int, fds: list[int]) -> None:
        zygote_pid = os.getpid()  # A worker that asks for its parent may already be an orphan, and not notice.
        try:
            pid = _fork()
        except OSError as error:
            _reply(fds, {"failed": f"no process could be forked: {error}"})
            return
        if pid:
            self.pids[token] = pid
            return
        code = 1
        try:
            _become_worker(fds[0], zygote_pid)
            code = 0
        finally:
            os._exit(code)

    def _end(self, token: int) -> int | None:
        """Kill a worker, wait for it, and return how it ended: its exit code, or minus the signal."""
        pid = self.pids.pop(token, None)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            self.ended[token] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return self.ended.get(token)

    def _reap(self) -> None:
        while self.pids:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            token = next(token for token, known in self.pids.items() if known == pid)
            del self.pids[token]
            self.ended[token] = os.waitstatus_to_exitcode(status)
            while len(self.ended) > 1000:
                del self.ended[next(iter(self.ended))]


def _quick_fork() -> Callable[[], int]:
    """`fork` of the C library, without Python's handlers in the child, which write to some 200 shared pages.

    They renew locks and random streams: a zygote has one thread, and each run starts streams of its own.
    """
    if not isinstance(os.fork, types.BuiltinFunctionType):
        return os.fork  # it was replaced
    libc = ctypes.PyDLL(None, use_errno=True)

    def fork() -> int:
        pid = libc.fork()
        if pid < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return pid

    return fork


_fork = _quick_fork()


def _reply(fds: list[int], message: dict[str, Any]) -> None:
    with socket.socket(fileno=os.dup(fds[0])) as sock:
        frames.send(sock, message)


def _become_worker(fd: int, zygote_pid: int) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(1, 2)  # stdout is /dev/null; stderr is that of the zygote, which the host reads
    os.dup2(fd, _SOCKET)
    kernel.close_fds_from(_SOCKET + 1)
    sock = socket.socket(fileno=_SOCKET)
    try:
        worker.serve(sock, zygote_pid)
    except Exception as error:
        frames.send(sock, {"failed": f"{type(error).__name__}: {error}"})
        raise


@contextmanager
def _cache_folder(kind: str) -> Iterator[None]:
    """A temporary Matplotlib cache, if the user has none; deleted before the first worker starts."""
    if kind in ("plain", "vision") or "MPLCONFIGDIR" in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="codev-sandbox-") as folder:
        os.environ["MPLCONFIGDIR"] = folder
        yield


def _prepare(kind: str, niceness: int) -> dict[str, str]:
    """Load everything, in a thread that is nicer: workers inherit the priority of the main thread."""
    if niceness == 0 or sys.platform != "linux":
        return worker.prepare(kind)

    found: list[dict[str, str]] = []

    def load() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.getpriority(os.PRIO_PROCESS, 0) + niceness)
        found.append(worker.prepare(kind))

    thread = threading.Thread(target=load)
    thread.start()
    thread.join()
    if not found:
        sys.exit(1)  # the thread has said why
    return found[0]


def main(fd: int, kind: str, niceness: int) -> None:
    """Load everything, report that, and serve.

    Args:
        fd: The socket to the host.
        kind: The libraries, see `host.process.Kind`.
        niceness: Added to that of this process while it loads.
    """
    sock = socket.socket(fileno=fd)
    kernel.leave_network()
    with _cache_folder(kind):
        left_out = _prepare(kind, niceness)
    arrays.clear_new_arrays()
    zygote = ZygoteLoop(sock)
    modules = sorted({name.partition(".")[0] for name in sys.modules})
    frames.send(sock, {"ready": True, "modules": modules, "left_out": left_out})
    gc.collect()
    gc.freeze()
    zygote.serve()
