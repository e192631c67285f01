"""Rotations and flips by right angles, exact on pixels and on boxes, under the names that data sets use.

`rotate_90` turns counter-clockwise, as `PIL.Image.rotate(90)` does. CodeVision (arXiv 2512.03746) uses these names; its
reward asks for `rotate_{360 - angle}` to undo a rotation and reads angles from calls of `PIL.Image.rotate`, which
agrees only if its data were rotated counter-clockwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from PIL import Image

from codev_env.errors import unknown
from codev_env.geometry import Number

IDENTITY = "identity"
"""The transform that changes nothing; the result of some compositions, never a part of `Task.transform`."""

CROP = "crop"
"""In a task's transforms: a region has to be enlarged (MVToolBench); moves no pixel."""

Matrix = tuple[int, int, int, int]
"""Rows of the 2 x 2 matrix that maps a point (x, y) relative to the centre, y downwards."""


class _Transform(NamedTuple):
    """A transform: its matrix, the name of the resulting orientation, and Pillow's method for it."""

    matrix: Matrix
    orientation: str
    method: Image.Transpose | None = None


_TABLE = {
    IDENTITY: _Transform((1, 0, 0, 1), "rot0"),
    "rotate_90": _Transform((0, 1, -1, 0), "rot90", Image.Transpose.ROTATE_90),
    "rotate_180": _Transform((-1, 0, 0, -1), "rot180", Image.Transpose.ROTATE_180),
    "rotate_270": _Transform((0, -1, 1, 0), "rot270", Image.Transpose.ROTATE_270),
    "flip_horizontal": _Transform((-1, 0, 0, 1), "flip_h", Image.Transpose.FLIP_LEFT_RIGHT),
    "flip_vertical": _Transform((1, 0, 0, -1), "flip_v", Image.Transpose.FLIP_TOP_BOTTOM),
    "transpose": _Transform((0, 1, 1, 0), "transpose", Image.Transpose.TRANSPOSE),
    "transverse": _Transform((0, -1, -1, 0), "transverse", Image.Transpose.TRANSVERSE),
}
_NAMES = {entry.matrix: name for name, entry in _TABLE.items()}

TRANSFORMS: tuple[str, ...] = tuple(name for name in _TABLE if name != IDENTITY)
"""The names: rotations are counter-clockwise, `flip_horizontal` swaps left and right, `transpose` mirrors in the main
diagonal (x and y change places) and `transverse` in the other one."""


def transform_image(image: Image.Image, name: str) -> Image.Image:
    """Turn or mirror an image; no pixel is interpolated.

    Args:
        image: Any image.
        name: One of `TRANSFORMS`, or `"identity"`.

    Returns:
        A new image; quarter turns and the diagonal mirrors swap width and height.

    Raises:
        ConfigError: An unknown name.
    """
    method = _entry(name).method
    return image.copy() if method is None else image.transpose(method)


def transform_size(size: tuple[int, int], name: str) -> tuple[int, int]:
    """Return (width, height) of a transformed image; raises `ConfigError` for an unknown name."""
    a, *_ = _entry(name).matrix
    return size if a else (size[1], size[0])


def transform_box(
    box: tuple[Number, Number, Number, Number], size: tuple[int, int], name: str
) -> tuple[Number, Number, Number, Number]:
    """Map a box into the transformed image: it contains the same pixels.

    Args:
        box: (x1, y1, x2, y2) in pixels of the image before, right and bottom exclusive.
        size: (width, height) of the image before.
        name: One of `TRANSFORMS`, or `"identity"`.

    Returns:
        The box in pixels of the image after.

    Raises:
        ConfigError: An unknown name.
    """
    a, b, c, d = _entry(name).matrix
    x1, y1, x2, y2 = box
    width, height = transform_size(size, name)
    # An axis that is reversed counts from its other end.
    across, down = width * (a + b < 0), height * (c + d < 0)
    xs = sorted((a * x1 + b * y1 + across, a * x2 + b * y2 + across))
    ys = sorted((c * x1 + d * y1 + down, c * x2 + d * y2 + down))
    return xs[0], ys[0], xs[1], ys[1]


def inverse(name: str) -> str:
    """Return the transform that undoes another; raises `ConfigError` for an unknown name."""
    a, b, c, d = _entry(name).matrix
    # The matrices are orthogonal: the inverse is the transpose.
    return _NAMES[(a, c, b, d)]


def compose(names: Iterable[str]) -> str:
    """Return the single transform that equals several, applied in this order.

    Args:
        names: Any of `TRANSFORMS` and `"identity"`; an empty sequence gives `"identity"`.

    Raises:
        ConfigError: An unknown name.
    """
    a, b, c, d = _TABLE[IDENTITY].matrix
    for name in names:
        e, f, g, h = _entry(name).matrix
        a, b, c, d = e * a + f * c, e * b + f * d, g * a + h * c, g * b + h * d
    return _NAMES[(a, b, c, d)]


def orientation(name: str) -> str:
    """Return the name that `codev_env.types.Region.orientation` has for a transform, for example `"rot90"`.

    An image that shows the original turned by `rotate_90` has orientation `"rot90"`.

    Raises:
        ConfigError: An unknown name.
    """
    return _entry(name).orientation


def needed(transforms: Iterable[str]) -> frozenset[str]:
    """Return the operations that undo the transforms of an image: the set S of CodeVision's reward.

    Args:
        transforms: `Task.transform`: turns and mirrors, which are composed first; `"crop"`, which asks for a crop; and
            names of corruptions, which cannot be undone and are ignored.

    Returns:
        At most one turn or mirror, and `"crop"` if it is among them. Empty for an upright image.
    """
    names = tuple(transforms)
    undo = inverse(compose(name for name in names if name in _TABLE))
    return frozenset({undo} - {IDENTITY}) | frozenset({CROP} & set(names))


def transform_of(matrix: Matrix) -> str | None:
    """Return the transform with this matrix; `None` if no transform has it."""
    return _NAMES.get(matrix)


def _entry(name: str) -> _Transform:
    if name not in _TABLE:
        raise unknown("transform", name, TRANSFORMS)
    return _TABLE[name]
