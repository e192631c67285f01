"""Properties that are computed when they are first read, without a lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class LazyProperty(Generic[T]):
    """A property that is computed once for each object. Threads that first read it at once may each compute it.

    `functools.cached_property` of Python 3.11 has one lock for all objects: a process that is forked while a thread
    computes the property of any of them would wait for that lock for ever.

    Args:
        compute: The method.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute, self._name = compute, compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, obj: None, kind: type[Any]) -> LazyProperty[T]: ...
    @overload
    def __get__(self, obj: object, kind: type[Any]) -> T: ...
    def __get__(self, obj: object | None, kind: type[Any]) -> LazyProperty[T] | T:
        if obj is None:
            return self
        value = obj.__dict__[self._name] = self._compute(obj)
        return value
