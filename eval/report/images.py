"""Images for a self-contained page: scaled down, each stored once, drawn by reference with boxes on top."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from PIL import Image

from codev_env.images import encode_image
from codev_env.trajectory import ImageFiles
from codev_env.types import Box, Point

FLAT = 256
"""Most colours of an image that may be smaller as PNG."""
NEARLY = 0.85
"""An image is scaled by a whole number, which is faster, if that keeps at least this share of the greatest width."""
THREADS = 2


@dataclass(frozen=True)
class StoredImage:
    """A stored image: its element id in the page and its size in pixels of the original."""

    key: str
    width: int
    height: int


@dataclass(frozen=True)
class Mark:
    """A box to draw over an image.

    Attributes:
        kind: CSS class: `"target"` or `"crop"`.
        box: `(x1, y1, x2, y2)` in pixels of the image.
        label: Short text at the box's corner, or `""`.
        turn: Number of the turn that it belongs to, from 1; 0 for none.
        seen: Of a target: some returned image shows it clearly.
    """

    kind: str
    box: Box
    label: str = ""
    turn: int = 0
    seen: bool = False


@dataclass(frozen=True)
class Tag:
    """The label at the corner of a box: its area and font size, in pixels of the image."""

    label: str
    x: float
    y: float
    width: float
    height: float
    font: float


@dataclass(frozen=True)
class Shape:
    """A mark as drawn: as in `Mark`, with its rectangle in pixels of the image, and its label placed (or `None`)."""

    kind: str
    x: int
    y: int
    width: int
    height: int
    tag: Tag | None
    turn: int = 0
    seen: bool = False


@dataclass(frozen=True)
class Drawing:
    """A stored image with marks over it, as `images.html.j2` draws it.

    Attributes:
        stored: The image.
        alt: Text for people who do not see it.
        shapes: The marks.
        shown_width: In CSS pixels; `None`: as wide as its column.
        seen: The parts that some returned image shows: the corners of each, as CSS lengths.
    """

    stored: StoredImage
    alt: str
    shapes: tuple[Shape, ...] = ()
    shown_width: int | None = None
    seen: tuple[str, ...] = ()


@dataclass(frozen=True)
class ImageElement:
    """An element of the page's store of images.

    Attributes:
        stored: Id and size.
        uri: The encoded image; empty for one that is equal to an earlier one.
        same_as: Id of that earlier one.
    """

    stored: StoredImage
    uri: str = ""
    same_as: str = ""


class ImageStore:
    """Collects the images of a page as data URIs; equal images are stored once.

    Files are read, scaled and encoded by a few threads while the page is written: libraries do it without Python's
    lock, and only the encoded images stay in memory.

    Args:
        max_width: Wider images are scaled down to about this many pixels.
        quality: JPEG quality; an image that is smaller as PNG (flat colours) is stored as PNG.
    """

    def __init__(self, max_width: int = 480, quality: int = 82):
        self.max_width, self.quality = max_width, quality
        self._of_file: dict[Path, StoredImage] = {}
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="codev-images")
        self._encoded: list[tuple[StoredImage, Future[str]]] = []

    def add(self, images: Sequence[Image.Image], place: int = 0) -> StoredImage:
        """Store one of some images (if it is new) and return its handle.

        Args:
            images: Images of a trajectory.
            place: Which of them.
        """
        if not isinstance(images, ImageFiles):
            return self._submit(images, place, images[place].size)
        path = images.files[place]
        if path not in self._of_file:
            self._of_file[path] = self._submit(images, place, images.sizes[place])
        return self._of_file[path]

    def _submit(self, images: Sequence[Image.Image], place: int, size: tuple[int, int]) -> StoredImage:
        stored = StoredImage(f"p{len(self._encoded)}", *size)
        self._encoded.append((stored, self._pool.submit(self._encode, images, place)))
        return stored

    def _encode(self, images: Sequence[Image.Image], place: int) -> str:
        image = images[place]
        return data_uri(scaled(image if image.mode == "RGB" else image.convert("RGB"), self.max_width), self.quality)

    def elements(self) -> list[ImageElement]:
        """Return the images of the page, each with its data once; drawings refer to them by id.

        Raises:
            TrajectoryError: If an image cannot be read.
        """
        elements = []
        first: dict[tuple[str, int, int], str] = {}
        for stored, encoded in self._encoded:
            uri = encoded.result()
            same = first.setdefault((uri, stored.width, stored.height), stored.key)
            elements.append(ImageElement(stored, uri) if same == stored.key else ImageElement(stored, same_as=same))
        return elements


def scaled(image: Image.Image, max_width: int) -> Image.Image:
    """Return an image no wider than `max_width` and no taller than four times that; the same one if it fits.

    Args:
        image: An RGB image.
        max_width: In pixels.
    """
    shrink = max(image.width / max_width, image.height / (4 * max_width))
    if shrink <= 1:
        return image
    whole = ceil(shrink)
    if shrink >= NEARLY * whole:
        return image.reduce(whole)
    size = (max(1, round(image.width / shrink)), max(1, round(image.height / shrink)))
    return image.resize(size, Image.Resampling.BILINEAR, reducing_gap=1.0)


def data_uri(image: Image.Image, quality: int) -> str:
    """Encode as JPEG or PNG, whichever is smaller, as a data URI."""
    kinds: list[tuple[str, dict[str, int]]] = [("jpeg", {"quality": quality})]
    if image.getcolors(FLAT) is not None:  # with more colours a PNG is hardly ever smaller, and slow to make
        kinds.append(("png", {"compress_level": 6}))
    found = []
    for kind, options in kinds:
        data = encode_image(image, kind, **options)
        found.append((len(data), kind, data))
    _, kind, data = min(found)
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def draw(
    stored: StoredImage,
    alt: str,
    marks: Sequence[Mark] = (),
    *,
    shown_width: int | None = None,
    seen: Sequence[Sequence[Point]] = (),
) -> Drawing:
    """Return a stored image with boxes over it.

    Args:
        stored: The handle that `ImageStore.add` returned.
        alt: Text for people who do not see the image.
        marks: Boxes in pixels of the image.
        shown_width: Width on the page in CSS pixels; by default as wide as its column.
        seen: Corners of the parts that some returned image shows, in pixels of the image.
    """
    shapes = tuple(Shape(mark.kind, *_rectangle(mark.box), _tag(mark, stored), mark.turn, mark.seen) for mark in marks)
    parts = tuple(", ".join(f"{x:.6g}px {y:.6g}px" for x, y in corners) for corners in seen)
    return Drawing(stored, alt, shapes, shown_width, parts)


def _rectangle(box: Box) -> tuple[int, int, int, int]:
    x1, y1, x2, y2 = box
    return x1, y1, max(x2 - x1, 0), max(y2 - y1, 0)


def _tag(mark: Mark, stored: StoredImage) -> Tag | None:
    if not mark.label:
        return None
    x1, y1, _, y2 = mark.box
    font = max(stored.width, stored.height) / 28
    width, height, gap = font * (0.5 + 0.62 * len(mark.label)), font * 1.25, font * 0.3
    # Above the box, else below it, so that the tag never hides what a small box marks; inside only if it is tall.
    if y1 >= height + gap:
        top = y1 - height - gap
    else:
        top = y2 + gap if y2 + gap + height <= stored.height else max(y1, 0)
    x, y = min(max(x1, 0), stored.width - width), min(top, stored.height - height)
    return Tag(mark.label, x, y, width, height, font)
