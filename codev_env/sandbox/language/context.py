"""One run of a program in the worker: its virtual files, its printed text and the images it hands over."""

from __future__ import annotations

import posixpath
import re
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from PIL import Image, UnidentifiedImageError

from codev_env.sandbox.language.clock import Clock
from codev_env.sandbox.language.cuts import CutRecord
from codev_env.sandbox.language.folders import is_folder
from codev_env.sandbox.language.guards import guarded_getattr
from codev_env.sandbox.language.imaging import ResultError, check_image, is_image_array, snapshot, to_image, to_rgb
from codev_env.sandbox.language.streams import Output
from codev_env.sandbox.wire.limits import DATA_BYTES, FOLDERS, MOST_REPAIRS, REPAIR_CHARS, Limits, is_bare_name

FORMATS = {
    ".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".bmp": "BMP", ".webp": "WEBP", ".gif": "GIF", ".tif": "TIFF",
    ".tiff": "TIFF", ".ppm": "PPM", ".pdf": "PDF",
}  # fmt: skip
"""By file extension: the format that Pillow uses."""

_REFUSING = {
    "JPEG": ("RGBA", "LA", "P", "PA", "F", "I", "I;16"),
    "BMP": ("LA", "F", "I", "CMYK"),
    "PNG": ("F", "CMYK"),
    "PDF": ("F", "I"),
}
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_NAME = re.compile(r"[^\s'\"()\[\]{},;:=]+")


Source = weakref.ref[Any] | None
"""The object that an image was made of. Two references to one object are the same reference, also after its end."""


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
    """A namespace and its files.

    Attributes:
        files: The images by name.
        given: The input images, which a program may save over but not change.
        data: The contents of all other files.
        written: Names in `data` that the host does not know yet.
        namespace: The variables.
    """

    files: dict[str, File] = field(default_factory=dict)
    data: dict[str, bytes] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    given: dict[str, File] = field(default_factory=dict)
    namespace: dict[str, Any] = field(default_factory=dict)

    def saved(self) -> set[str]:
        """Names of the files that the host knows and that runs saved."""
        images = {name for name, file in self.files.items() if file is not self.given.get(name) and not file.changed}
        return images | self.data.keys()


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
        self.clock = Clock()
        self.environ: dict[str, str] = {}
        self.temporary = 0
        self.opened: list[weakref.ref[Any]] = []
        self.lost: list[OSError] = []
        self.reads: set[str] = set()
        self._earlier = view.saved()
        self.cuts = CutRecord()
        self.stdout: Any = Output("<stdout>", self.write)
        self.stderr: Any = Output("<stderr>", lambda _text: None)

    # Text

    def print(
        self, *values: Any, sep: str | None = None, end: str | None = None, file: Any = None, flush: bool = False
    ) -> None:
        """The program's `print`, which keeps text up to the limit."""
        for name, text in (("sep", sep), ("end", end)):
            if text is not None and not isinstance(text, str):
                raise TypeError(f"{name} must be None or a string, not {type(text).__name__}")
        write = guarded_getattr(self.stdout if file is None else file, "write")
        separator = " " if sep is None else plain(sep)
        for number, value in enumerate(values):
            if number:
                write(separator)
            write(plain(str(value)))
        write("\n" if end is None else plain(end))

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

    def note_read(self, name: str) -> None:
        """Record that the run depends on a file, if an earlier run saved it as it is."""
        if name in self._earlier:
            self.reads.add(name)

    def names(self) -> list[str]:
        """The names of all files, on which the run depends from now on."""
        self.reads |= self._earlier
        return [*self._files()]

    def _files(self) -> dict[str, None]:
        return {name: None for name in (*self.view.files, *self.view.data) if name != FOLDERS}

    def find(self, path: Any) -> str:
        """The name of the file that a program means by a path.

        Raises:
            FileNotFoundError: There is no such file; the message lists the files.
        """
        path, files = _text(path), self._files()
        name, own = (path, True) if path in files else self._place(path)
        if name in files and (own or self.repair_paths):
            if not own:
                self.repair(f"path {path!r} read as {name!r}")
            self.note_read(name)
            return name
        raise FileNotFoundError(f"there is no file {path!r} here. Files: {', '.join(self.names()) or 'none'}.")

    def _place(self, path: str) -> tuple[str, bool]:
        """The bare name of a path, and whether it lies in a folder that the program may expect."""
        folder, name = posixpath.split(path.replace("\\", "/"))
        return name, is_folder(self, folder)

    def name_for(self, path: Any) -> str:
        """The bare name under which a program saves a file.

        Raises:
            FileNotFoundError: The path has a folder, and paths are not repaired.
            OSError: The name cannot be used, or too many files are saved.
        """
        path = _text(path)
        name, own = self._place(path)
        if not is_bare_name(name) or not name.isprintable():
            raise OSError(f"the file name {name[:40]!r} is too long or holds control characters")
        files = self._files()
        saved = files.keys() - self.view.given.keys()
        if name not in files and len(saved) >= self.limits.files:
            self.names()
            raise OSError(f"{len(saved)} files are saved already, {self.limits.files} are allowed")
        if not own:
            if not self.repair_paths:
                raise FileNotFoundError(f"there is no folder {posixpath.dirname(path)!r} here: save as {name!r}.")
            self.repair(f"path {path!r} saved as {name!r}")
        return name

    def keep(self, name: str, data: bytes) -> None:
        """Keep bytes as a file; raises `OSError` where the files are too large together."""
        others = sum(len(other) for key, other in self.view.data.items() if key != name)
        if others + len(data) > DATA_BYTES:
            self.names()
            raise OSError(f"files other than images may have {DATA_BYTES >> 20} MiB together: keep it in a variable")
        self.view.data[name] = data
        self.view.written.add(name)
        self.view.files.pop(name, None)
        self._earlier.discard(name)

    def close_files(self) -> None:
        """Keep what was written to files that are still open; raises as `keep` does, also for those that have ended."""
        opened, self.opened = self.opened, []
        for file in filter(None, (reference() for reference in opened)):
            file.flush()
        if self.lost:
            raise self.lost[0]

    def open(self, path: Any) -> Image.Image:
        """`Image.open(name)`."""
        name = self.find(path)
        if name not in self.view.files:
            raise UnidentifiedImageError(f"cannot identify image file {name!r}")
        return self.view.files[name].opened(name)

    def save(self, image: Image.Image, path: Any, format: Any = None) -> str:
        """`image.save(name, format)`: keep the pixels, without encoding them.

        Returns:
            The bare name.

        Raises:
            ValueError: Neither the format nor the extension is that of images, or the image is empty.
            OSError: The format cannot hold the image's mode, the name cannot be used, or too many files are saved.
        """
        path = _text(path)
        extension = posixpath.splitext(path)[1].lower()
        given = FORMATS.get(f".{plain(format).lower()}") if isinstance(format, str) else None
        kind = given or FORMATS.get(extension)
        if kind is None:
            raise ValueError(f"unknown file extension: {extension}")
        if image.mode in _REFUSING.get(kind, ()):
            raise OSError(f"cannot write mode {image.mode} as {kind}")
        if 0 in image.size:  # as Pillow does, since a program may handle it
            raise ValueError(f"an image of {image.width}x{image.height} pixels cannot be saved: check the crop box.")
        check_image(image, self.limits, "saved")
        copy = to_rgb(image) if image.mode not in ("RGB", "RGBA", "L") else snapshot(image)
        copy.info = {}
        name = self.name_for(path)
        self.view.data.pop(name, None)
        self.view.written.discard(name)
        self._earlier.discard(name)
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
                self.open(name)
                self._hand_over_file(name)
            else:
                image = to_image(thing)
                if image is None:
                    raise TypeError(f"show() takes images, not {type(thing).__name__}")
                self._hand_over(image, "", _source(thing))

    def _hand_over(self, image: Image.Image, name: str, source: Source, position: int | None = None) -> None:
        check_image(image, self.limits, "handed over")
        if len(self.shown) < 4 * self.limits.images:
            # The image of a file never changes; the program may still draw on any other.
            rgb = image if name and image.mode == "RGB" else to_rgb(image)
            rgb.info = {}  # may hold any object of the program
            self.shown.append(ShownImage(rgb, name, self.length if position is None else position, source))

    def _hand_over_file(self, name: str, position: int | None = None) -> None:
        self.note_read(name)
        file = self.view.files[name]
        self._hand_over(file.pixels(), name, file.source, position)

    def finish(self) -> tuple[str, list[ShownImage]]:
        """The outcome of the run: the text, without lines that only name a returned image, and the images in order."""
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
            text = text[: max(0, self.limits.output_chars - len(note) - 1)]
            text += note if not text or text.endswith("\n") else f"\n{note}"
        return text[: self.limits.output_chars], shown[: self.limits.images]

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
                try:
                    self._hand_over_file(name, position - 1)
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
                    self._hand_over_file(thing)
                elif isinstance(thing, Image.Image) or is_image_array(thing):
                    image = to_image(thing)
                    if image is not None:
                        self._hand_over(image, "", _source(thing))
            except (ResultError, ValueError, TypeError, OSError) as problem:
                self.problems.append(f"result cannot be shown: {problem}")


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


def plain(text: str) -> str:
    """The same text as a plain `str`, without the methods of a class that a program derived from it."""
    return str.__str__(text)


def clean(text: str) -> str:
    """The text without addresses of objects, so that it is the same on every run."""
    return _ADDRESS.sub("", text)


def _text(path: Any) -> str:
    path = str(path) if isinstance(path, PurePath) else path
    if not isinstance(path, str):
        raise TypeError(f"a file name must be text, not {type(path).__name__}")
    return plain(path)
