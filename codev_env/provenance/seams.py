"""Where outputs may be cut into the images that a program put side by side: evenly, at margins, or by sizes of cuts.

Crops of one place beside each other show the same bars and coordinates twice: a map that explains half of an output and
tolerates the other half is worth less than two maps that each explain all of their half.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from codev_env.provenance.regions import Bools, Bounds

Pixels = NDArray[np.uint8]
Size = tuple[int, int]
Layout = tuple[Bounds, ...]

SIZES = 6
"""Sizes of cuts that layouts are made of, at most."""
_MOST = 8
"""Parts of one layout."""
_LEAST_SHARE, _LEAST_SIDE = 0.04, 16
"""Of the output, that a part fills; pixels of its shorter side."""
_MARGIN = 2
"""Lines of one colour that separate two parts, at least."""
_GAP = 0.25
"""Of the side of a part: the widest gap between equal parts."""
_DEPTH = 3
"""Cuts across and down, in turns, at margins."""
_GRIDS = ((2, 1), (1, 2), (3, 1), (1, 3), (2, 2))
"""Columns and rows of even layouts, the likeliest first."""


def layouts(output: Image.Image, sizes: Iterable[Size]) -> list[Layout]:
    """Ways in which an output may be a collage, the likeliest first; a layout leaves out margins and labels.

    Args:
        output: The image that the program returned.
        sizes: (width, height) of what the program cut out: by its ratio, a part's width follows from its height.
    """
    pixels = np.asarray(output)
    whole = (0, 0, *output.size)
    inner = _trimmed(pixels, whole)
    blocks = _blocks(pixels, inner, _DEPTH)
    found: dict[Layout, None] = {}
    if 1 < len(blocks) <= _MOST:
        found[tuple(blocks)] = None
    frames = dict.fromkeys((whole, inner, *(blocks if len(blocks) == 1 else ())))
    sizes = dict.fromkeys(sizes)
    for frame in frames:
        for columns, rows in _GRIDS[:2]:
            found[_even(frame, columns, rows)] = None
        for size in sizes:
            found |= dict.fromkeys(_by_ratio(frame, size))
        for columns, rows in _GRIDS[2:]:
            found[_even(frame, columns, rows)] = None
    least = _LEAST_SHARE * output.width * output.height
    return [layout for layout in found if layout and all(_is_part(part, least) for part in layout)]


def _is_part(part: Bounds, least: float) -> bool:
    left, top, right, bottom = part
    return min(right - left, bottom - top) >= _LEAST_SIDE and (right - left) * (bottom - top) >= least


def _even(frame: Bounds, columns: int, rows: int) -> Layout:
    """Equal parts, without the pixels that are left over; none if that is more than a few."""
    left, top, right, bottom = frame
    width, height = (right - left) // columns, (bottom - top) // rows
    return tuple(
        (left + x * width, top + y * height, left + (x + 1) * width, top + (y + 1) * height)
        for y in range(rows)
        for x in range(columns)
    )


def _by_ratio(frame: Bounds, size: Size) -> Iterator[Layout]:
    """Rows and columns of images of one ratio that fill the frame's height or width, and such an image with a rest."""
    left, top, right, bottom = frame
    for along, across, old in ((right - left, bottom - top, size), (bottom - top, right - left, size[::-1])):
        upright = old is not size
        side = round(old[0] * across / old[1])
        if not 0 < side < along:
            continue
        count = along // side
        spare = along - count * side
        runs = []
        if 2 <= count <= _MOST and spare <= _GAP * side * (count - 1):
            starts = [round(k * (side + spare / (count - 1))) for k in range(count)]
            runs.append([(start, start + side) for start in starts])
        runs += [[(0, side), (side, along)], [(along - side, along), (0, along - side)]]
        for run in runs:
            yield tuple(
                (left, top + start, right, top + end) if upright else (left + start, top, left + end, bottom)
                for start, end in run
            )


def _blocks(pixels: Pixels, box: Bounds, depth: int) -> list[Bounds]:
    """The parts of a box that margins of one colour separate, without those too small to be images."""
    least = _LEAST_SHARE * pixels.shape[0] * pixels.shape[1]
    left, top, right, bottom = box
    if not _is_part(box, least):
        return []
    inside = pixels[top:bottom, left:right]
    for axis in (0, 1) if depth else ():
        runs = _between(_plain(inside, axis))
        if len(runs) > 1:
            parts = [
                (left + start, top, left + end, bottom) if axis == 0 else (left, top + start, right, top + end)
                for start, end in runs
            ]
            return [block for part in parts for block in _blocks(pixels, _trimmed(pixels, part), depth - 1)]
    return [box]


def _plain(inside: Pixels, axis: int) -> Bools:
    """Which columns (axis 0) or rows (axis 1) have one colour."""
    lines = inside if axis else inside.swapaxes(0, 1)
    plain = (lines[:, 0] == lines[:, -1]).all(-1) & (lines[:, 0] == lines[:, lines.shape[1] // 2]).all(-1)
    plain[plain] = (lines[plain] == lines[plain][:, :1]).all((1, 2))
    return np.asarray(plain)


def _between(plain: Bools) -> list[tuple[int, int]]:
    """The runs of lines between margins; single plain lines are part of an image."""
    edges = np.flatnonzero(np.diff(np.r_[False, plain, False]))
    ends = [0]
    for start, end in edges.reshape(-1, 2).tolist():
        if end - start >= _MARGIN:
            ends += [start, end]
    ends.append(len(plain))
    return [(start, end) for start, end in zip(ends[::2], ends[1::2], strict=True) if end > start]


def _trimmed(pixels: Pixels, box: Bounds) -> Bounds:
    """A box without its plain borders; the same where all of it is plain."""
    left, top, right, bottom = box
    inside = pixels[top:bottom, left:right]
    busy = [np.flatnonzero(~_plain(inside, axis)) for axis in (0, 1)]
    if not all(len(lines) for lines in busy):
        return box
    (first, last), (upper, lower) = ((int(lines[0]), int(lines[-1]) + 1) for lines in busy)
    return left + first, top + upper, left + last, top + lower
