"""Locks of a process, which its forked children do not wait for."""

from __future__ import annotations

import os
import threading
from types import TracebackType
from weakref import WeakSet


class ForkLock:
    """A lock that is free in a forked child: the thread that held it in the parent does not exist there.

    It is used as a context manager. In the child, its data may be half changed by a thread that held it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _locks.add(self)

    def acquire(self, timeout: float = -1) -> bool:
        """Wait up to `timeout` seconds, by default without end; returns whether the lock is held now."""
        return self._lock.acquire(timeout=timeout)

    def release(self) -> None:
        """Free it. In a child that was forked while it was held, there is nothing to do."""
        if self._lock.locked():
            self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


_locks: WeakSet[ForkLock] = WeakSet()


def _renew() -> None:
    for lock in _locks:
        lock._lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
