"""Finds a copied piece of an image, pixel by pixel, in any of the eight orientations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from codev_env.provenance.regions import make_region
from codev_env.types import Region

_ANCHORS = 12
Numbers = NDArray[np.uint32]

# By orientation: how to turn the output back, and the linear part of the map from the output to the original.
_BACK: dict[str, tuple[Callable[[Numbers], Numbers], tuple[tuple[int, int], tuple[int, int]]]] = {
    "rot0": (lambda a: a, ((1, 0), (0, 1))),
    "rot90": (lambda a: np.rot90(a, -1), ((0, -1), (1, 0))),
    "rot180": (lambda a: np.rot90(a, 2), ((-1, 0), (0, -1))),
    "rot270": (lambda a: np.rot90(a, 1), ((0, 1), (-1, 0))),
    "flip_h": (np.fliplr, ((-1, 0), (0, 1))),
    "flip_v": (np.flipud, ((1, 0), (0, -1))),
    "transpose": (lambda a: a.T, ((0, 1), (1, 0))),
    "transverse": (lambda a: np.rot90(a, 2).T, ((0, -1), (-1, 0))),
}


def find_copy(output: Image.Image, image: Image.Image, image_index: int = 0) -> Region | None:
    """Find the one place of an image that an output is a copy of.

    Args:
        output: The image to place.
        image: The original.
        image_index: Which of the task's images it is.

    Returns:
        `None` if there is no such place, or more than one (a plain background fits anywhere).
    """
    piece, whole = _pack(output), _pack(image)
    for turn_back, axes in _BACK.values():
        place = _place(turn_back(piece), whole)
        if place is not None:
            linear = np.array(axes, float)
            height, width = turn_back(piece).shape
            centre = np.array(place) + (width / 2, height / 2)
            offset = centre - linear @ (output.width / 2, output.height / 2)
            affine = np.column_stack([linear, offset])
            return make_region(affine, (0, 0, *output.size), image.size, image_index, 1.0, "match")
    return None


def _pack(image: Image.Image) -> Numbers:
    """One number per pixel."""
    wide = np.asarray(image).astype(np.uint32)
    return np.asarray((wide[..., 0] << 16) | (wide[..., 1] << 8) | wide[..., 2], np.uint32)


def _place(piece: Numbers, whole: Numbers) -> tuple[int, int] | None:
    """The only (x, y) at which `piece` lies in `whole`, else `None`."""
    rows, columns = whole.shape[0] - piece.shape[0] + 1, whole.shape[1] - piece.shape[1] + 1
    if rows < 1 or columns < 1:
        return None
    candidates: tuple[NDArray[Any], ...] | None = None
    for v, u in _anchors(piece):
        if candidates is None:
            candidates = np.nonzero(whole[v : v + rows, u : u + columns] == piece[v, u])
        else:
            ys, xs = candidates
            keep = whole[ys + v, xs + u] == piece[v, u]
            candidates = ys[keep], xs[keep]
        if len(candidates[0]) == 0:
            return None
    if candidates is None or len(candidates[0]) > 64:
        return None
    height, width = piece.shape
    places = [(x, y) for y, x in zip(*candidates, strict=True) if (whole[y : y + height, x : x + width] == piece).all()]
    return (int(places[0][0]), int(places[0][1])) if len(places) == 1 else None


def _anchors(piece: Numbers) -> list[tuple[int, int]]:
    """Pixels of different and rare colours, rarest first: they leave the fewest places to look at."""
    step = max(1, int(np.sqrt(piece.size / 4096)))
    sample = piece[::step, ::step]
    _, first, counts = np.unique(sample, return_index=True, return_counts=True)
    chosen = first[np.argsort(counts, kind="stable")[:_ANCHORS]]
    return [(int(i // sample.shape[1]) * step, int(i % sample.shape[1]) * step) for i in chosen]
