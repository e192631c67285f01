"""Shared memory for pixels: anonymous files whose descriptors travel over a socket."""

from __future__ import annotations

import itertools
import mmap
import os
import tempfile
import weakref
from collections.abc import Collection, Sequence
from typing import Any

from PIL import Image

from codev_env.errors import SandboxError
from codev_env.sandbox.host import descriptors
from codev_env.sandbox.host.locks import FinalizerLock
from codev_env.sandbox.wire import pixels

_ENCODER_BUFFER = 1 << 16
_PAGE = 4096
_GRAIN = 4 << 20
"""Files for input images are multiples of this size in bytes, so that images of similar sizes can reuse a file."""


def create_shared_file(name: str, size: int) -> int:
    """Make an anonymous shared file of `size` bytes, which take no memory before they are written.

    Returns:
        Its descriptor, close-on-exec.

    Raises:
        SandboxError: The system refuses.
    """
    with descriptors.explained(f"get shared memory of {size} bytes"):
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create(name, os.MFD_CLOEXEC)
        else:
            fd, path = tempfile.mkstemp(prefix=name)
            os.unlink(path)
        try:
            os.ftruncate(fd, size)
        except OSError:
            os.close(fd)
            raise
    return fd


def plain(image: Image.Image) -> Image.Image:
    """Bring an image to a mode that shared memory carries exactly: RGB, L and RGBA as they are, others as RGB(A)."""
    if image.mode in pixels.RAW:
        return image
    return image.convert("RGBA" if image.mode.endswith(("A", "a")) else "RGB")


def room_for(image: Image.Image) -> int:
    """Bytes that an image of a plain mode takes in shared memory, rounded up to a page."""
    return _round(pixels.stored_bytes(image.mode, *image.size))


def write(fd: int, offset: int, image: Image.Image) -> None:
    """Write the pixels of an image of a plain mode to a shared file that is not mapped."""
    image.load()
    os.lseek(fd, offset, os.SEEK_SET)
    # Pillow saves an uncompressed file in this way; `tobytes` would make two more copies of the pixels.
    encoder = Image._getencoder(image.mode, "raw", (pixels.RAW[image.mode], 0, 1))
    encoder.setimage(image.im, (0, 0, *image.size))
    if encoder.encode_to_file(fd, _ENCODER_BUFFER) < 0:
        raise SandboxError("the sandbox could not write an image to shared memory: is memory full?")


def _round(count: int) -> int:
    return -(-count // _PAGE) * _PAGE


class Inputs:
    """Input images in one shared file. A worker maps only the written part, for reading.

    Args:
        capacity: Size in bytes; rounded up.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = -(-capacity // _GRAIN) * _GRAIN
        self.kinds: tuple[Any, ...] = ()
        self.offsets: list[int] = []
        self.size = 0
        self.sample = b""
        self.source: tuple[weakref.ref[Image.Image], ...] = ()
        self.users = 0
        self.fd = create_shared_file("codev-input", self.capacity)
        try:
            with descriptors.explained(f"map shared memory of {self.capacity} bytes"):
                self._memory = mmap.mmap(self.fd, self.capacity)
        except BaseException:
            os.close(self.fd)
            raise

    def write(self, images: Sequence[Image.Image]) -> None:
        """Replace the contents by images of plain modes."""
        self.kinds = _kinds(images)
        bounds = list(itertools.accumulate((room_for(image) for image in images), initial=0))
        self.offsets = bounds[:-1]
        self.size = max(bounds[-1], _PAGE)  # an empty file cannot be mapped
        for image, start, end in zip(images, self.offsets, bounds[1:], strict=True):
            pixels.write(image, self._memory, start)
            written = start + pixels.stored_bytes(image.mode, *image.size)
            self._memory[written:end] = bytes(end - written)  # clear what earlier images left

    def holds(self, images: Sequence[Image.Image]) -> bool:
        """Return whether the file holds exactly these images."""
        return self.kinds == _kinds(images) and all(
            pixels.equal(image, self._memory, start) for image, start in zip(images, self.offsets, strict=True)
        )

    def close(self) -> None:
        """Free the file; its memory lasts until the last worker that maps it ends."""
        self._memory.close()
        os.close(self.fd)


def _kinds(images: Sequence[Image.Image]) -> tuple[tuple[str, tuple[int, int]], ...]:
    return tuple((image.mode, image.size) for image in images)


class InputPool:
    """The input images of a sandbox's sessions.

    Sessions over the same images, such as the rollouts of a group, share one file; a file that no session uses is kept
    for later images, since reusing pages costs a tenth of getting new ones. Workers can only read the files, so
    programs leave nothing in them. Thread-safe.

    Args:
        keep_bytes: Total size of the unused files that are kept.
    """

    def __init__(self, keep_bytes: int = 128 << 20) -> None:
        # Where workers cannot be prevented from writing, no file is shared or reused.
        self._keep = keep_bytes if os.path.isdir("/proc/self/fd") else -1
        self._files: list[Inputs] = []
        self._lock = FinalizerLock()

    def take(self, images: Sequence[Image.Image], frozen: bool = False) -> Inputs:
        """Get a file that holds images of plain modes; pass it to `give_back` afterwards.

        Args:
            images: The images.
            frozen: They never change: the next time, these objects are known again without a look at their pixels.

        Raises:
            SandboxError: The system refuses.
        """
        known = self._made_of(images) if frozen else None
        if known is not None:
            return known
        for image in images:
            image.load()
        sample = _sample(images)
        shared = self._like(images, sample)
        if shared is not None:
            if shared.holds(images):
                shared.source = tuple(map(weakref.ref, images)) if frozen else shared.source
                return shared
            self.give_back(shared)
        size = sum(room_for(image) for image in images)
        inputs = self._unused(size) or Inputs(max(size, _PAGE))
        try:
            inputs.write(images)
        except BaseException:
            inputs.close()
            raise
        inputs.users, inputs.sample = 1, sample
        inputs.source = tuple(map(weakref.ref, images)) if frozen else ()
        if self._keep >= 0:
            with self._lock:
                self._files.append(inputs)
        return inputs

    def _made_of(self, images: Sequence[Image.Image]) -> Inputs | None:
        with self._lock:
            for inputs in self._files:
                if inputs.source and [id(made()) for made in inputs.source] == [id(image) for image in images]:
                    inputs.users += 1
                    return inputs
        return None

    def _like(self, images: Sequence[Image.Image], sample: bytes) -> Inputs | None:
        with self._lock:
            for inputs in self._files:
                if inputs.sample == sample and inputs.kinds == _kinds(images):
                    inputs.users += 1
                    return inputs
        return None

    def _unused(self, size: int) -> Inputs | None:
        with self._lock:
            fitting = [inputs for inputs in self._files if not inputs.users and inputs.capacity >= size]
            best = min(fitting, key=lambda inputs: inputs.capacity, default=None)
            if best is not None:
                self._files.remove(best)
            return best

    def give_back(self, inputs: Inputs) -> None:
        """Release a file. Unused files are kept up to `keep_bytes`; those unused for longest are freed first."""
        self._lock.run_or_defer(lambda: self._give_back(inputs))

    def _give_back(self, inputs: Inputs) -> None:
        inputs.users -= 1
        if inputs.users:
            return
        if inputs in self._files:
            self._files.remove(inputs)
        self._files.append(inputs)
        for file in self._over(self._keep):
            file.close()

    def _over(self, keep: int) -> list[Inputs]:
        unused = [inputs for inputs in self._files if not inputs.users]
        total = sum(inputs.capacity for inputs in unused)
        gone = []
        for inputs in unused:
            if total <= keep:
                break
            total -= inputs.capacity
            self._files.remove(inputs)
            gone.append(inputs)
        return gone

    def close(self) -> None:
        """Close the files kept, and keep none from now on."""
        with self._lock:
            self._keep = -1
            gone = self._over(-1)
        for file in gone:
            file.close()


def _sample(images: Sequence[Image.Image]) -> bytes:
    """A few bytes of some rows of each image; images whose samples differ are different."""
    found = []
    for image in images:
        for row in range(0, image.height, max(1, image.height // 4)):
            strip = image.crop((0, row, min(image.width, 16), row + 1))
            found.append(strip.tobytes())
    return b"".join(found)


def read_only(fd: int) -> int:
    """Open a shared file again for reading only, so that the receiver of the descriptor cannot write.

    Without `/proc` the descriptor is duplicated as it is.
    """
    path = f"/proc/self/fd/{fd}"
    with descriptors.explained("open a session's images for its worker"):
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC) if os.path.exists(path) else os.dup(fd)


class Arena:
    """The shared file that one worker writes pixels to, and the parent's record of the parts in use.

    Files that a program saved stay until they are saved again; the space of images that were only shown is free again
    once they have been read.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.fd = create_shared_file("codev-arena", size)
        self._live: dict[tuple[str, str], tuple[int, int]] = {}

    def gaps(self) -> list[tuple[int, int]]:
        """The free parts, as (start, end), lowest first: reusing pages costs less than getting new ones."""
        gaps, at = [], 0
        for start, end in sorted(self._live.values()):
            if start > at:
                gaps.append((at, start))
            at = max(at, _round(end))
        return [*gaps, (at, self.size)]

    def keep(self, view: str, name: str, start: int, end: int) -> None:
        """Keep a part for a file of a view; the part that held its earlier contents is free."""
        self._live[view, name] = (start, end)

    def forget(self, view: str, names: Collection[str] | None = None) -> None:
        """Free the parts kept for a view, or for the files of these names in it."""
        for key in [key for key in self._live if key[0] == view and (names is None or key[1] in names)]:
            del self._live[key]

    def read(self, offset: int, mode: str, size: tuple[int, int]) -> Image.Image:
        """Copy an image from the file; raises `EOFError` if the worker cut it short."""
        return pixels.read(self.fd, offset, mode, size)

    def close(self) -> None:
        """Free the file."""
        os.close(self.fd)
