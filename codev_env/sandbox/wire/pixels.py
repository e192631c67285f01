"""Pixels in shared memory, laid out as Pillow has them: read without a copy, written with one.

Pillow 11.2 and newer exports its memory, and reads foreign memory in place, through the Arrow C data interface:
https://arrow.apache.org/docs/format/CDataInterface.html. Older versions pack and unpack.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image

RAW = {"RGB": "RGBX", "L": "L", "RGBA": "RGBA"}
"""By mode of an image: the layout of its pixels in shared memory, as Pillow names it, one letter for each byte."""

AVAILABLE = hasattr(Image, "fromarrow")
"""Whether this Pillow supports the Arrow interface."""


class _Schema(ctypes.Structure):
    pass


class _Array(ctypes.Structure):
    pass


_release_schema = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Schema))
_release_array = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Array))

_Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_char_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.c_void_p),
    ("dictionary", ctypes.c_void_p),
    ("release", _release_schema),
    ("private_data", ctypes.c_void_p),
]
_Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.c_void_p),
    ("dictionary", ctypes.c_void_p),
    ("release", _release_array),
    ("private_data", ctypes.c_void_p),
]

_STRIP = 1 << 20
"""Bytes copied at once from an image whose memory is in several blocks."""

_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype = ctypes.py_object
_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_compare = ctypes.CDLL(None).memcmp
_compare.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
_madvise: Any = getattr(ctypes.CDLL(None), "madvise", None)
if _madvise is not None:
    _madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_PAGE = mmap.PAGESIZE
_MADV_POPULATE_WRITE = 23  # of linux/mman.h
_POPULATE_FROM = 256 << 10
"""Bytes of the smallest block whose pages are requested at once."""


@_release_schema
def _schema_released(schema: Any) -> None:
    schema.contents.release = _release_schema()


@_release_array
def _array_released(array: Any) -> None:
    array.contents.release = _release_array()


class _Bytes:
    """Exports unsigned bytes through the Arrow protocol; keeps the structures that describe them alive."""

    def __init__(self, address: int, count: int) -> None:
        self.schema = _Schema(format=b"C", name=b"", flags=0, n_children=0, release=_schema_released)
        self.buffers = (ctypes.c_void_p * 2)(None, address)
        self.array = _Array(length=count, n_buffers=2, buffers=self.buffers, release=_array_released)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]:
        schema = _capsule(ctypes.addressof(self.schema), b"arrow_schema", None)
        return schema, _capsule(ctypes.addressof(self.array), b"arrow_array", None)


def image_over(memory: memoryview, mode: str, size: tuple[int, int]) -> Image.Image:
    """Make a read-only image whose pixels are in a buffer: Pillow copies them before a program writes.

    The memory must outlive the image: a worker never unmaps it.

    Args:
        memory: The pixels, laid out as in `RAW`; may be read-only.
        mode: The image's mode.
        size: Width and height in pixels.
    """
    if not AVAILABLE:
        return image_from(memory, mode, size)
    exported = _Bytes(address_of(memory), len(memory))
    _kept.append(exported)
    return Image.fromarrow(exported, mode, size)


def image_from(memory: Any, mode: str, size: tuple[int, int]) -> Image.Image:
    """Make an image with a copy of the pixels in a buffer; see `image_over`."""
    return Image.frombytes(mode, size, memory, "raw", RAW[mode])


def read(fd: int, start: int, mode: str, size: tuple[int, int]) -> Image.Image:
    """Make an image with a copy of the pixels in a file, read straight into its memory.

    Args:
        fd: Descriptor of a file that holds pixels, laid out as in `RAW`.
        start: Offset of the first byte.
        mode: The image's mode.
        size: Width and height in pixels.

    Raises:
        EOFError: The file ends within the image.
    """
    count = stored_bytes(mode, *size)
    image = Image.new(mode, size, None)
    try:
        exported = image.__arrow_c_array__() if AVAILABLE else None
    except ValueError:  # in several blocks
        exported = None
    # The image is new, so writing to the exported memory changes no other image.
    if exported is None:
        memory: Any = bytearray(count)
    else:
        memory = (ctypes.c_char * count).from_address(_address(exported))
        _populate(_address(exported), count)
    if os.preadv(fd, [memory], start) != count:
        raise EOFError("the file ends within an image")
    return image_from(memory, mode, size) if exported is None else image


def _populate(address: int, count: int) -> None:
    """Have the kernel provide all pages of a large block at once, which is faster than one by one on first use."""
    start, end = -(-address // _PAGE) * _PAGE, (address + count) // _PAGE * _PAGE
    if sys.platform == "linux" and end - start >= _POPULATE_FROM:
        _madvise(start, end - start, _MADV_POPULATE_WRITE)  # older kernels refuse, and provide pages on first use


def stored_bytes(mode: str, width: int, height: int) -> int:
    """Bytes of an image in shared memory."""
    return width * height * len(RAW[mode])


def address_of(memory: Any) -> int:
    """The address of a buffer, which must stay alive and must not move."""
    return np.frombuffer(memory, np.uint8).__array_interface__["data"][0]


def write(image: Image.Image, memory: Any, start: int) -> None:
    """Copy the pixels of an image, of a mode in `RAW`, to a writable buffer from byte `start` on."""
    size = stored_bytes(image.mode, *image.size)
    if not AVAILABLE:
        memory[start : start + size] = image.tobytes("raw", RAW[image.mode])
        return
    at = address_of(memory) + start
    if start < 0 or start + size > len(memory):
        raise ValueError("the image does not fit into the buffer")
    _populate(at, size)
    for pixels, offset, count in _pieces(image):
        ctypes.memmove(at + offset, pixels, count)


def equal(image: Image.Image, memory: Any, start: int) -> bool:
    """Return whether a buffer holds, from byte `start` on, the bytes that `write` would write."""
    size = stored_bytes(image.mode, *image.size)
    if not AVAILABLE:
        return memory[start : start + size] == image.tobytes("raw", RAW[image.mode])
    at = address_of(memory) + start
    return start + size <= len(memory) and all(
        _compare(at + offset, pixels, count) == 0 for pixels, offset, count in _pieces(image)
    )


def _pieces(image: Image.Image) -> Iterator[tuple[int, int, int]]:
    """Address, offset and length of the parts of an image's pixels; each is valid until the next one is requested."""
    try:
        exported = image.__arrow_c_array__()
        yield _address(exported), 0, stored_bytes(image.mode, *image.size)
        return
    except ValueError:  # the image is in several blocks
        pass
    width, height = image.size
    line = stored_bytes(image.mode, width, 1)
    rows = min(height, max(1, _STRIP // line))
    strip = Image.new(image.mode, (width, rows))
    exported = strip.__arrow_c_array__()
    for top in range(0, height, rows):
        strip.paste(image, (0, -top))
        yield _address(exported), top * line, min(rows, height - top) * line


def _address(exported: tuple[Any, Any]) -> int:
    array = ctypes.cast(_pointer(exported[1], b"arrow_array"), ctypes.POINTER(_Array)).contents
    if array.n_children:  # a list of four bytes for each pixel: the bytes are its child
        children = ctypes.cast(array.children, ctypes.POINTER(ctypes.POINTER(_Array)))
        array = children[0].contents
    return array.buffers[1]


_kept: list[_Bytes] = []
"""The structures that images point to. Never freed: a worker has few input images."""
