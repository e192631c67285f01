"""Proves on the real image that an output shows a region, and which parts of it: disturbed cells must show, others not.

A quarter of the cells of the region are replaced by the lightest and the darkest colours around them, which crosses any
threshold and makes edges, and leaves the colours of the image as a whole as they are. Of each four cells it is the one
that looks least like the region, or any of them. Where the output shows the
region, it changes in these cells and stays as it was between them. A program that behaves otherwise than on the real
image changes between them; one that shows something else, or has painted over a place, does not change in them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from codev_env.provenance import coordinates as geometry
from codev_env.provenance.agreement import box_sum
from codev_env.provenance.halves import whole_cells
from codev_env.provenance.regions import GRID, Bounds, scales

Array = NDArray[np.floating]
Bools = NDArray[np.bool_]
Pixels = NDArray[np.uint8]

_CELL, _SHOWN = 6, 4
"""Least side of a cell in pixels of the image, and in pixels of the output."""
_CONTRAST, _RARE = 48, 0.01
"""Levels between a dark and a light colour; share of the pixels that are the darkest or lightest of an output."""
_CHANGE, _SPILL, _MOST = 6.0, 0.3, 0.75
"""Levels by which a disturbed cell changes at least; shares of that by which others may, as a rule and at most."""
_UNUSUAL, _LEVELS, _FEW, _WEAKER, _MUCH = 3.0, 3.0, 0.34, 0.35, 0.66
_BESIDE = 2
"""Known groups next to an unknown one that decide what it shows."""
_CROWD = 0.4
"""Share of the groups around one that hides a part of its cell which do so too, if that counts."""
_SIDE = 640
_REACHED = 0.6
"""Share of a strip around a part that shows the region, if the part goes on there."""
_FITTED, _ROUNDS, _STEEPEST = 4000, 8, 4.0
"""Of the change of levels: pixels it is taken from, steps of the fit, and the most contrast that it adds or takes."""


class ProofReading(NamedTuple):
    """The places of a part by a proof, over the grid of `Region.seen`.

    Attributes:
        seen: Which show the region.
        sharp: How clearly they show both halves of disturbed cells.
        hidden: Which surely do not, whatever another proof says, where the program makes of each colour one colour;
            `None` where it does something else.
    """

    seen: Bools
    sharp: float
    hidden: Bools | None = None


class Proof:
    """A disturbed image, and how to read what a program made of it.

    Args:
        image: The input image.
        affine: The map from the output to the image that is to be proved.
        bounds: The part of the output that shows the region.
        rng: Draws which cells are disturbed.
        unlike: Places of the part that look different from the region, over an even grid; they are disturbed first.
        output: The image that the program returned.
        wide: The part with what is around it that is disturbed as well.
        rearranged: Fill the cells with the colours that they have, in other places: what a program derives from the
            colours of a whole, such as Otsu's threshold, equalisation or a palette, stays.
    """

    def __init__(
        self,
        image: Image.Image,
        affine: Array,
        bounds: Bounds,
        rng: np.random.Generator,
        unlike: Bools | None = None,
        *,
        output: Image.Image,
        wide: Bounds,
        rearranged: bool = False,
    ) -> None:
        self._affine, self._bounds, self._wide = affine, bounds, wide
        corners = np.array(geometry.polygon_of(affine, wide))
        low = np.clip(np.floor(corners.min(0)), 0, np.array(image.size) - 1).astype(int)
        high = np.clip(np.ceil(corners.max(0)), low + 1, image.size).astype(int)
        self._low = low
        self._cell = max(_CELL, round(_SHOWN * max(scales(affine))))
        left, top, right, bottom = (int(side) for side in (*low, *high))
        region = np.asarray(image.crop((left, top, right, bottom)))
        height, width = region.shape[:2]
        rows, columns = -(-height // (2 * self._cell)), -(-width // (2 * self._cell))
        self._chosen = rng.integers(0, 4, (rows, columns))  # Which cell of each four is disturbed.
        if unlike is not None:
            self._choose(unlike)
        y, x = np.arange(height)[:, None], np.arange(width)[None]
        mask = self._disturbed(x, y)
        self._swapped = rng.integers(0, 2, (rows, columns)) == 1  # In which cells the second half is the dark one.
        self._rearranged = rearranged
        half = self._dark(x, y)
        levels = self._levels(output, height, width)
        if rearranged:
            cell = y // self._cell * (2 * columns) + x // self._cell
            changed = _rearranged(region, levels, mask, half, cell)
        else:
            dark, light = _extremes(region, levels)
            changed = np.where(mask[..., None], np.where(half[..., None], dark, light), region)
        self.image = image.copy()
        self.image.paste(Image.fromarray(changed), (left, top))

    def _choose(self, unlike: Bools) -> None:
        """Choose, of each four cells, the one in which most places look different."""
        left, top, right, bottom = self._bounds
        v, u = ((np.arange(n) + 0.5) / n for n in unlike.shape)
        x, y = (self._along(axis, left + u * (right - left), top + v * (bottom - top)) for axis in (0, 1))
        column, row = (np.broadcast_to(along // self._cell, unlike.shape)[unlike] for along in (x, y))
        rows, columns = self._chosen.shape
        inside = (column >= 0) & (row >= 0) & (column < 2 * columns) & (row < 2 * rows)
        counts = np.zeros((rows, columns, 4), np.intp)
        np.add.at(counts, (row[inside] // 2, column[inside] // 2, 2 * (row[inside] % 2) + column[inside] % 2), 1)
        self._chosen = np.where(counts.any(-1), counts.argmax(-1), self._chosen)

    def _levels(self, output: Image.Image, height: int, width: int) -> Array:
        """How light each pixel of the region is in the output; of those that it does not show, the nearest one."""
        left, top, right, bottom = self._wide
        back = np.linalg.inv(np.vstack([self._affine, (0.0, 0.0, 1.0)]))
        x, y = np.arange(width)[None] + self._low[0] + 0.5, np.arange(height)[:, None] + self._low[1] + 0.5
        u, v = (
            np.clip(np.floor(by_x * x + by_y * y + start), low, high - 1).astype(np.intp)
            for (by_x, by_y, start), low, high in zip(back[:2], (left, top), (right, bottom), strict=True)
        )
        return np.asarray(output, np.float32).mean(-1)[v, u]

    def _disturbed(self, x: NDArray[Any], y: NDArray[Any]) -> Bools:
        """Whether pixels, by their place within the region, lie in a disturbed cell."""
        column, row = x // self._cell, y // self._cell
        rows, columns = self._chosen.shape
        group = self._chosen[np.clip(row // 2, 0, rows - 1), np.clip(column // 2, 0, columns - 1)]
        return np.asarray(group == 2 * (row % 2) + column % 2)

    def _dark(self, x: NDArray[Any], y: NDArray[Any]) -> Bools:
        """Whether pixels, by their place within the region, lie in the dark half of their cell."""
        rows, columns = self._swapped.shape
        size = 2 * self._cell
        swapped = self._swapped[np.clip(y // size, 0, rows - 1), np.clip(x // size, 0, columns - 1)]
        return np.asarray((x % self._cell < self._cell // 2) ^ swapped)

    def reach(self, output: Image.Image, probe: Image.Image) -> Bounds:
        """The part and those strips around it that show the region too; arguments as of `read`."""
        reading = None if self._wide == self._bounds else self.read(output, probe, self._wide)
        if reading is None:
            return self._bounds
        seen, (left, top, right, bottom) = reading.seen, self._wide
        # The grid's lines at the sides of the part.
        columns, rows = (
            [round((at - low) * count / (high - low)) for at in sides]
            for low, high, sides, count in (
                (left, right, self._bounds[0::2], seen.shape[1]),
                (top, bottom, self._bounds[1::2], seen.shape[0]),
            )
        )
        inner = slice(*rows), slice(*columns)
        strips = (
            seen[inner[0], : columns[0]],
            seen[: rows[0], inner[1]],
            seen[inner[0], columns[1] :],
            seen[rows[1] :, inner[1]],
        )
        reached = [
            new if strip.size and strip.mean() >= _REACHED else old
            for old, new, strip in zip(self._bounds, self._wide, strips, strict=True)
        ]
        return reached[0], reached[1], reached[2], reached[3]

    def read(self, output: Image.Image, probe: Image.Image, bounds: Bounds | None = None) -> ProofReading | None:
        """Which places of the part show the region, and how sharp; `None` if the claim is wrong.

        Args:
            output: The image that the program returned.
            probe: The one it returned for the disturbed image.
            bounds: Another part than the one that was claimed.
        """
        left, top, right, bottom = bounds = bounds or self._bounds
        # Points of the output, at most so many a side, and the change there.
        us, vs = (
            (start + (np.arange(n) + 0.5) * (end - start) / n).astype(np.intp)
            for start, end in ((left, right), (top, bottom))
            for n in (min(end - start, _SIDE),)
        )
        take = np.ix_(vs - top, us - left)
        other = probe.crop(bounds)
        x, y = (self._along(axis, us + 0.5, vs + 0.5) for axis in (0, 1))
        disturbed = self._disturbed(x, y)
        rows, columns = self._chosen.shape
        size = 2 * self._cell
        inside = (x >= 0) & (y >= 0) & (x < columns * size) & (y < rows * size)
        group = np.where(inside, y // size * columns + x // size, rows * columns)
        third = self._cell // 3  # Operations on neighbourhoods reach out of disturbed cells.
        core = (np.abs(x % self._cell - self._cell // 2) <= third // 2) & (
            np.abs(y % self._cell - self._cell // 2) <= third // 2
        )
        cells = rows * columns + 1
        hits, others = np.flatnonzero(disturbed & inside), np.flatnonzero(~disturbed & inside & core)
        pair = (np.asarray(output.crop(bounds))[take], np.asarray(other)[take])
        change = _change(pair[0], pair[1], others)
        group, moved = group.ravel(), change.ravel()
        sums = [
            np.bincount(group[side], weight, cells)[:-1].reshape(rows, columns)
            for side in (hits, others)
            for weight in (moved[side], None)
        ]
        known = (sums[1] > 0) & (sums[3] > 0)
        if not known.any():
            return None
        hit, rest = (sums[k] / np.maximum(sums[k + 1], 1) for k in (0, 2))
        usual = float(np.median(rest[known]))
        if usual > _SPILL * float(np.median(hit[known])):
            return None
        # A strip of a cell shows where most of it is covered: a cell changes about as much as those that change most.
        least = max(_CHANGE, _WEAKER * float(np.quantile(hit[known], _MUCH)))
        # Where more changes than elsewhere though it was not disturbed, the real run showed something else.
        few = np.bincount(group[others[moved[others] > _LEVELS]], minlength=cells)[:-1].reshape(rows, columns)
        calm = (rest <= _UNUSUAL * usual + _LEVELS) | (few <= _FEW * sums[3])
        calm &= rest <= _MOST * hit
        right_groups = known & (hit >= least) & calm
        if right_groups.sum() < 0.4 * known.sum():
            return None
        centre = np.flatnonzero(disturbed & inside & _middle(x, self._cell / 2) & _middle(y, self._cell))
        at = np.divmod(centre, len(us))
        dark = self._dark(*(np.broadcast_to(part, change.shape)[at] for part in (x, y)))
        halves = centre[dark], centre[~dark]
        whole = None if self._rearranged else whole_cells(halves, pair[1], moved, group, rows * columns)
        flat = np.append((right_groups | _enclosed(right_groups, known)).ravel(), False)
        grid_v, grid_u = (
            ((np.arange(min(n, GRID)) + 0.5) * m / min(n, GRID)).astype(np.intp)
            for n, m in ((bottom - top, len(vs)), (right - left, len(us)))
        )
        over = group.reshape(change.shape)[np.ix_(grid_v, grid_u)]
        seen, hidden = flat[over], None
        if whole is not None:
            covered = known & ~whole.reshape(rows, columns)
            # Single ones are lines that were drawn, such as a grid.
            covered &= box_sum(covered.astype(float), 1) >= _CROWD * box_sum(known.astype(float), 1)
            hidden = np.append(covered.ravel(), False)[over]
        # Both halves of a disturbed cell show, where detail of half a cell is left.
        right_hits = hits[flat[group[hits]]]
        if not len(right_hits):
            return ProofReading(seen, 0.0, hidden)
        at, values = group[right_hits], pair[1].reshape(-1, 3)[right_hits].mean(-1)
        means = np.bincount(at, values, cells) / np.maximum(np.bincount(at, minlength=cells), 1)
        sharp = float(np.abs(values - means[at]).mean() / max(moved[right_hits].mean(), 1e-9))
        return ProofReading(seen, sharp, hidden)

    def _along(self, axis: int, us: Array, vs: Array) -> NDArray[np.intp]:
        """The pixels within the region that columns and rows show, shape (rows, columns), or 1 where it is the same."""
        by_u, by_v, start = self._affine[axis]
        # A map that is not turned by an odd angle takes columns to columns or to rows.
        parts = [part for by, part in ((by_u, by_u * us[None]), (by_v, by_v * vs[:, None])) if by != 0]
        return np.asarray(np.floor(sum(parts, start))).astype(np.intp) - self._low[axis]


def _middle(places: NDArray[np.intp], length: float) -> Bools:
    """Whether pixels lie in the middle third of equal lengths; resizes and small filters mix the others."""
    return np.asarray(np.abs((places + 0.5) % length / length - 0.5) <= 1 / 6 + 1e-6)


def _extremes(region: Pixels, levels: Array) -> tuple[Pixels, Pixels]:
    """A dark and a light colour of a region: of what is darkest and lightest in the output, if they are far apart.

    Args:
        region: Shape (height, width, 3).
        levels: How light its pixels are in the output, (height, width).
    """
    low, high = np.quantile(levels, (_RARE, 1 - _RARE))
    if low < high:
        dark, light = (np.median(region[where], 0) for where in (levels <= low, levels >= high))
        if np.abs(light - dark).max() >= 2 * _CONTRAST:
            return dark.astype(np.uint8), light.astype(np.uint8)
    step = max(1, int(np.sqrt(region.size / 3 / 20000)))
    dark, light = np.percentile(region[::step, ::step].reshape(-1, 3), (3, 97), axis=0)
    middle = (dark + light) / 2
    wide = np.maximum(light - dark, _CONTRAST) / 2
    dark, light = (np.clip(middle + sign * wide, 0, 255).astype(np.uint8) for sign in (-1, 1))
    return dark, light


def _rearranged(region: Pixels, levels: Array, mask: Bools, half: Bools, cell: NDArray[np.intp]) -> Pixels:
    """A region whose masked pixels have changed places: in each cell, one half is now lighter than the other.

    Cells that were light get the darkest pixels, as halves of one level each.

    Args:
        region: Shape (height, width, 3).
        levels: How light pixels are, (height, width).
        mask: Which pixels change places, (height, width).
        half: Which are to be dark, (height, width).
        cell: The cell of each, (height, width).
    """
    own, light, grey = cell[mask], levels[mask], region[mask].mean(-1)
    sums, counts = np.bincount(own, light + grey / 256), np.bincount(own)
    rank = np.argsort(np.argsort(-sums / np.maximum(counts, 1), kind="stable"), kind="stable")
    places = np.lexsort((rank[own], ~half[mask]))
    pixels = region[mask]
    rearranged = np.empty_like(pixels)
    rearranged[places] = pixels[np.lexsort((grey, light))]
    changed = region.copy()
    changed[mask] = rearranged
    return changed


def _change(output: Pixels, probe: Pixels, others: NDArray[np.intp]) -> Array:
    """By how many levels pixels differ, less the change of levels that contrast makes of another image as a whole.

    Stretching and equalizing what holds a few more light and dark pixels move other levels along a line. A table that
    says for each level where it goes would explain a place painted in one colour, too.

    Args:
        output: Shape (rows, columns, 3).
        probe: The same.
        others: Places, counted through, from which that change is taken.
    """
    change = np.zeros(output.shape[:2])
    if not len(others):
        return change
    some = others[:: max(1, len(others) // _FITTED)]
    levels = np.arange(256)
    for before, after in zip(np.moveaxis(output, 2, 0), np.moveaxis(probe, 2, 0), strict=True):
        slope, shift = _line(before.ravel()[some].astype(float), after.ravel()[some].astype(float))
        change = np.maximum(change, np.abs(after - np.clip(slope * levels + shift, 0, 255)[before]))
    return change


def _line(before: Array, after: Array) -> tuple[float, float]:
    """Fit a line robustly, from no change on; no change where the line would turn levels round or flatten them."""
    slope, shift = 1.0, 0.0
    for _ in range(_ROUNDS):
        off = after - np.clip(slope * before + shift, 0, 255)
        weight = 1 / (1 + (off / (2 * max(float(np.median(np.abs(off))), 1.0))) ** 2)
        x, y = np.average(before, weights=weight), np.average(after, weights=weight)
        spread = float(np.average((before - x) ** 2, weights=weight))
        slope = float(np.average((before - x) * (after - y), weights=weight)) / spread if spread > 1 else 1.0
        shift = float(y - slope * x)
    return (slope, shift) if 1 / _STEEPEST <= slope <= _STEEPEST else (1.0, 0.0)


def _enclosed(groups: Bools, known: Bools) -> Bools:
    """Which groups those next to them decide: all eight for one that says otherwise, the known ones for an unknown one.

    Unknown are those of which the region holds no disturbed cell, such as strips along its border.
    """
    rows, columns = groups.shape
    around, others = (
        np.add.reduce([padded[v : v + rows, u : u + columns] for v in range(3) for u in range(3)]) - one
        for one in (groups, known)
        for padded in [np.pad(one, 1, mode="reflect" if min(one.shape) > 1 else "edge").astype(int)]
    )
    return np.asarray(np.where(known, around >= 8, (around == others) & (others >= _BESIDE)))
