"""Bounded caches that all task sets of a process share: decoded tasks, and rows that are costly to unpack."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

from codev_env.types import Task

V = TypeVar("V")

MAX_PIXELS = 24_000_000
"""Pixels of all cached images together: about 100 MB, or 50 toy scenes, or three 4K images."""


class SizedCache(Generic[V]):
    """Keeps the values used last up to a total size; concurrent threads make each value only once.

    Attributes:
        max_size: Largest total size. The value used last stays, whatever its size.
    """

    def __init__(self, max_size: int, size_of: Callable[[V], int]) -> None:
        """Make an empty cache.

        Args:
            max_size: Largest total size, in the unit of `size_of`.
            size_of: Returns the size of a value.
        """
        self.max_size = max_size
        self._size_of = size_of
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, Future[V]] = OrderedDict()
        self._size = 0

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """Return the value of a key; the first thread that asks makes it, others wait.

        Errors of `make` reach all threads that wait and are not cached.
        """
        with self._lock:
            entry = self._entries.get(key)
            mine = entry is None
            if entry is None:
                entry = self._entries[key] = Future()
            self._entries.move_to_end(key)
        if mine:
            self._make(key, entry, make)
        return entry.result()

    def _make(self, key: Hashable, entry: Future[V], make: Callable[[], V]) -> None:
        try:
            value = make()
        except BaseException as error:
            with self._lock:
                self._entries.pop(key, None)
            entry.set_exception(error)
            raise
        entry.set_result(value)
        with self._lock:
            self._size += self._size_of(value)
            self._shrink()

    def _shrink(self) -> None:
        """Drop the values used longest ago, except the last one and those that are still being made."""
        for key in list(self._entries)[:-1]:
            if self._size <= self.max_size:
                return
            if self._entries[key].done():
                self._size -= self._size_of(self._entries.pop(key).result())


def cleared_after_fork(cache: SizedCache[V]) -> SizedCache[V]:
    """Empty a cache in forked processes, where its lock may be held by a thread that does not exist there."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=cache.clear)
    return cache


def pixels_of(task: Task) -> int:
    """Return the pixels of all images of a task; frames of a video, which may not be decoded yet, are all as large."""
    if task.times:
        return len(task.images) * task.image.width * task.image.height
    return sum(image.width * image.height for image in task.images)


TASKS = cleared_after_fork(SizedCache(MAX_PIXELS, pixels_of))
"""The decoded tasks of this process."""
