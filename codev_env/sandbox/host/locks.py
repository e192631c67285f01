"""A lock that finalizers can use, which may run at any moment."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable


class FinalizerLock:
    """A lock for which finalizers do not wait. Other code uses it as a context manager.

    Python's garbage collector may run in any statement, also while this thread holds the lock, and may finalize
    sessions that were never closed. A finalizer that waited for the lock would wait forever.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._deferred: deque[Callable[[], object]] = deque()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_exc: object) -> None:
        self._lock.release()
        self._run_deferred()

    def run_or_defer(self, work: Callable[[], object]) -> None:
        """Run a function under the lock: at once if the lock is free, else when its holder releases it.

        Args:
            work: Must not raise, nor take the lock.
        """
        self._deferred.append(work)
        self._run_deferred()

    def _run_deferred(self) -> None:
        # If the lock is taken, its holder runs the deferred functions after it has released it.
        while self._deferred and self._lock.acquire(blocking=False):
            try:
                while self._deferred:
                    self._deferred.popleft()()
            finally:
                self._lock.release()
