"""The trainer's side of one worker: its socket, its requests, and how it ended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

from codev_env.sandbox.host import memory, process
from codev_env.sandbox.wire import frames
from codev_env.sandbox.wire.messages import RunRequest, Setup


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
        self._ready = True

    def ask(self, request: RunRequest, deadline: float, shared: int | None = None) -> dict[str, Any]:
        """Send a request and wait for the answer.

        Args:
            request: The request.
            deadline: A value of `time.monotonic()`.
            shared: Descriptor of the shared memory with the input images of the request's new view.
        """
        self._asked = False
        self._number += 1
        self._sock.settimeout(max(0.001, deadline - time.monotonic()))
        readable = [] if shared is None else [memory.read_only(shared)]
        try:
            frames.send(self._sock, {**request, "number": self._number}, readable)
        finally:
            for fd in readable:
                os.close(fd)
        self._asked = True
        message = frames.receive(self._sock, deadline=deadline)
        if message.get("number") != self._number:
            raise frames.FrameError("an answer to another request")
        self.has_run = True
        return message

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
