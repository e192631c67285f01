"""Images for a self-contained page: scaled down, each stored once, drawn by reference with boxes on top."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from html import escape

from PIL import Image

from codev_env.types import Box

FLAT = 4096
"""Most colours of a picture that may be smaller as PNG."""


@dataclass(frozen=True)
class Picture:
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


class PictureStore:
    """Collects the images of a page as data URIs; equal images are stored once.

    Args:
        max_width: Wider images are scaled down to this many pixels.
        quality: JPEG quality; an image that is smaller as PNG (flat colours) is stored as PNG.
    """

    def __init__(self, max_width: int = 480, quality: int = 82):
        self.max_width, self.quality = max_width, quality
        self._by_digest: dict[str, Picture] = {}
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="codev-pictures")
        self._encoded: list[tuple[Picture, Future[str]]] = []

    def add(self, image: Image.Image) -> Picture:
        """Store an image (if it is new) and return its handle."""
        rgb = image.convert("RGB")
        small = self._scaled(rgb)
        digest = hashlib.sha256(f"{rgb.size}{small.size}".encode() + small.tobytes()).hexdigest()
        if digest not in self._by_digest:
            picture = Picture(f"p{len(self._by_digest)}", rgb.width, rgb.height)
            self._by_digest[digest] = picture
            # Encoded beside the rest of the page: libraries do it without Python's lock.
            self._encoded.append((picture, self._pool.submit(data_uri, small, self.quality)))
        return self._by_digest[digest]

    def _scaled(self, image: Image.Image) -> Image.Image:
        if image.width <= self.max_width and image.height <= 4 * self.max_width:
            return image
        ratio = min(self.max_width / image.width, 4 * self.max_width / image.height)
        size = (max(1, round(image.width * ratio)), max(1, round(image.height * ratio)))
        return image.resize(size, Image.Resampling.BILINEAR, reducing_gap=1.5)

    def html(self) -> str:
        """The hidden element that holds all images; `draw` refers to it."""
        elements = [
            f'<image id="{picture.key}" width="{picture.width}" height="{picture.height}" preserveAspectRatio="none"'
            f' href="{uri.result()}"/>'
            for picture, uri in self._encoded
        ]
        return f'<svg class="store" aria-hidden="true" width="0" height="0"><defs>{"".join(elements)}</defs></svg>'


def data_uri(image: Image.Image, quality: int) -> str:
    """Encode as JPEG or PNG, whichever is smaller, as a data URI."""
    kinds: list[tuple[str, dict[str, int]]] = [("jpeg", {"quality": quality})]
    if image.getcolors(FLAT) is not None:  # of a photograph a PNG is never smaller, and slow to make
        kinds.append(("png", {"compress_level": 6}))
    encoded = []
    for kind, options in kinds:
        buffer = io.BytesIO()
        image.save(buffer, kind, **options)
        encoded.append((len(buffer.getvalue()), kind, buffer.getvalue()))
    _, kind, data = min(encoded)
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def draw(picture: Picture, alt: str, marks: Sequence[Mark] = (), *, shown_width: int | None = None) -> str:
    """Return an inline SVG that shows a stored picture with boxes over it.

    Args:
        picture: What `PictureStore.add` returned.
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
