"""A lock for what a session's end has to touch, which may come at any moment."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable


class FinalizerLock:
    """A lock that finalizers need not wait for. A context manager for all others.

    Python's garbage collector may run in any statement, also while this thread holds the lock, and may end sessions
    that nobody closed. A lock that it waited for would never be released.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: deque[Callable[[], object]] = deque()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_exc: object) -> None:
        self._lock.release()
        self._do_what_is_left()

    def leave(self, work: Callable[[], object]) -> None:
        """Have something done under the lock: before this returns where it is free, else by who holds it.

        Args:
            work: Must not raise, nor take the lock.
        """
        self._left.append(work)
        self._do_what_is_left()

    def _do_what_is_left(self) -> None:
        # Who finds the lock taken can go: its holder looks again after it has let go.
        while self._left and self._lock.acquire(blocking=False):
            try:
                while self._left:
                    self._left.popleft()()
            finally:
                self._lock.release()
