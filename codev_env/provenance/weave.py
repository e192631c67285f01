"""A woven pattern of two colours that survives any change of colours: contrast, thresholds, edges, palettes, plots.

The image is the product of a sequence of bars along x and another along y. Any operation on single pixels leaves a
product of two levels, and blur, edges and resizes leave something separable, so both sequences can be read off an
output by its strongest product of a row and a column. Each then says, alone, which part of the image it shows, at which
scale and in which direction. The sequences have structure at every scale: of five bars, most are as the bar five times
as wide that they lie in.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from codev_env.geometry import iou
from codev_env.provenance.agreement import box_sum
from codev_env.provenance.bars import CLEAR, Line, bank_of, bars, find_line, sharpness
from codev_env.provenance.kept import kept

Array = NDArray[np.floating]
Size = tuple[int, int]
Bounds = tuple[int, int, int, int]

COLOURS = ((52, 70, 140), (226, 178, 96))
"""They differ in red, green, blue, brightness, hue and saturation, and leave room for more contrast."""
_SIDE = 512
_MOST = 0.97
_FOLDED = 0.75
"""How clear stretches must be in folded images, where much else looks like edges."""
_EQUAL, _STRETCHED = 0.03, 0.25
"""Difference of the scales of both axes, as a logarithm, up to which they are equal, and what others are worth less."""
_BORDER = 2
"""Lines at a border at which an operation on neighbourhoods may leave nothing."""
_PARTS, _THIN = 4, 28
"""Parts of an output that are read, and lines that each has at least: fewer are like some stretch by luck."""
_REST, _LABELS, _LINE = 0.15, 0.4, 4
"""Shares of the detail up to which nothing is looked for outside of clear parts, as a rule and in figures, which have
labels; pixels of the frame around these parts."""
_SAME, _GAP = 0.5, 4
"""Likeness of lines that show the same bars, and lines in a row without it where two crops meet."""
_ALL = 0.9
"""Share of a clear part that shows the pattern."""
_SHARED = 0.1
"""Overlap from which on two parts were read as one."""
_ENLARGED = 0.67
"""Pixels of the image per pixel of an output, below which edges may be lines within those of the pattern."""
_CRISP = 0.7
"""Share of the contrast that some neighbours differ by, unless the output was enlarged or blurred."""


@kept(lambda size, index=0: size[0] * size[1])
def weave(size: Size, index: int = 0) -> Image.Image:
    """The pattern for an input image of (width, height), of that index; cached."""
    across, down = (bars(length, 2 * index + axis) > 0 for axis, length in enumerate(size))
    rows = np.stack([~across, across]).astype(np.uint8)  # Every row of the image is one of two.
    pattern = Image.fromarray(rows[down.astype(np.intp)])
    pattern.putpalette([level for colour in COLOURS for level in colour])
    return pattern.convert("RGB")


class WovenPart(NamedTuple):
    """A part of an output and what it shows: its bounds (left, top, right, bottom), the map, and how it was read."""

    bounds: tuple[int, int, int, int]
    affine: Array
    found: NDArray[np.bool_]
    """Where the part shows the pattern, over an even grid of the part."""
    sharp: float
    """How much of the finest bars is left, 0 to 1."""
    score: float
    """How clearly the stretches of both axes were found, 0 to 1."""

    @property
    def is_clear(self) -> bool:
        """Whether nearly all of it shows a stretch of each axis clearly."""
        return self.score >= CLEAR and float(self.found.mean()) >= _ALL

    @property
    def alone(self) -> WovenPart:
        """The same in an output that is cut to its bounds."""
        left, top, right, bottom = self.bounds
        start = self.affine @ (left, top, 1.0)
        return self._replace(
            bounds=(0, 0, right - left, bottom - top), affine=np.column_stack([self.affine[:, :2], start])
        )


def read_weave(probe: Image.Image, size: Size, index: int = 0) -> list[WovenPart]:
    """Find the parts of an output that show the pattern, largest first.

    Args:
        probe: The image that a program returned for the pattern.
        size: (width, height) of the input image.
        index: Which input image it is.
    """
    shrink = max(1, -(-max(probe.size) // (2 * _SIDE)))
    grey = _brightness(np.asarray(probe.reduce(shrink) if shrink > 1 else probe, np.float32))
    if np.ptp(grey) < 2:
        return []
    whole = (0, 0, grey.shape[1], grey.shape[0])
    detail = _detail(grey)
    panels: list[WovenPart] = []
    rest = _LABELS if _is_framed(grey) else _REST
    if rest == _LABELS:
        panels = [one for one in _readable(grey, _parts(detail), size, index) if one.score >= CLEAR]
    if _outside(detail, panels) > rest:
        panel = _read(grey, whole, size, index)
        panels = [panel] if panel is not None and panel.found.mean() > _MOST else []
        if not panels:
            panels = _readable(grey, _parts(detail), size, index)
            if panel is not None and panel.score >= CLEAR:
                panels = max([panel], panels, key=_all_found)
    if _all_found(panels) < _MOST * grey.size and _outside(detail, panels) > rest:
        for parts in _crops(grey):
            meeting = [one for one in _readable(grey, parts, size, index) if one.score >= CLEAR]
            apart = all(iou(one.bounds, other.bounds) < _SHARED for one, other in combinations(meeting, 2))
            panels = max(panels, meeting if apart and len(meeting) > 1 else [], key=_all_found)
    scale = np.diag([1 / shrink, 1 / shrink, 1.0])
    ends = np.array([probe.width, probe.height] * 2)
    return [
        panel._replace(
            bounds=tuple(np.minimum(np.array(panel.bounds) * shrink, ends).tolist()), affine=panel.affine @ scale
        )
        for panel in panels
    ]


def _readable(grey: Array, parts: list[Bounds], size: Size, index: int) -> list[WovenPart]:
    return [one for part in parts if (one := _read(grey, part, size, index)) is not None]


def _all_found(panels: list[WovenPart]) -> float:
    """Pixels that show the pattern."""
    areas = ((right - left) * (bottom - top) for left, top, right, bottom in (panel.bounds for panel in panels))
    return sum(float(panel.found.mean()) * area for panel, area in zip(panels, areas, strict=True))


def _brightness(pixels: Array) -> Array:
    """The component of colours that varies most within a plain frame, if there is one, shape (rows, columns).

    A white frame would decide itself: the ends of some colour maps are equally dark.
    """
    if pixels.shape[0] * pixels.shape[1] < 64:
        return pixels.mean(-1)
    few = pixels.reshape(-1, 3)[:: max(1, pixels.shape[0] * pixels.shape[1] // 8192)]
    inside = few[np.abs(few - pixels[0, 0]).max(-1) > 2] if _is_framed(pixels) else few
    _, axes = np.linalg.eigh(np.cov((inside if len(inside) >= 64 else few).T))
    return np.asarray(pixels @ axes[:, -1].astype(np.float32))


def _crops(grey: Array) -> Iterator[list[Bounds]]:
    """The rectangles that meet where all lines begin to show other bars, cut across or down first."""
    for turned in (False, True):
        lines = grey.T if turned else grey
        parts = [(a, b, c, d) for a, c in _alike(lines.T) for b, d in _alike(lines[:, a:c])]
        if len(parts) > 1:
            yield _largest([(b, a, d, c) for a, b, c, d in parts] if turned else parts)


def _alike(lines: Array) -> list[tuple[int, int]]:
    """Runs of lines that show the same bars: they are the same but for their sign."""
    centred = lines - lines.mean(1, keepdims=True)
    centred /= np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-6)
    runs: list[tuple[int, int]] = []
    start, last, usual = 0, 0, centred[0]
    for at, line in enumerate(centred):
        like = float(line @ usual)
        if abs(like) > _SAME:
            usual = usual + (line * np.sign(like) - usual) / min(at - start + 1, _THIN)
            usual = usual / max(float(np.linalg.norm(usual)), 1e-6)
            last = at
        elif at - last >= _GAP:
            runs.append((start, last + 1))
            start, last, usual = last + 1, at, line
    runs.append((start, last + 1))
    return [run for run in runs if run[1] - run[0] >= _THIN]


def _detail(grey: Array) -> Array:
    """By how much each pixel differs from those to its right and below, shape (rows, columns)."""
    detail = np.zeros_like(grey)
    detail[:, :-1] += np.abs(np.diff(grey, axis=1))
    detail[:-1] += np.abs(np.diff(grey, axis=0))
    return detail


def _outside(detail: Array, panels: list[WovenPart]) -> float:
    """The share of the detail that no part holds, nor the line around it."""
    rest = detail.copy()
    for left, top, right, bottom in (panel.bounds for panel in panels):
        rest[max(0, top - _LINE) : bottom + _LINE, max(0, left - _LINE) : right + _LINE] = 0
    return float(rest.sum()) / max(float(detail.sum()), 1e-9)


def _is_framed(pixels: Array) -> bool:
    """Whether an image, in grey or in colours, has plain borders all around, as a figure."""
    lines = pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]
    return all(np.ptp(line, axis=0).max() < 2 for line in lines)


def _parts(detail: Array) -> list[Bounds]:
    """The rectangles that are full of detail, largest first, at most four."""
    if not detail.any():
        return []
    parts = []
    for left, right in _runs(detail.mean(0)):
        for top, bottom in _runs(detail[:, left:right].mean(1)):
            inner = _runs(detail[top:bottom, left:right].mean(0))
            if inner:
                a, b = max(inner, key=lambda run: run[1] - run[0])
                parts.append((left + a, top, left + b, bottom))
    return _largest([part for part in parts if min(part[2] - part[0], part[3] - part[1]) >= _THIN])


def _largest(parts: list[Bounds]) -> list[Bounds]:
    return sorted(parts, key=lambda p: (p[0] - p[2]) * (p[3] - p[1]))[:_PARTS]


def _runs(energy: Array) -> list[tuple[int, int]]:
    """Runs of lines with detail; gaps of a few lines, between two bars, do not end one."""
    gap = max(6, len(energy) // 40)
    wide = np.convolve(energy, np.ones(gap) / gap, "same") if len(energy) > 2 * gap else energy
    busy = np.flatnonzero(wide > 0.15 * np.quantile(wide, 0.9))
    if not len(busy):
        return []
    breaks = np.flatnonzero(np.diff(busy) > 1)
    starts, ends = np.r_[busy[0], busy[breaks + 1]], np.r_[busy[breaks], busy[-1]] + 1
    runs = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        own = np.flatnonzero(energy[start:end] > 0.2 * np.median(energy[start:end]))
        if len(own):
            runs.append((start + int(own[0]), start + int(own[-1]) + 1))
    if runs and runs[-1][1] == len(energy) - 1:
        runs[-1] = runs[-1][0], len(energy)
    return runs


class _Lines(NamedTuple):
    """The stretches of both axes that a part shows: by an image, the signals that were read off it, along its axes."""

    grey: Array
    signals: tuple[Array, Array]
    lines: tuple[Line, Line]
    axes: tuple[int, int]
    score: float


def _lines(grey: Array, part: Bounds, size: Size, index: int) -> _Lines | None:
    """Find the stretches that a part shows along columns and rows: the clearest, of equal scales if possible."""
    left, top, right, bottom = part
    best: _Lines | None = None
    for folded in (False, True):
        # Edges of both signs cancel out, unless they are folded; their means over lines show them then.
        grey = np.abs(grey - np.median(grey[top:bottom, left:right])) if folded else grey
        inside = grey[top:bottom, left:right]
        rows, columns = (inside.mean(1), inside.mean(0)) if folded else _product(inside)
        for axes in ((0, 1), (1, 0)):  # Turned, what runs along the output's rows is y of the image.
            line_u = find_line(columns, size[axes[0]], 2 * index + axes[0], usual=folded)
            if line_u is None:
                continue
            scale = abs(line_u.end - line_u.start) / len(columns)
            line_v = find_line(rows, size[axes[1]], 2 * index + axes[1], scale, usual=folded)
            if line_v is None:
                continue
            ratio = abs(line_v.end - line_v.start) / len(rows) / scale
            score = min(line_u.score, line_v.score) - (_STRETCHED if abs(np.log(ratio)) > _EQUAL else 0.0)
            if score >= folded * _FOLDED and (best is None or score > best.score):
                best = _Lines(grey, (columns, rows), (line_u, line_v), axes, score)
            if score >= CLEAR:
                return best
    return best


def _read(grey: Array, part: Bounds, size: Size, index: int) -> WovenPart | None:
    """Find the stretches of both axes that a part shows; its bounds are put right, to the line."""
    left, top, right, bottom = part
    read = _lines(grey, part, size, index)
    if read is None:
        return None
    grey, (columns, rows), (line_u, line_v), axes, score = read
    inside = grey[top:bottom, left:right]
    affine = np.zeros((2, 3))
    for row, column, line, length, start in (
        (axes[0], 0, line_u, inside.shape[1], left),
        (axes[1], 1, line_v, inside.shape[0], top),
    ):
        affine[row, column] = (line.end - line.start) / length
        affine[row, 2] = line.start - start * affine[row, column]
    edges = line_u.edges or line_v.edges
    models = []
    for axis, column in zip(axes, (0, 1), strict=True):
        ends = affine[axis, 2] + affine[axis, column] * np.array([0, grey.shape[1 - column]])
        bank = bank_of(size[axis], 2 * index + axis)
        models.append(bank.shown(ends[:1], ends[1:], grey.shape[1 - column], edges)[0])
    top, bottom = _extent(grey[:, left:right], models[0][left:right], (top, bottom))
    if bottom - top < 8:
        return None
    left, right = _extent(grey[top:bottom].T, models[1][top:bottom], (left, right))
    if right - left < 8:
        return None
    # Edges and blurs leave nothing to see along the border.
    left, right = _snapped(left, right, models[0], edges)
    top, bottom = _snapped(top, bottom, models[1], edges)
    thin = edges and float(np.abs(affine[:, :2]).max()) < _ENLARGED
    found = _where(grey[top:bottom, left:right], models[1][top:bottom], models[0][left:right], edges, thin)
    sharp = min(
        sharpness(one, line, size[axis], 2 * index + axis)
        for one, line, axis in ((columns, line_u, axes[0]), (rows, line_v, axes[1]))
    )
    crisp = float(np.quantile(np.abs(np.diff(inside, axis=1)), 0.97)) > _CRISP * float(
        np.ptp(np.quantile(inside, (0.02, 0.98)))
    )
    sharp = min(1.0, 1.25 * sharp) if crisp else sharp**2
    return WovenPart((left, top, right, bottom), affine, found, sharp, score)


def _snapped(start: int, end: int, model: Array, edges: bool) -> tuple[int, int]:
    """A run of lines, from the first or to the last of all if that is near, or if no edge should be seen before."""
    before, after = model[_BORDER : start - 1], model[end + 1 : -_BORDER]
    first = start <= _BORDER or (edges and float(np.abs(before).max(initial=0.0)) < 0.3)
    last = len(model) - end <= _BORDER or (edges and float(np.abs(after).max(initial=0.0)) < 0.3)
    return (0 if first else start), (len(model) if last else end)


def _extent(lines: Array, model: Array, inner: tuple[int, int]) -> tuple[int, int]:
    """The first and last of the lines, around a run of them, that are like the model."""
    a = lines - lines.mean(1, keepdims=True)
    b = model - model.mean()
    alike = np.abs(a @ b) / np.maximum(np.sqrt((a * a).sum(1) * (b * b).sum()), 1e-3)
    start, end = inner
    like = alike > 0.4 * np.quantile(alike[start:end], 0.7)
    gap = max(8, (end - start) // 8)
    hits = np.flatnonzero(like)
    within = hits[(hits >= start) & (hits < end)]
    if not len(within):
        return start, start
    first = last = 0
    first, last = int(within[0]), int(within[-1])
    for hit in hits[hits < first][::-1].tolist():
        if first - hit > gap:
            break
        first = hit
    for hit in hits[hits > last].tolist():
        if hit - last > gap:
            break
        last = hit
    return first, last + 1


def _product(grey: Array) -> tuple[Array, Array]:
    """The column and the row whose product explains most of an image without the means of its rows and columns.

    Of edges, which are the same on both sides of a bar, the means say more.
    """
    means = grey.mean(1), grey.mean(0)
    centred = grey - means[0][:, None] - means[1][None] + grey.mean()
    row = centred[int(np.argmax((centred**2).sum(1)))]
    column = centred @ row
    for _ in range(8):
        column = centred @ row
        column /= max(float(np.linalg.norm(column)), 1e-9)
        row = column @ centred
    explained = float((row**2).sum()) / max(float((centred**2).sum()), 1e-9)
    by_means = [float(one.var()) * n for one, n in zip(means, grey.shape[::-1], strict=True)]
    if explained < 0.25 and min(by_means) > 0:
        return means
    return column.astype(float), row.astype(float)


def _where(grey: Array, column: Array, row: Array, edges: bool, thin: bool) -> NDArray[np.bool_]:
    """Where an image is like the product of two sequences, by what is around each place; also if it has thin edges."""
    # Filters leave edges along both axes, or where both meet.
    models = [np.outer(column, row)] + edges * [np.maximum(np.abs(column)[:, None], np.abs(row)[None])]
    if thin:
        grey, *models = (box_sum(one, 1) for one in (grey, *models))
    cell = max(4, max(grey.shape) // 48)
    side = 5

    def local(values: Array) -> Array:
        small = np.asarray(Image.fromarray(values.astype(np.float32)).reduce(cell), np.float64)
        padded = np.pad(small, side // 2, mode="edge")
        count, width = small.shape
        lines = np.add.reduce([padded[k : k + count] for k in range(side)])
        return np.asarray(np.add.reduce([lines[:, k : k + width] for k in range(side)]) / side**2)

    a, aa = local(grey), local(grey * grey)
    found = []
    for model in models:
        b = local(model)
        cov, bb = local(grey * model) - a * b, local(model * model)
        alike = cov / np.sqrt(np.maximum((aa - a * a) * (bb - b * b), 1e-6))
        sign = np.sign(np.median(alike)) or 1.0
        found.append(sign * alike > 0.25)
    return np.asarray(max(found, key=np.count_nonzero))
