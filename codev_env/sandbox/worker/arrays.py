"""Has NumPy clear the memory of new arrays, which may hold what an earlier run left.

`np.empty` is not the only way to it: the gaps between the fields of a structured array, and between the bytes of a
`np.longdouble`, are never written. NumPy lets its memory come from elsewhere:
https://numpy.org/doc/stable/reference/c-api/data_memory.html.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np  # noqa: F401 - loads one of the modules

_MODULES = ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath")
_SET_HANDLER = 304
"""Index of `PyDataMem_SetHandler` in NumPy's table of functions, which only grows."""
_RAW = 0  # `PYMEM_DOMAIN_RAW`


class _Allocator(ctypes.Structure):
    """`PyDataMemAllocator`; that of Python (`PyMemAllocatorEx`) is laid out alike."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("context", "malloc", "calloc", "realloc", "free")]


class _Handler(ctypes.Structure):
    """`PyDataMem_Handler`."""

    _fields_ = [("name", ctypes.c_char * 127), ("version", ctypes.c_uint8), ("allocator", _Allocator)]


_kept: list[Any] = []


def clear_new_arrays() -> bool:
    """Let the arrays that this thread, and its forked children, make from now on be zero where they are not written.

    Python's own allocator ignores the context that is passed first, and gets its memory from the C library, whose
    `calloc(1, size)` takes the place of `malloc(context, size)`.

    Returns:
        Whether that is so: not in a debug build of Python, whose allocator has a context.
    """
    python, libc = _Allocator(), ctypes.CDLL(None)
    ctypes.pythonapi.PyMem_GetAllocator(_RAW, ctypes.byref(python))
    if python.context or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return False
    calloc = ctypes.cast(libc.calloc, ctypes.c_void_p).value
    handler = _Handler(b"zeros", 1, _Allocator(1, calloc, python.calloc, python.realloc, python.free))
    pointer, capsule = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_New
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    module: Any = next(sys.modules[name] for name in _MODULES if name in sys.modules)
    table = ctypes.cast(pointer(module._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
    set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[_SET_HANDLER])
    _kept.extend((handler, set_handler(capsule(ctypes.addressof(handler), b"mem_handler", None))))
    return True
