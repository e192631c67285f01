"""The affine geometry of crops: fits of maps to points, orientations, polygons and boxes.

Pixel centres lie at half-integers: pixel (column 0, row 0) of an image covers the square from (0, 0) to (1, 1). An
affine map is an array of shape (2, 3) that takes a point (u, v) of an output to the point (x, y) it shows of the
original.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from codev_env.transforms import orientation, transform_of
from codev_env.types import Box, Point

Array = NDArray[np.floating]
Size = tuple[int, int]
Polygon = tuple[Point, ...]

_TRIPLES, _FIRST, _CLEAR = 96, 12, 0.9
"""Samples of a fit; how many are tried first, and the share of the pairs that one of these explains to be taken."""


def apply(affine: Array, points: Array) -> Array:
    """Map points of shape (n, 2)."""
    return points @ affine[:, :2].T + affine[:, 2]


def inverse(affine: Array) -> Array:
    """The map from the original to the output; raises `LinAlgError` for one that shows a line."""
    back = np.linalg.inv(affine[:, :2])
    return np.column_stack([back, -back @ affine[:, 2]])


def both_within(errors: Array, tolerance: float | Array) -> NDArray[np.bool_]:
    """Which errors, shape (..., 2), are within a tolerance in x and in y: what `all(-1)` says, several times faster."""
    near = np.abs(errors) <= tolerance
    return np.asarray(near[..., 0] & near[..., 1])


def fit_affine(
    uv: Array, xy: Array, tolerance: float | Array, least: float = 0.0
) -> tuple[Array, NDArray[np.bool_]] | None:
    """Fit an affine map to point pairs of which some are wrong (RANSAC with fixed samples, then least squares).

    Args:
        uv: Points of the output, shape (n, 2).
        xy: Points that they show, shape (n, 2), up to noise.
        tolerance: Largest error in pixels of a pair that counts as right, in x and in y, or one for each.
        least: Share of the pairs that the map must explain.

    Returns:
        The map and which pairs it explains; `None` if the points do not determine one that can be inverted, or if none
        explains so many.
    """
    if len(uv) < 4:
        return None
    design = np.column_stack([uv, np.ones(len(uv))])
    triples = np.random.default_rng(0).integers(0, len(uv), (_TRIPLES, 3))
    corners = uv[triples]
    a, b = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    areas = np.abs(a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0])
    triples = triples[areas > 0.02 * np.ptp(uv[:, 0]) * np.ptp(uv[:, 1]) + 1e-9]
    if not len(triples):
        return None
    probe = slice(None, None, max(1, len(uv) // 250))
    few, shown = design[probe], xy[probe]
    most, best = -1, np.zeros((3, 2))
    for some in (triples[:_FIRST], triples[_FIRST:]):
        maps = np.linalg.solve(design[some], xy[some])
        counts = both_within(few @ maps - shown, tolerance).sum(-1)
        if len(counts) and counts.max() > most:
            most, best = int(counts.max()), maps[np.argmax(counts)]
        if most >= _CLEAR * len(few):
            break
    if most < 0.2 * least * len(few):  # Before any least squares: most samples of noise end here.
        return None
    right = both_within(design @ best - xy, tolerance)
    middle = np.append(uv.mean(0), 0.0)  # Centred, the normal equations are well conditioned.
    centred = design - middle
    for _ in range(3):
        chosen = centred[right]
        normal = chosen.T @ chosen
        values = np.linalg.eigvalsh(normal)
        if len(chosen) < 4 or values[0] <= 1e-12 * values[-1]:
            return None
        best = np.linalg.solve(normal, chosen.T @ xy[right])
        before, right = right, both_within(centred @ best - xy, tolerance)
        if (right == before).all():
            break
    if right.sum() < least * len(uv):
        return None
    best[2] -= middle[:2] @ best[:2]
    # A map that shows a line, or one point, shows nothing.
    return (best.T, right) if abs(np.linalg.det(best[:2])) > 1e-6 else None


def snap(affine: Array, size: Size) -> Array:
    """Round a map that is a whole-pixel crop, turned or mirrored, up to the noise of the fit; others stay as they are.

    Args:
        affine: The map.
        size: (width, height) of the output, over which an error of the linear part adds up.
    """
    linear = np.round(affine[:, :2])
    if abs(abs(np.linalg.det(linear)) - 1) > 1e-9 or np.abs(affine[:, :2] - linear).max() * max(size) > 0.25:
        return affine
    centre = np.array(size) / 2
    offset = affine @ np.append(centre, 1.0) - linear @ centre
    return np.column_stack([linear, np.round(offset)])


def orientation_of(affine: Array, tolerance: float = 0.02) -> str | None:
    """Name the orientation of a map: one of eight, or `None` if it is off a right angle by more than 0.02 rad."""
    linear = affine[:, :2] / np.maximum(np.linalg.norm(affine[:, :2], axis=0), 1e-12)
    signs = np.round(linear)
    if np.abs(linear - signs).max() > tolerance:
        return None
    a, b, c, d = (int(value) for value in signs.ravel())
    # The map goes from the output to the original; the transform went the other way.
    name = transform_of((a, c, b, d))
    return orientation(name) if name else None


def polygon_of(affine: Array, bounds: tuple[float, float, float, float]) -> tuple[Point, Point, Point, Point]:
    """The points of the original that the corners of a part of an output (left, top, right, bottom) show."""
    left, top, right, bottom = bounds
    corners = apply(affine, np.array([(left, top), (right, top), (right, bottom), (left, bottom)], float))
    a, b, c, d = ((float(x), float(y)) for x, y in corners)
    return a, b, c, d


def box_of(polygon: Polygon, size: Size) -> Box | None:
    """Bounding box of a polygon, to the nearest pixel, clipped to an image of (width, height); `None` if outside."""
    xs, ys = [p[0] for p in polygon], [p[1] for p in polygon]
    x1, y1 = max(0, math.floor(min(xs) + 0.5)), max(0, math.floor(min(ys) + 0.5))
    x2, y2 = min(size[0], math.ceil(max(xs) - 0.5)), min(size[1], math.ceil(max(ys) - 0.5))
    # A sliver thinner than a pixel still shows that pixel.
    x1, y1 = min(x1, size[0] - 1), min(y1, size[1] - 1)
    x2, y2 = max(x2, x1 + 1), max(y2, y1 + 1)
    outside = max(xs) <= 0 or max(ys) <= 0 or min(xs) >= size[0] or min(ys) >= size[1]
    return None if outside else (x1, y1, x2, y2)


def area(polygon: Polygon) -> float:
    """Area of a polygon in square pixels."""
    total = 0.0
    for (x1, y1), (x2, y2) in zip(polygon, polygon[1:] + polygon[:1], strict=True):
        total += x1 * y2 - x2 * y1
    return abs(total) / 2


def clip(polygon: Polygon, box: tuple[float, float, float, float]) -> Polygon:
    """Intersect a convex polygon with a box (Sutherland-Hodgman); empty if they do not meet."""
    x1, y1, x2, y2 = box
    if all(x1 <= x <= x2 and y1 <= y <= y2 for x, y in polygon):  # as nearly always, of an image
        return polygon
    for axis, bound, side in ((0, x1, 1), (0, x2, -1), (1, y1, 1), (1, y2, -1)):
        kept: list[Point] = []
        for p, q in zip(polygon, polygon[1:] + polygon[:1], strict=True):
            p_in, q_in = side * (p[axis] - bound) >= 0, side * (q[axis] - bound) >= 0
            if p_in:
                kept.append(p)
            if p_in != q_in:
                t = (bound - p[axis]) / (q[axis] - p[axis])
                kept.append((p[0] + t * (q[0] - p[0]), p[1] + t * (q[1] - p[1])))
        polygon = tuple(kept)
    return polygon


def box_polygon(box: Box) -> tuple[Point, Point, Point, Point]:
    """The corners of a box: top left, top right, bottom right, bottom left."""
    x1, y1, x2, y2 = (float(value) for value in box)
    return (x1, y1), (x2, y1), (x2, y2), (x1, y2)
