"""Threads for the computing and waiting of episodes, awaited from coroutines, and the event loop that runs these."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Hashable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from codev_env.threads import in_own_thread, until_given_up

T = TypeVar("T")
_MOST = 10_000  # threads; each is started when it is needed
_GRACE_S = 10.0
"""Seconds that late calls have to end when the workers are closed."""


class StepTimeout(Exception):
    """A call took longer than its limit.

    Attributes:
        job: The call that is still running in the environment, if any.
    """

    def __init__(self, job: Future[Any] | None = None) -> None:
        super().__init__()
        self.job = job


class LateCall(asyncio.CancelledError):
    """A call was cancelled and then took longer than its limit: the cancellation counts, but the call is still running.

    Attributes:
        job: That call.
    """

    def __init__(self, job: Future[Any]) -> None:
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
        self._limited: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
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
            LateCall: The same, where it was cancelled before.
        """
        async with self._slots:
            return await self.wait(function, *arguments, limit=limit)

    async def wait(self, function: Callable[..., T], *arguments: Any, limit: float = 0.0) -> T:
        """Run a function that mostly waits: as `compute`, but any number of them."""
        given_up = threading.Event()
        work = until_given_up, given_up, function, *arguments
        job = self._in_own_thread(*work) if limit else self._threads.submit(*work)
        result = asyncio.wrap_future(job)
        until = time.monotonic() + limit if limit else math.inf
        cancelled: asyncio.CancelledError | None = None
        while not result.done() and (left := until - time.monotonic()) > 0:
            try:
                await asyncio.wait([result], timeout=left if limit else None)
            except asyncio.CancelledError as error:
                # Its environment is about to be closed: wait for it, however often this is cancelled.
                given_up.set()
                cancelled = error
        if not result.done():
            result.cancel()
            given_up.set()
            if cancelled:
                # A timeout is an ending that episodes go on after: the cancellation would be lost, and what waits for
                # it would wait for ever.
                raise LateCall(job) from cancelled
            raise StepTimeout(job)
        if cancelled:
            result.exception()  # marks it as retrieved
            raise cancelled
        return result.result()

    def close(self) -> None:
        """End the threads when their work is done; late calls are waited for, but not for ever."""
        self._threads.shutdown()
        until = time.monotonic() + _GRACE_S
        for thread in list(self._limited):
            thread.join(max(0.0, until - time.monotonic()))

    def _in_own_thread(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        job, thread = in_own_thread("codev-rollout-limited", function, *arguments)
        self._limited.add(thread)
        return job


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


class LiveValues:
    """Values that are computed once each as long as somebody has them, as `Memo` does, and then forgotten."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: weakref.WeakValueDictionary[Hashable, Any] = weakref.WeakValueDictionary()
        self._making: dict[Hashable, Future[Any]] = {}

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of a key."""
        with self._lock:
            if (made := self._made.get(key)) is not None:
                return made
            value, first = self._making.get(key), False
            if value is None:
                value, first = self._making.setdefault(key, Future()), True
        if first:
            try:
                value.set_result(made := make())
            except BaseException as error:
                value.set_exception(error)
            with self._lock:
                del self._making[key]
                if made is not None:
                    self._made[key] = made
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


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, in a thread where an event loop is running already, as a notebook's is."""
    if _in_event_loop():
        return _run_beside(work)
    # Not `Runner.run`: it would put off a first Ctrl-C until a batch is sampled.
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        task = loop.create_task(work)
        try:
            return loop.run_until_complete(task)
        except KeyboardInterrupt:
            _give_up(loop, task)
            raise


def _run_beside(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a thread of its own, and give it up after an interrupt of the one that waits for it."""
    begun: Future[Callable[[], object]] = Future()

    async def noted() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        begun.set_result(lambda: loop.call_soon_threadsafe(task.cancel))
        return await work

    with ThreadPoolExecutor(1) as thread:
        job = thread.submit(asyncio.run, noted())
        try:
            return job.result()
        except BaseException:
            with contextlib.suppress(RuntimeError):  # its loop is closed: the error is its own
                begun.result()()
            raise


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _give_up(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
    """Cancel a task after an interrupt and take its outcome, so that asyncio does not print it later."""
    if not task.done():
        task.cancel()
        with contextlib.suppress(BaseException):  # mostly the same interrupt, which the caller raises
            loop.run_until_complete(task)
    if task.done() and not task.cancelled():
        task.exception()
