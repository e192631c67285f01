"""Which disturbed cells of a proof an output shows in all places, where a program makes of each colour one colour."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]
Bools = NDArray[np.bool_]
Indices = NDArray[np.intp]

_CHANGE, _CLEAR, _MOSTLY = 6.0, 0.4, 0.95
"""Levels from which on a pixel has clearly changed, and share of the most that any does, this quantile of all."""
_STEADY, _SPREAD, _APART, _ENOUGH = 0.85, 24.0, 48.0, 8
"""Share of the changed pixels of all dark halves, or light ones, that are off their colour by so many levels at most;
levels between both colours; changed pixels that it takes."""
_NEAR, _WHOLE = 0.35, 0.7
"""Share of the distance of both colours up to which a pixel has one of them; share of a half's pixels that have it."""


def whole_cells(
    halves: tuple[Indices, Indices], probe: NDArray[np.uint8], moved: Array, group: Indices, groups: int
) -> Bools | None:
    """Find the cells that are shown in all places; of others, a part is covered, as by a checkerboard.

    All dark halves have one colour, and all light ones, whatever was there before. Where a program changes each pixel
    by itself, both become one colour each; what it painted over has at most one of them. A mean over a cell says less:
    edges and thresholds change in a part of it as well.

    Args:
        halves: The pixels in the middle of dark halves and of light ones, counted through, of shape (n,) each.
        probe: What the program returned for the disturbed image, shape (rows, columns, 3).
        moved: By how many levels pixels have changed, counted through.
        group: The group of four cells, of which one is disturbed, that each pixel belongs to.
        groups: How many groups there are.

    Returns:
        By group; `None` if the program makes no one colour of dark halves and another of light ones.
    """
    pixels, usual, found = probe.reshape(-1, 3), [], []
    for at in halves:
        if len(at) < _ENOUGH:
            return None
        clear = moved[at] >= max(_CHANGE, _CLEAR * float(np.quantile(moved[at], _MOSTLY)))
        if clear.sum() < _ENOUGH:
            return None
        usual.append(np.median(pixels[at[clear]], 0))
        off = np.abs(pixels[at] - usual[-1]).max(-1)
        if (off[clear] <= _SPREAD).mean() < _STEADY:
            return None
        found.append((at, clear, off))
    apart = float(np.abs(usual[0] - usual[1]).max())
    if apart < _APART:
        return None
    whole = np.ones(groups, bool)
    for at, clear, off in found:
        shown = clear | (off < _NEAR * apart)
        right, count = (np.bincount(group[at], weight, groups + 1)[:groups] for weight in (shown, None))
        whole &= right >= _WHOLE * count
    return whole
