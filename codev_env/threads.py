"""Work in threads that end with the process, and that end early where nobody wants the result."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import ContextVar
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
GIVEN_UP_S = 0.5  # longest wait of a thread whose result nobody wants, in seconds
_given_up: ContextVar[threading.Event | None] = ContextVar("codev_given_up", default=None)


def in_own_thread(name: str, function: Callable[..., T], *arguments: Any) -> tuple[Future[T], threading.Thread]:
    """Run a function that may take very long in a thread that does not keep the process from ending."""
    job: Future[T] = Future()
    job.set_running_or_notify_cancel()

    def run() -> None:
        try:
            job.set_result(function(*arguments))
        except BaseException as error:
            job.set_exception(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return job, thread


class DaemonThreads:
    """A few threads that run functions in the order in which they come and do not keep the process from ending.

    Args:
        count: How many.
        name: Name of the threads.
    """

    def __init__(self, count: int, name: str) -> None:
        self._count, self._name, self._started = count, name, 0
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Run a function as soon as a thread is free."""
        job: Future[T] = Future()

        def run() -> None:
            if not job.set_running_or_notify_cancel():
                return
            try:
                job.set_result(function(*arguments))
            except BaseException as error:
                job.set_exception(error)

        self._jobs.put(run)
        with self._lock:
            if self._started < self._count:
                self._started += 1
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return job

    def close(self) -> None:
        """End each thread after the functions that came before; waits for none."""
        for _ in range(self._started):
            self._jobs.put(None)

    def _work(self) -> None:
        while run := self._jobs.get():
            run()
            del run


def until_given_up(given_up: threading.Event, function: Callable[..., T], *arguments: Any) -> T:
    """Run a function for someone who may set `given_up`: from then on it begins no turn and waits for no program."""
    before = _given_up.set(given_up)
    try:
        return function(*arguments)
    finally:
        _given_up.reset(before)


def is_given_up() -> bool:
    """Return whether nobody wants the result of what this thread does."""
    given_up = _given_up.get()
    return given_up is not None and given_up.is_set()


def is_wanted(job: Future[Any]) -> bool:
    """Wait for the end of a job; false as soon as nobody wants the result of what this thread does."""
    while not is_given_up():
        if wait([job], GIVEN_UP_S).done:
            return True
    return False
