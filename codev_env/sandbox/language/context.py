"""One run of a program in the worker: its virtual files, its printed text and the images it hands over."""

from __future__ import annotations

import posixpath
import re
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

from codev_env.sandbox.wire.limits import MOST_REPAIRS, NAME_CHARS, REPAIR_CHARS, Limits

FORMATS = {
    ".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".bmp": "BMP", ".webp": "WEBP", ".gif": "GIF", ".tif": "TIFF",
    ".tiff": "TIFF", ".ppm": "PPM",
}  # fmt: skip
"""By file extension: the format that Pillow uses."""

CONVERTERS: list[Callable[[Any], Image.Image | None]] = []
"""Functions of façades that make an image of an object of their library, or return `None` for any other object."""

_REFUSING = {"JPEG": ("RGBA", "LA", "P", "PA", "F", "I", "I;16"), "BMP": ("LA", "F", "I", "CMYK"), "PNG": ("F", "CMYK")}
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_NAME = re.compile(r"[^\s'\"()\[\]{},;:=]+")


Source = weakref.ref[Any] | None
"""The object that an image was made of. Two references to one object are the same reference, also after its end."""


class ResultError(ValueError):
    """An image that cannot be accepted; the message says why."""


class OutputFull(BaseException):
    """The program printed far more than is kept, and is ended."""


@dataclass
class File:
    """A virtual file: an image, made when first needed."""

    decode: Callable[[], Image.Image]
    mode: str
    size: tuple[int, int]
    image: Image.Image | None = None
    changed: bool = False
    source: Source = None

    def pixels(self) -> Image.Image:
        """The image itself; callers must not change it."""
        if self.image is None:
            self.image = self.decode()
        return self.image

    def opened(self, name: str) -> Image.Image:
        """An image for a program, which shares the pixels until the program writes to it."""
        image = self.pixels()
        mine = image._new(image.im)
        mine.readonly = 1
        mine.format = FORMATS.get(posixpath.splitext(name)[1].lower())
        mine.filename = name  # type: ignore[attr-defined]
        return mine


@dataclass
class View:
    """A namespace and its files; `given` are the input images, which a program may save over but not change."""

    files: dict[str, File] = field(default_factory=dict)
    given: dict[str, File] = field(default_factory=dict)
    namespace: dict[str, Any] = field(default_factory=dict)


@dataclass
class ShownImage:
    """An image handed over: its file name, or `""`, and its position in the printed text."""

    image: Image.Image
    name: str
    position: int
    source: Source = None


class Context:
    """The state of one run: its inputs, its text, its files and the images it hands over."""

    def __init__(self, view: View, limits: Limits, *, repair_paths: bool = True) -> None:
        self.view = view
        self.limits = limits
        self.repair_paths = repair_paths
        self.text: list[str] = []
        self.length = 0
        self.cut = False
        self.shown: list[ShownImage] = []
        self.repairs: list[str] = []
        self.problems: list[str] = []

    # Text

    def print(
        self, *values: Any, sep: str | None = None, end: str | None = None, file: Any = None, flush: bool = False
    ) -> None:
        """The program's `print`, which keeps text up to the limit."""
        for name, text in (("sep", sep), ("end", end)):
            if text is not None and not isinstance(text, str):
                raise TypeError(f"{name} must be None or a string, not {type(text).__name__}")
        separator = " " if sep is None else plain(sep)
        for number, value in enumerate(values):
            if number:
                self.write(separator)
            self.write(plain(str(value)))
        self.write("\n" if end is None else plain(end))

    def write(self, text: str) -> None:
        """Keep printed text up to the limit; raises `OutputFull` far beyond it."""
        cap = self.limits.output_chars
        if self.length < cap:
            self.text.append(text[: cap - self.length])
        self.length += len(text)
        self.cut = self.length > cap
        if self.length > 1000 * cap:
            raise OutputFull

    # Files

    def find(self, path: Any) -> str:
        """The name of the file that a program means by a path.

        Raises:
            FileNotFoundError: There is no such file; the message lists the files.
        """
        path = _text(path)
        files = self.view.files
        if path in files:
            return path
        name = posixpath.basename(path.replace("\\", "/"))
        own = posixpath.normpath(path) == name
        if name in files and (own or self.repair_paths):
            if not own:
                self.repair(f"path {path!r} read as {name!r}")
            return name
        raise FileNotFoundError(f"there is no file {path!r} here. Files: {', '.join(files) or 'none'}.")

    def open(self, path: Any) -> Image.Image:
        """`Image.open(name)`."""
        name = self.find(path)
        return self.view.files[name].opened(name)

    def save(self, image: Image.Image, path: Any) -> str:
        """`image.save(name)`: keep the pixels, without encoding them.

        Returns:
            The bare name.

        Raises:
            ValueError: The extension is not that of an image format, or the image is empty.
            OSError: The format cannot hold the image's mode, the name cannot be used, or too many files are saved.
        """
        path = _text(path)
        name = posixpath.basename(path.replace("\\", "/"))
        extension = posixpath.splitext(name)[1].lower()
        if extension not in FORMATS:
            raise ValueError(f"unknown file extension: {extension}")
        kind = FORMATS[extension]
        if image.mode in _REFUSING.get(kind, ()):
            raise OSError(f"cannot write mode {image.mode} as {kind}")
        if len(name) > NAME_CHARS or not name.isprintable():
            raise OSError(f"the file name {name[:40]!r} is too long or holds control characters")
        saved = self.view.files.keys() - self.view.given.keys()
        if name not in self.view.files and len(saved) >= self.limits.files:
            raise OSError(f"{len(saved)} files are saved already, {self.limits.files} are allowed")
        if 0 in image.size:  # as Pillow does, since a program may handle it
            raise ValueError(f"an image of {image.width}x{image.height} pixels cannot be saved: check the crop box.")
        check_image(image, self.limits, "saved")
        copy = image.convert("RGB") if image.mode not in ("RGB", "RGBA", "L") else _snapshot(image)
        copy.info = {}
        if name != path and posixpath.normpath(path) != name:
            if not self.repair_paths:
                raise FileNotFoundError(f"there is no folder {posixpath.dirname(path)!r} here: save as {name!r}.")
            self.repair(f"path {path!r} saved as {name!r}")
        self.view.files[name] = File(
            lambda: copy, copy.mode, copy.size, image=copy, changed=True, source=_source(image)
        )
        return name

    def repair(self, what: str) -> None:
        """Record a repair."""
        if what not in self.repairs and len(self.repairs) < MOST_REPAIRS:
            self.repairs.append(what[:REPAIR_CHARS])

    # Images handed over

    def show(self, *things: Any) -> None:
        """The program's `show(x)`.

        Raises:
            TypeError: One of the things is not an image.
            ResultError: An image cannot be accepted.
        """
        for thing in things:
            if isinstance(thing, (list, tuple)):
                self.show(*thing)
            elif isinstance(thing, str):
                name = self.find(thing)
                self._hand_over(self.view.files[name].pixels(), name, self.view.files[name].source)
            else:
                image = to_image(thing)
                if image is None:
                    raise TypeError(f"show() takes images, not {type(thing).__name__}")
                self._hand_over(image, "", _source(thing))

    def _hand_over(self, image: Image.Image, name: str, source: Source, position: int | None = None) -> None:
        check_image(image, self.limits, "handed over")
        if len(self.shown) < 4 * self.limits.images:
            # The image of a file never changes; the program may still draw on any other.
            rgb = image if name and image.mode == "RGB" else image.convert("RGB")
            rgb.info = {}  # may hold any object of the program
            self.shown.append(ShownImage(rgb, name, self.length if position is None else position, source))

    def finish(self) -> tuple[str, list[ShownImage]]:
        """Collect the outcome of the run.

        Returns:
            The text without lines that only name a returned image, and the images in order.
        """
        kept: list[str] = []
        position = 0
        for line in "".join(self.text).splitlines(keepends=True):
            position += len(line)
            if not self._names_only(line, position):
                kept.append(line)
        shown: list[ShownImage] = []
        for one in sorted(self.shown, key=lambda one: one.position):
            if not any(_same(one, other) for other in shown):
                shown.append(one)
        text = clean("".join(kept))
        if len(shown) > self.limits.images:
            note = f"Only the first {self.limits.images} images are shown.\n"
            text += note if not text or text.endswith("\n") else f"\n{note}"
        return text, shown[: self.limits.images]

    def _names_only(self, line: str, position: int) -> bool:
        """Hand over the files that a printed line names; return whether the line consists of one name only."""
        alone = line.strip().strip("'\"`")
        names: list[str | None] = [self._known(alone)] if alone else [None]
        if names == [None]:
            found = [self._known(word.strip(".`")) for word in _NAME.findall(line)]
            names = [name for name in found if name is not None and self.view.files[name].changed]
            alone = ""
        for name in dict.fromkeys(names):
            if name is not None:
                file = self.view.files[name]
                try:
                    self._hand_over(file.pixels(), name, file.source, position - 1)
                except ResultError as problem:
                    self.problems.append(str(problem))
        return bool(alone) and names != [None]

    def _known(self, path: str) -> str | None:
        if path in self.view.files:
            return path
        folder, name = posixpath.split(path)
        # With a blank in the folder, this is a sentence that ends with a path.
        return name if folder and len(folder.split()) == 1 and name in self.view.files else None

    def take(self, result: Any) -> None:
        """Hand over the value of the variable `result` or `output`; `None` if neither was assigned."""
        things = list(result) if isinstance(result, (list, tuple)) else [result]
        for thing in things[: 4 * self.limits.images]:
            try:
                thing = plain(thing) if isinstance(thing, str) else thing
                if isinstance(thing, str) and thing in self.view.files:
                    self._hand_over(self.view.files[thing].pixels(), thing, self.view.files[thing].source)
                elif isinstance(thing, Image.Image) or _is_image_array(thing):
                    image = to_image(thing)
                    if image is not None:
                        self._hand_over(image, "", _source(thing))
            except (ResultError, ValueError, TypeError, OSError) as problem:
                self.problems.append(f"result cannot be shown: {problem}")


def _snapshot(image: Image.Image) -> Image.Image:
    """An image that keeps the present pixels; they are copied only if a program writes to its own image."""
    if image.readonly:  # its memory may belong to an array, which writes to it directly
        return image.copy()
    image.load()
    image.readonly = 1
    return image._new(image.im)


def _source(thing: Any) -> Source:
    try:
        return weakref.ref(thing)
    except TypeError:
        return None


def _same(one: ShownImage, other: ShownImage) -> bool:
    if one.name and one.name == other.name and one.image.size == other.image.size:
        return one.image.tobytes() == other.image.tobytes()
    same_source = one.source is not None and one.source is other.source
    return same_source and one.image.size == other.image.size and one.image.tobytes() == other.image.tobytes()


def _is_image_array(thing: Any) -> bool:
    return isinstance(thing, np.ndarray) and thing.dtype == np.uint8 and thing.ndim in (2, 3) and min(thing.shape) > 0


def to_image(thing: Any) -> Image.Image | None:
    """The image of an object that a program hands over: an image, an array or a figure; `None` for other objects.

    Raises:
        ResultError: An array whose shape or type is not that of an image.
    """
    if isinstance(thing, Image.Image):
        return thing
    if isinstance(thing, np.ndarray):
        return _from_array(thing)
    drawn = (draw(thing) for draw in CONVERTERS)
    return next((image for image in drawn if image is not None), None)


def _from_array(array: np.ndarray) -> Image.Image:
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4)):
        raise ResultError(f"an array of shape {array.shape} is no image: (height, width) or (height, width, 3) is.")
    if array.dtype.kind not in "uifb":
        raise ResultError(f"an array of {array.dtype} is no image: convert it to uint8.")
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise ResultError("an array that holds NaN or infinity is no image.")
        array = array * 255 if array.size and array.max() <= 1.0 else array
    elif array.dtype.kind == "b":
        array = array.astype(np.uint8) * 255
    return Image.fromarray(np.ascontiguousarray(np.clip(array, 0, 255).astype(np.uint8)))


def check_image(image: Image.Image, limits: Limits, what: str) -> None:
    """Raise `ResultError` for an image that is empty, has too many pixels, or is too long and narrow."""
    width, height = image.size
    if width < 1 or height < 1:
        raise ResultError(f"an image of {width}x{height} pixels cannot be {what}: check the crop box.")
    if width * height > limits.image_pixels:
        raise ResultError(
            f"an image of {width}x{height} pixels cannot be {what}: at most {limits.image_pixels} pixels are allowed."
        )
    if max(width, height) > limits.aspect * min(width, height) and what != "saved":
        raise ResultError(
            f"an image of {width}x{height} pixels cannot be {what}: "
            f"its sides may differ by a factor of {limits.aspect:g} at most."
        )


def plain(text: str) -> str:
    """The same text as a plain `str`, without the methods of a class that a program derived from it."""
    return str.__str__(text)


def clean(text: str) -> str:
    """The text without addresses of objects, so that it is the same on every run."""
    return _ADDRESS.sub("", text)


def _text(path: Any) -> str:
    if not isinstance(path, str):
        raise TypeError(f"a file name must be text, not {type(path).__name__}")
    return plain(path)
