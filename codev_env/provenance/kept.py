"""Keeps what was made for images of a size: episodes over images of one size share it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import wraps
from typing import ParamSpec, TypeVar

from codev_env.locks import ForkLock

MOST_BYTES = 128 << 20
"""Bytes of pixels that each function's results may take together; the last result is kept in any case."""
_BYTES = 4

P = ParamSpec("P")
T = TypeVar("T")


def kept(pixels: Callable[P, int]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Cache a function's results, least recently used first out. Thread-safe.

    Args:
        pixels: Given the arguments, how many pixels the result has.
    """

    def decorate(make: Callable[P, T]) -> Callable[P, T]:
        results: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        lock = ForkLock()

        @wraps(make)
        def cached(*args: P.args, **kwargs: P.kwargs) -> T:
            key = (args, tuple(sorted(kwargs.items())))
            with lock:
                if key not in results:
                    results[key] = make(*args, **kwargs), _BYTES * pixels(*args, **kwargs)
                results.move_to_end(key)
                while len(results) > 1 and sum(size for _, size in results.values()) > MOST_BYTES:
                    results.popitem(last=False)
                return results[key][0]

        return cached

    return decorate
