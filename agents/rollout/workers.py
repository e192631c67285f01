"""Threads for the computing and waiting of episodes, awaited from coroutines."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Hashable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
_MOST = 10_000  # threads; each is started when it is needed


class StepTimeout(Exception):
    """A call took longer than its limit.

    Attributes:
        job: The call that is still running in the environment, if any.
    """

    def __init__(self, job: Future[Any] | None = None) -> None:
        super().__init__()
        self.job = job


class Workers:
    """Runs functions in threads.

    Args:
        count: Most functions that compute at the same time.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._threads = ThreadPoolExecutor(_MOST, "codev-rollout")
        self._slots = asyncio.Semaphore(count)

    def open(self) -> None:
        """Get ready for another event loop."""
        self._slots = asyncio.Semaphore(self.count)

    async def compute(self, function: Callable[..., T], *arguments: Any, limit: float = 0.0) -> T:
        """Run a function that computes; at most `count` of them run side by side.

        Args:
            function: The function to run.
            *arguments: Its arguments.
            limit: Longest time that it may run, in seconds; 0 is no limit.

        Raises:
            StepTimeout: It takes longer. Its thread keeps running but frees its slot.
        """
        async with self._slots:
            return await self.wait(function, *arguments, limit=limit)

    async def wait(self, function: Callable[..., T], *arguments: Any, limit: float = 0.0) -> T:
        """Run a function that mostly waits: as `compute`, but any number of them."""
        job = self._threads.submit(function, *arguments)
        result = asyncio.wrap_future(job)
        try:
            done, _ = await asyncio.wait([result], timeout=limit or None)
        except asyncio.CancelledError:
            # Its environment is about to be closed: wait for it, however often this is cancelled.
            while not result.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([result])
            result.exception()  # marks it as retrieved
            raise
        if not done:
            result.cancel()
            raise StepTimeout(job)
        return result.result()

    def close(self) -> None:
        """End the threads when their work is done."""
        self._threads.shutdown()


class Memo:
    """Values that are computed once each, by the thread that asks first; the others wait for it.

    Args:
        most: Values that are kept, the newest ones; 0 keeps all.
    """

    def __init__(self, most: int = 0) -> None:
        self._lock, self._most = threading.Lock(), most
        self._values: dict[Hashable, Future[Any]] = {}

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of a key."""
        with self._lock:
            value, first = self._values.get(key), False
            if value is None:
                value, first = self._values.setdefault(key, Future()), True
                if self._most and len(self._values) > self._most:
                    del self._values[next(iter(self._values))]
        if first:
            try:
                value.set_result(make())
            except BaseException as error:
                value.set_exception(error)
        return value.result()


async def all_or_none(works: Iterable[Coroutine[Any, Any, Any]]) -> None:
    """Wait for coroutines that run side by side. The first error cancels the others and is raised when all ended."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
