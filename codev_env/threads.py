"""Work in threads: one that may take very long ends with the process, and one whose result nobody wants waits less."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")
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


def until_given_up(given_up: threading.Event, function: Callable[..., T], *arguments: Any) -> T:
    """Run a function for someone who may set `given_up`: from then on it waits for no node of a farm."""
    before = _given_up.set(given_up)
    try:
        return function(*arguments)
    finally:
        _given_up.reset(before)


def is_given_up() -> bool:
    """Return whether nobody wants the result of what this thread does."""
    given_up = _given_up.get()
    return given_up is not None and given_up.is_set()
