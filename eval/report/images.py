"""Images for a self-contained page: scaled down, each stored once, drawn by reference with boxes on top."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from html import escape
from math import ceil
from pathlib import Path

from PIL import Image

from codev_env.trajectory import ImageFiles
from codev_env.types import Box

FLAT = 256
"""Most colours of a picture that may be smaller as PNG."""
NEARLY = 0.85
"""A picture is scaled by a whole number, which is quicker, where that makes it at least so wide as it may be."""
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
    """

    kind: str
    box: Box
    label: str = ""


class ImageStore:
    """Collects the images of a page as data URIs; equal images are stored once.

    Files are read, scaled and encoded by a few threads while the page is written: libraries do it without Python's
    lock, and only the encoded pictures stay in memory.

    Args:
        max_width: Wider images are scaled down to about this many pixels.
        quality: JPEG quality; an image that is smaller as PNG (flat colours) is stored as PNG.
    """

    def __init__(self, max_width: int = 480, quality: int = 82):
        self.max_width, self.quality = max_width, quality
        self._of_file: dict[Path, StoredImage] = {}
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="codev-pictures")
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
        picture = StoredImage(f"p{len(self._encoded)}", *size)
        self._encoded.append((picture, self._pool.submit(self._encode, images, place)))
        return picture

    def _encode(self, images: Sequence[Image.Image], place: int) -> str:
        image = images[place]
        return data_uri(scaled(image if image.mode == "RGB" else image.convert("RGB"), self.max_width), self.quality)

    def html(self) -> str:
        """The hidden element that holds all images; `draw` refers to it.

        Raises:
            TrajectoryError: If an image cannot be read.
        """
        elements = []
        first: dict[tuple[str, int, int], str] = {}
        for picture, encoded in self._encoded:
            uri, width, height = encoded.result(), picture.width, picture.height
            same = first.setdefault((uri, width, height), picture.key)
            if same == picture.key:
                shape = f'width="{width}" height="{height}" preserveAspectRatio="none"'
                elements.append(f'<image id="{picture.key}" {shape} href="{uri}"/>')
            else:
                elements.append(f'<use id="{picture.key}" href="#{same}"/>')
        return f'<svg class="store" aria-hidden="true" width="0" height="0"><defs>{"".join(elements)}</defs></svg>'


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
    encoded = []
    for kind, options in kinds:
        buffer = io.BytesIO()
        image.save(buffer, kind, **options)
        encoded.append((len(buffer.getvalue()), kind, buffer.getvalue()))
    _, kind, data = min(encoded)
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def draw(picture: StoredImage, alt: str, marks: Sequence[Mark] = (), *, shown_width: int | None = None) -> str:
    """Return an inline SVG that shows a stored picture with boxes over it.

    Args:
        picture: What `ImageStore.add` returned.
        alt: Text for people who do not see the picture.
        marks: Boxes in pixels of the picture.
        shown_width: Width on the page in CSS pixels; by default as wide as its column.
    """
    width, height = picture.width, picture.height
    size = f' style="width:{shown_width}px"' if shown_width else ""
    body = "".join(_mark(mark, width, height) for mark in marks)
    return (
        f'<svg class="picture" role="img" aria-label="{escape(alt)}" viewBox="0 0 {width} {height}"{size}>'
        f'<use href="#{picture.key}"/>{body}</svg>'
    )


def _mark(mark: Mark, width: int, height: int) -> str:
    x1, y1, x2, y2 = mark.box
    rect = f'x="{x1}" y="{y1}" width="{max(x2 - x1, 0)}" height="{max(y2 - y1, 0)}"'
    label = ""
    if mark.label:
        font = max(width, height) / 28
        wide, high = font * (0.5 + 0.62 * len(mark.label)), font * 1.25
        # Above the box, else below it, so that the tag never hides what a small box marks; inside only if it is tall.
        gap = font * 0.3
        top = y1 - high - gap if y1 >= high + gap else y2 + gap if y2 + gap + high <= height else max(y1, 0)
        x, y = min(max(x1, 0), width - wide), min(top, height - high)
        label = (
            f'<rect class="tag" x="{x:.6g}" y="{y:.6g}" width="{wide:.6g}" height="{high:.6g}"/>'
            f'<text x="{x + wide / 2:.6g}" y="{y + high * 0.79:.6g}" font-size="{font:.6g}">{escape(mark.label)}</text>'
        )
    return f'<g class="mark {mark.kind}"><rect class="halo" {rect}/><rect class="line" {rect}/>{label}</g>'
