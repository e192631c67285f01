"""Keeps arrays of objects from showing their memory: the bytes of such an array are addresses, and may be written.

Everything in C that takes bytes (`bytes`, `struct`, `base64`, `BytesIO.readinto`, `b"".join`, ...) requests them by
the buffer protocol, so that is refused at its source: the slot of the array types. Compiled libraries that handle the
objects themselves (Cython's typed views) ask for the format and for plain strides, and still get them. Newer ones ask
as `bytes` does, but keep what they get in an object of their own, and not on the stack.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

_SLOT = 160 - 16 + object.__basicsize__
"""Offset of `tp_as_buffer` in a type: https://docs.python.org/3/c-api/typeobj.html."""

_FORMAT, _INDIRECT = 0x4, 0x100  # `PyBUF_FORMAT`, and what `PyBUF_FULL_RO` has besides: of CPython's object.h

_get = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_int)
_kept: list[Any] = []
_trusted: list[str] = []
_stack = range(0)
_MOST_STACK = 1 << 30


def tighten() -> None:
    """Patch, in this process, the array types and all classes derived from them so far."""
    done: set[int] = set()
    for kind in _family(np.ndarray, np.void):
        slots = ctypes.c_void_p.from_address(id(kind) + _SLOT).value
        if slots and slots not in done:
            done.add(slots)
            _guard(slots)


def _family(*kinds: type) -> Iterator[type]:
    for kind in kinds:
        yield kind
        yield from _family(*kind.__subclasses__())


def _guard(slots: int) -> None:
    place = ctypes.c_void_p.from_address(slots)
    if not place.value:
        return
    real = _get(place.value)

    def get(obj: Any, view: int, flags: int) -> int:
        if obj.dtype.hasobject and (not flags & _FORMAT or (flags & _INDIRECT and not _is_typed_view(view))):
            ctypes.c_void_p.from_address(view + 8).value = None  # `Py_buffer.obj`: nothing to release
            return -1
        return real(obj, view, flags)

    guarded = _get(get)
    _kept.append((real, guarded))
    place.value = ctypes.cast(guarded, ctypes.c_void_p).value


def trust(*folders: str) -> None:
    """Let the compiled code of some packages take typed views of arrays of objects.

    Raises:
        OSError: It is not known here where the stack is.
    """
    global _stack
    if not _stack:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            top = next(int(line.split("-")[1].split()[0], 16) for line in maps if line.rstrip().endswith("[stack]"))
        _stack = range(top - _MOST_STACK, top)
    _trusted.extend(folders)


def _is_typed_view(view: int) -> bool:
    """Return whether a package that is trusted, called by Python code of its own, keeps the buffer in an object."""
    return view not in _stack and sys._getframe(2).f_code.co_filename.startswith(tuple(_trusted))
