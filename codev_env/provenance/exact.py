"""Outputs that equal a cut of an input, turned, resized or recoloured: their regions take no further run.

The pieces come from what the program's process says it cut out, which may be a lie. Nothing rests on it: a piece is
only believed if the output equals it, and shows enough detail for that to be no chance.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageChops

from codev_env.provenance.cuts import Piece, Size
from codev_env.provenance.outputs import MOST, is_grey
from codev_env.provenance.regions import make_region
from codev_env.provenance.seen import with_blanks
from codev_env.provenance.tables import Recoloured, may_show
from codev_env.transforms import IDENTITY, inverse, transform_box, transform_image
from codev_env.types import Box, Region

Array = NDArray[np.floating]

_TESTED, _RESIZED, _RECOLOURED = 256, 96, 16
"""Pieces that are compared with one output: of its size, of others, and of its size in other colours."""
_ENLARGED, _MOST_PIXELS = 2, 1 << 19
"""Pieces that are compared with a larger output in other colours, and pixels of that output, at most."""
_BANDS, _BAND = 6, 3
"""Bands that are compared first, and the rows of each."""
_AKIN = 6
"""Pieces of other sizes that are resized in every way, as one part of them is akin to the output."""
_POINTS = ((0.5, 0.5), (0.21, 0.33), (0.77, 0.18), (0.36, 0.81), (0.9, 0.62))
_PATCH = 24
"""Pixels per side of the part that is resized first."""
_SAME = 0.5
"""Share of the values of a part that are equal if pixels were only repeated."""
_TILES, _WIDE = 8, 20.0
"""Tiles per side whose means are compared first; levels by which those of two sizes of one part differ at most, on
average."""
_NEAR, _FAR = 8.0, 24.0
"""Levels by which the means of the same part, resized by two filters, may differ, and its pixels, on average."""
_SUPPORT = 3
"""Pixels to each side that the widest filter takes."""
_VARIED, _CLEAR = 0.02, 8.0
"""Squared levels per pixel of detail in the direction that has less: of a copy, and of a resized piece."""
_OVERVIEW = 128
_MOST_ASPECT = 1.35
"""Factor by which a resize may change the ratio of the sides."""
_LARGE, _EVERY, _STRIP = 1 << 18, 48, 12
"""Pixels from which on strips are compared; rows from one to the next; their rows."""
_REDUCED = 4
"""Shrinking from which on Pillow's thumbnails are made in two steps."""

_FILTERS = (
    Image.Resampling.BICUBIC,
    Image.Resampling.LANCZOS,
    Image.Resampling.BILINEAR,
    Image.Resampling.BOX,
    Image.Resampling.HAMMING,
)
_ENLARGING = (*_FILTERS[:3], Image.Resampling.NEAREST)


def find(output: Image.Image, images: Sequence[Image.Image], pieces: Iterable[Piece], secret: int) -> Region | None:
    """Find the piece that an output equals.

    Args:
        output: The image that the program returned.
        images: The inputs, RGB.
        pieces: The candidates, the likeliest first.
        secret: Decides with the output where it is looked at.

    Returns:
        `None` if there is none, if two places have the same pixels, or if most places of an image might have them.
    """
    pieces = list(pieces)
    copies = list(islice((piece for piece in pieces if piece.size == output.size), _TESTED))
    equal = [piece for piece in _with_same_points(output, images, copies) if _is_copy(output, images, piece)]
    if equal:
        whole = equal[0].box == (0, 0, *images[equal[0].image_index].size)
        sure = len(equal) == 1 and (whole or variety(output) >= _VARIED)
        return _region(equal[0], output, images) if sure else None
    if copies and variety(output) >= _CLEAR:
        tried = copies[:_RECOLOURED]
        known: dict[tuple[int, Box], Recoloured] = {}
        first = next((piece for piece in tried if _is_recoloured(output, images, piece, known)), None)
        if first is not None:
            rest = [piece for piece in tried[tried.index(first) + 1 :] if piece.turn == first.turn]
            twice = any(_is_recoloured(output, images, piece, known) for piece in rest)
            return None if twice else _with_blanks(first, output, images)
    others = (piece for piece in pieces if piece.size != output.size and _may_become(piece.size, output.size))
    tests = _Resized(output, secret)
    for piece in islice(others, _RESIZED):
        if tests.shows(images[piece.image_index], piece):
            smaller = output if output.width < piece.size[0] else _crop(images[piece.image_index], piece)
            return _region(piece, output, images) if variety(smaller) >= _CLEAR else None
    if output.width * output.height > _MOST_PIXELS or variety(output) < _CLEAR:
        return None
    smaller_ones = (
        piece for piece in pieces if _enlargement(piece, output) > 1 and _may_become(piece.size, output.size)
    )
    found = (piece for piece in islice(smaller_ones, _ENLARGED) if _is_enlarged(output, images, piece))
    return next((_region(piece, output, images) for piece in found), None)


def affine_of(piece: Piece, size: Size) -> Array:
    """The map from the pixels of an output of (width, height) that shows a piece to those of the input."""
    # Three corners of the output, and the places of the box that they show.
    corners = [transform_box((x, y, x, y), piece.size, inverse(piece.turn))[:2] for x, y in _corners(piece.size)]
    origin, across, down = (np.array(corner, float) + piece.box[:2] for corner in corners)
    return np.column_stack([(across - origin) / size[0], (down - origin) / size[1], origin])


def variety(output: Image.Image) -> float:
    """Squared levels per pixel of detail in the direction that has less of it: 0 for stripes and for plain colours."""
    small = output.reduce(max(1, max(output.size) // _OVERVIEW)).convert("L")
    if min(small.size) < 4:
        return 0.0
    values = np.asarray(small, np.float32)
    du, dv = (values[1:-1, 2:] - values[1:-1, :-2]) / 2, (values[2:, 1:-1] - values[:-2, 1:-1]) / 2
    across, down, both = float((du * du).mean()), float((dv * dv).mean()), float((du * dv).mean())
    return (across + down) / 2 - math.hypot((across - down) / 2, both)  # The lesser eigenvalue.


def _corners(size: Size) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    return (0, 0), (size[0], 0), (0, size[1])


def _region(piece: Piece, output: Image.Image, images: Sequence[Image.Image]) -> Region:
    affine = affine_of(piece, output.size)
    return make_region(affine, (0, 0, *output.size), images[piece.image_index].size, piece.image_index, 1.0)


def _with_blanks(piece: Piece, output: Image.Image, images: Sequence[Image.Image]) -> Region:
    """The region of a piece in other colours, which a change may have made one colour in places."""
    region, image = _region(piece, output, images), images[piece.image_index]
    return with_blanks(region, (0, 0, *output.size), output, affine_of(piece, output.size), image)


def _with_same_points(output: Image.Image, images: Sequence[Image.Image], pieces: Iterable[Piece]) -> Iterator[Piece]:
    """The pieces that have the output's pixels at a few points: they decide most cases."""
    places = [(int(x * output.width), int(y * output.height)) for x, y in _POINTS]
    pixels = [output.getpixel(place) for place in places]
    for piece in pieces:
        get, back, (left, top, *_) = images[piece.image_index].getpixel, inverse(piece.turn), piece.box
        shown = (transform_box((x, y, x + 1, y + 1), piece.size, back) for x, y in places)
        if all(get((left + x, top + y)) == pixel for (x, y, *_), pixel in zip(shown, pixels, strict=True)):
            yield piece


def _is_recoloured(
    output: Image.Image, images: Sequence[Image.Image], piece: Piece, known: dict[tuple[int, Box], Recoloured]
) -> bool:
    key = piece.image_index, piece.box
    if key not in known:
        known[key] = Recoloured(_crop(images[piece.image_index], piece))
    return known[key].shows(output if piece.turn == IDENTITY else transform_image(output, inverse(piece.turn)))


def _enlargement(piece: Piece, output: Image.Image) -> float:
    """By how much a piece was enlarged along both sides, the larger factor; 0 if one side is smaller than before."""
    across, down = (new / old for new, old in zip(output.size, piece.size, strict=True))
    return max(across, down) if min(across, down) >= 1 else 0.0


def _is_enlarged(output: Image.Image, images: Sequence[Image.Image], piece: Piece) -> bool:
    """Whether an output is a piece, enlarged and then put in other colours."""
    back = output if piece.turn == IDENTITY else transform_image(output, inverse(piece.turn))
    crop, enlarged = _crop(images[piece.image_index], piece), _enlargement(piece, output)
    tops = range(0, back.height - _BAND + 1, max(_BAND, back.height // _BANDS))
    bands = [(0, top, back.width, top + _BAND) for top in tops]
    shown = _stacked([back.crop(band) for band in bands])
    for first in (crop, crop.convert("L").convert("RGB")) if is_grey(output) else (crop,):
        if not may_show(_stacked([_part(first, back.size, _FILTERS[0], band) for band in bands]), shown):
            continue
        made = chain((first.resize(back.size, kind) for kind in _ENLARGING), _in_other_ways(first, back.size))
        if any(Recoloured(one, enlarged).shows(back) for one in made):
            return True
    return False


def _stacked(bands: Sequence[Image.Image]) -> Image.Image:
    return Image.fromarray(np.concatenate([np.asarray(band) for band in bands]))


def _is_copy(output: Image.Image, images: Sequence[Image.Image], piece: Piece) -> bool:
    back = output if piece.turn == IDENTITY else transform_image(output, inverse(piece.turn))
    return not _differ(_crop(images[piece.image_index], piece), back)


def _crop(image: Image.Image, piece: Piece) -> Image.Image:
    return image if piece.box == (0, 0, *image.size) else image.crop(piece.box)


def _differ(one: Image.Image, other: Image.Image, levels: int = 0) -> bool:
    """Whether two images of one size differ by more than so many levels."""
    difference = ImageChops.difference(one, other)
    if difference.getbbox() is None:  # Much faster than the extrema, and mostly the answer.
        return False
    return levels == 0 or max(high for _low, high in difference.getextrema()) > levels  # type: ignore[misc]


def _may_become(size: Size, other: Size) -> bool:
    """Whether an image is likely to be resized to a size: fitted, or stretched a little."""
    ratio = size[0] * other[1] / (size[1] * other[0])
    square = other[0] == other[1]
    return square or 1 / _MOST_ASPECT <= ratio <= _MOST_ASPECT


class _Resized:
    """Compares an output with pieces of other sizes."""

    def __init__(self, output: Image.Image, secret: int) -> None:
        self.output = output
        self._few = output.resize((64, 64), Image.Resampling.NEAREST)
        self._rng = np.random.default_rng((secret, zlib.crc32(self._few.tobytes()), *output.size))
        self._tiles = _tiles(self._few)
        self._backs: dict[str, Image.Image] = {}
        self._of_pieces: dict[tuple[int, Box], Image.Image] = {}
        self._patch = self._busiest()
        self._akin = 0

    def shows(self, image: Image.Image, piece: Piece) -> bool:
        """Whether the output is the piece, resized by one of the common filters."""
        key = piece.image_index, piece.box
        if key not in self._of_pieces:
            self._of_pieces[key] = _tiles(image.resize(self._few.size, Image.Resampling.NEAREST, piece.box))
        off = ImageChops.difference(transform_image(self._of_pieces[key], piece.turn), self._tiles)
        if np.asarray(off).mean() > _WIDE:
            return False
        back = self._back(piece.turn)
        left, top, right, bottom = transform_box(self._patch, self.output.size, inverse(piece.turn))
        box = int(left), int(top), int(right), int(bottom)
        patch, crop = back.crop(box), _crop(image, piece)
        # Between two pixels, rounding decides for one of them.
        repeated = np.asarray(_part(crop, back.size, Image.Resampling.NEAREST, box)) == np.asarray(patch)
        akin = _akin(_part(crop, back.size, _FILTERS[0], box), patch)
        if (not akin and repeated.mean() < _SAME) or self._akin >= _AKIN:
            return False
        self._akin += 1
        for kind in _FILTERS:
            for across_first in (True, False):
                if not _differ(_part(crop, back.size, kind, box, across_first), patch, 1):
                    if self._is_resized(crop, back, kind, across_first):
                        return True
        if repeated.mean() >= _SAME:
            turned = transform_image(crop, piece.turn)
            for kind in (Image.Resampling.NEAREST, Image.Resampling.BOX):
                if not _differ(turned.resize(self.output.size, kind), self.output):
                    return True
                if not _differ(crop.resize(back.size, kind), back):
                    return True
        if not akin or back.width * back.height > MOST:
            return False  # The whole output would be made each time.
        return any(not _differ(made, back, 1) for made in _in_other_ways(crop, back.size))

    def _is_resized(self, crop: Image.Image, back: Image.Image, kind: Image.Resampling, across_first: bool) -> bool:
        """Whether an image is a piece resized by a filter, up to a level; of large images, strips are compared."""
        width, height = back.size
        every, high = (_EVERY, _STRIP) if width * height > _LARGE else (height, height)
        for top in range(0, height, every):
            first = top + int(self._rng.integers(0, max(1, min(every, height - top) - high + 1)))
            box = 0, first, width, min(first + high, height)
            if _differ(_part(crop, back.size, kind, box, across_first), back.crop(box), 1):
                return False
        return True

    def _back(self, turn: str) -> Image.Image:
        if turn not in self._backs:
            self._backs[turn] = self.output if turn == IDENTITY else transform_image(self.output, inverse(turn))
        return self._backs[turn]

    def _busiest(self) -> Box:
        """A part of the output with much detail."""
        side = min(_PATCH, *self.output.size)
        few = np.asarray(self._few.convert("L"), np.int16)
        busy = np.abs(np.diff(few, axis=0))[:, 1:] + np.abs(np.diff(few, axis=1))[1:]
        row, column = divmod(int(busy.argmax()), busy.shape[1])
        x = min(max(round((column + 1) * self.output.width / 64) - side // 2, 0), self.output.width - side)
        y = min(max(round((row + 1) * self.output.height / 64) - side // 2, 0), self.output.height - side)
        return x, y, x + side, y + side


def _tiles(few: Image.Image) -> Image.Image:
    return few.reduce(few.width // _TILES)


def _part(crop: Image.Image, size: Size, kind: Image.Resampling, box: Box, across_first: bool = True) -> Image.Image:
    """A box of an image resized to (width, height), which is made of only the pixels that it takes.

    A resize has two passes, across and down, and Pillow decides which is first. The first one clips what lies outside 0
    to 255, so that the order shows at sharp edges.
    """
    left, top, right, bottom = box
    (x, across), (y, down) = (
        (start * old / new, end * old / new)
        for start, end, old, new in ((left, right, crop.width, size[0]), (top, bottom, crop.height, size[1]))
    )
    if kind == Image.Resampling.NEAREST:
        return crop.resize((right - left, bottom - top), kind, (x, y, across, down))
    if across_first:
        low, high = _taken(y, down, crop.height, size[1])
        rows = crop.crop((0, low, crop.width, high)).resize(
            (right - left, high - low), kind, (x, 0, across, high - low)
        )
        return rows.resize((right - left, bottom - top), kind, (0, y - low, right - left, down - low))
    low, high = _taken(x, across, crop.width, size[0])
    columns = crop.crop((low, 0, high, crop.height)).resize((high - low, bottom - top), kind, (0, y, high - low, down))
    return columns.resize((right - left, bottom - top), kind, (x - low, 0, across - low, bottom - top))


def _taken(start: float, end: float, old: int, new: int) -> tuple[int, int]:
    """The range of pixels that a resized range takes."""
    reach = math.ceil(_SUPPORT * max(1.0, old / new)) + 1
    return max(0, math.floor(start) - reach), min(old, math.ceil(end) + reach)


def _akin(one: Image.Image, other: Image.Image) -> bool:
    """Whether two parts may be the same, resized by two filters."""
    a, b = (np.asarray(part, np.int16) for part in (one, other))
    off = a - b
    return bool(np.abs(off.mean((0, 1))).max() <= _NEAR and np.abs(off).mean() <= _FAR)


def _in_other_ways(crop: Image.Image, size: Size) -> Iterator[Image.Image]:
    """A piece resized as thumbnails are, reduced by whole factors, and by OpenCV, where it is installed."""
    shrinks = [old / new for old, new in zip(crop.size, size, strict=True)]
    if max(shrinks) >= _REDUCED:
        yield crop.resize(size, Image.Resampling.BICUBIC, reducing_gap=2.0)
    factor = round(max(shrinks))
    if factor > 1 and tuple(-(-side // factor) for side in crop.size) == size:
        yield crop.reduce(factor)
    try:
        import cv2
    except ImportError:
        return
    pixels = np.asarray(crop)
    ways = (cv2.INTER_AREA, cv2.INTER_LINEAR) if max(shrinks) > 1 else ()
    for way in (cv2.INTER_CUBIC, *ways, cv2.INTER_LANCZOS4):
        yield Image.fromarray(cv2.resize(pixels, size, interpolation=way))
