"""The trainer's side of one worker: its socket, its requests, and how it ended."""

from __future__ import annotations

import math
import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from codev_env.errors import SandboxError
from codev_env.sandbox.host import memory, process
from codev_env.sandbox.wire import frames
from codev_env.sandbox.wire.messages import RunRequest, Setup

PATIENCE = 3.0
"""Times its limit that an answer may take where the machine is busy."""
_FAIR = 0.5
"""Share of a time limit that a worker gets of a processor, unless the machine is busy."""
_LOOK_S = 0.5
"""Longest wait for an answer that nobody wants any more, in seconds."""
_is_given_up: Callable[[], bool] = bool  # `bool()` is false: all are wanted


def give_up_where(is_given_up: Callable[[], bool]) -> None:
    """Let threads wait for no worker where a function, called in them, says that nobody wants what they do."""
    global _is_given_up
    _is_given_up = is_given_up


class WorkerLost(Exception):
    """The worker died or never started, and no program is the cause."""


class WorkerHandle:
    """A worker and our end of its socket; `views` are those whose files it has.

    Args:
        kind: The kind of zygote to fork it from.
        setup: The settings of the session, as `worker.serve` reads them.
        inputs: Descriptor of the shared memory with the input images.
        arena: Descriptor of the shared memory for saved and shown images.
        check_layers: Given the layers that the worker could apply; raises `SandboxError` where they are too few.

    Raises:
        SandboxError: The system refuses a process or a descriptor.
    """

    def __init__(
        self,
        kind: process.Kind,
        setup: Setup,
        inputs: int,
        arena: int,
        check_layers: Callable[[Any], None],
    ) -> None:
        self._check_layers = check_layers
        readable = memory.read_only(inputs)
        try:
            self._zygote = process.zygote(kind)
            try:
                link = self._zygote.worker(setup, readable, arena)
            except process.ZygoteGone:  # between the two calls, or not noticed before
                self._zygote = process.zygote(kind)
                link = self._zygote.worker(setup, readable, arena)
        finally:
            os.close(readable)
        self._token, self._sock = link.token, link.sock
        self._ready = False
        self._asked = False
        self._number = 0
        self.has_run = False
        self.views: set[str] = set()

    def wait_ready(self) -> None:
        """Wait until the worker is locked down; raises `WorkerLost`, or `SandboxError` if required layers are off."""
        if self._ready:
            return
        try:
            hello = frames.receive(self._sock, deadline=time.monotonic() + process.START_S)
        except (frames.FrameClosed, frames.FrameTimeout, frames.FrameError) as error:
            raise WorkerLost(f"a sandbox worker did not start (exit code {self._exit_code()})") from error
        if "failed" in hello:
            raise WorkerLost(f"a sandbox worker did not start: {hello['failed']}")
        self._check_layers(hello.get("layers"))
        self._pid = int(hello["pid"])
        self._ready = True

    def ask(self, request: RunRequest, limit_s: float, shared: int | None, patient: bool) -> dict[str, Any]:
        """Send a request and wait for the answer.

        Args:
            request: The request.
            limit_s: Seconds that it may take; `PATIENCE` times as many if the worker gets little processor time.
            shared: Descriptor of the shared memory with the input images of the request's new view.
            patient: It may take so long in any case.

        Raises:
            SandboxError: Nobody wants the result of what this thread does any more.
        """
        self._asked = False
        self._number += 1
        self._limit_s, self._used_s = limit_s, self._cpu_s()
        started = time.monotonic()
        self._sock.settimeout(limit_s)
        readable = [] if shared is None else [memory.read_only(shared)]
        try:
            frames.send(self._sock, {**request, "number": self._number}, readable)
        finally:
            for fd in readable:
                os.close(fd)
        self._asked = True
        deadline = started + limit_s * (PATIENCE if patient else 1)
        if not self._answers_by(deadline) and not patient and self.was_starved():
            deadline = started + limit_s * PATIENCE
            self._answers_by(deadline)
        message = frames.receive(self._sock, deadline=deadline)
        if message.get("number") != self._number:
            raise frames.FrameError("an answer to another request")
        self.has_run = True
        return message

    def _answers_by(self, deadline: float) -> bool:
        """Wait for an answer, or the end of the worker; returns whether either came by a time."""
        while True:
            if _is_given_up():
                raise SandboxError("nobody waits for this program any more.")
            left = deadline - time.monotonic()
            self._sock.settimeout(max(0.001, min(left, _LOOK_S)))  # an answer that is there counts
            try:
                self._sock.recv(1, socket.MSG_PEEK)
            except TimeoutError:
                if left > 0:
                    continue
                return False
            except OSError:
                pass  # the worker has died
            return True

    def was_starved(self) -> bool:
        """Whether the worker got less than half of the time limit as processor time: nothing lets a program wait."""
        return self._cpu_s() - self._used_s < _FAIR * self._limit_s

    def _cpu_s(self) -> float:
        """Seconds of processor time that the worker has used; not a number where the system does not say."""
        try:
            return time.clock_gettime(~self._pid << 3 | 2)  # as `clock_getcpuclockid` makes it
        except (AttributeError, OSError):
            return math.nan

    def death(self) -> int:
        """How the program ended the worker: the exit code, or minus the signal.

        Raises:
            WorkerLost: The program did not end it: the zygote died, or the worker was killed before it got the program.
        """
        code = self._exit_code()
        if code is None:
            raise WorkerLost("the sandbox process died, and all workers with it")
        if code == -signal.SIGKILL and not self._asked:
            raise WorkerLost("a sandbox worker was killed while it waited for a program")
        return code

    def pid(self) -> int | None:
        """The process id of the worker; `None` if unknown."""
        return self._zygote.pid(self._token)

    def _exit_code(self) -> int | None:
        return self._zygote.exit_code(self._token)

    def kill(self) -> None:
        """Kill the worker."""
        self._zygote.kill(self._token)
        self._sock.close()


def cause_of(code: int) -> tuple[str, str]:
    """The meaning of an exit code: `Execution.stop`, and a message for the author of the program."""
    if code == -signal.SIGXCPU:
        return "timeout", "the program used too much processor time and was ended"
    if code == -signal.SIGKILL:
        return "memory", "the program was ended by the system, probably for its use of memory"
    return "error", "the program crashed the interpreter: too deep a recursion, or too large an operation"
