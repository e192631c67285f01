"""Target boxes as data sets write them, checked and brought to the pixels of the decoded image."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from codev_env.errors import TaskError
from codev_env.geometry import outward
from codev_env.tasks.readers.fields import brief, is_number
from codev_env.tasks.readers.images import EXIF_TRANSFORMS, DecodedImage
from codev_env.transforms import transform_box
from codev_env.types import Box

Frame = Literal["stored", "shown"]
"""Box coordinates: in pixels as the file stores them, or in pixels of the upright image."""

_EDGE = 1.0  # pixels by which rounding may move a box out of its image


def boxes_from(value: Any, where: str, *, form: Literal["xyxy", "xywh"] = "xyxy") -> tuple[tuple[float, ...], ...]:
    """Read boxes as data sets write them: one box, a list of boxes, or none; a box of zeros is none.

    Args:
        value: `None`, `[…4 numbers…]` or a list of those.
        where: Names row and file in errors.
        form: `"xyxy"` for `[x1, y1, x2, y2]`, `"xywh"` for `[x, y, width, height]`.

    Returns:
        Boxes `(x1, y1, x2, y2)` with `x1 < x2` and `y1 < y2`, as floats.

    Raises:
        TaskError: Anything else.
    """
    if value is None or (isinstance(value, Sequence) and not value):
        return ()
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise TaskError(f"{where}: the box is {brief(value)}; expected 4 numbers or a list of boxes.")
    entries = [value] if all(is_number(v) for v in value) else list(value)
    boxes = [_box(entry, where, form) for entry in entries if not _is_nothing(entry)]
    return tuple(boxes)


def _is_nothing(entry: Any) -> bool:
    return entry is None or (isinstance(entry, Sequence) and not isinstance(entry, str) and not any(entry))


def _box(entry: Any, where: str, form: str) -> tuple[float, float, float, float]:
    names = "[x, y, width, height]" if form == "xywh" else "[x1, y1, x2, y2]"
    if not isinstance(entry, Sequence) or len(entry) != 4 or not all(is_number(v) for v in entry):
        raise TaskError(f"{where}: a box is {brief(entry)}; expected {names} in pixels.")
    x1, y1, x2, y2 = (float(v) for v in entry)
    if form == "xywh":
        x2, y2 = x1 + x2, y1 + y2
    if x1 >= x2 or y1 >= y2:
        raise TaskError(f"{where}: the box {brief(entry)} ({names}) has no area. Correct or remove it.")
    return x1, y1, x2, y2


def place_boxes(
    boxes: Iterable[Sequence[float]], image: DecodedImage, where: str, frame: Frame = "stored"
) -> tuple[Box, ...]:
    """Convert boxes to pixels of a decoded image.

    Args:
        boxes: Boxes `(x1, y1, x2, y2)` in pixels of `frame`.
        image: The image they belong to.
        where: Names row and file in errors.
        frame: `"stored"`: boxes are in pixels as the file stores them and turn with the image; `"shown"`: they already
            are in pixels of the upright image.

    Returns:
        Boxes in pixels of `image.image`, rounded outwards and clipped to it.

    Raises:
        TaskError: A box exceeds the image by more than a pixel.
    """
    width, height = image.stored if frame == "stored" else image.upright
    across, down = (new / old for new, old in zip(image.image.size, image.upright, strict=True))
    placed = []
    for box in boxes:
        check_inside(box, width, height, where)
        x1, y1, x2, y2 = box
        if frame == "stored":
            x1, y1, x2, y2 = transform_box((x1, y1, x2, y2), (width, height), EXIF_TRANSFORMS[image.orientation])
        placed.append(outward((x1 * across, y1 * down, x2 * across, y2 * down), image.image.size))
    return tuple(placed)


def check_inside(box: Sequence[float], width: int, height: int, where: str) -> None:
    """Raise `TaskError` if a box `(x1, y1, x2, y2)` exceeds the image by more than a pixel."""
    x1, y1, x2, y2 = box
    if x1 < -_EDGE or y1 < -_EDGE or x2 > width + _EDGE or y2 > height + _EDGE or x1 >= width or y1 >= height:
        raise TaskError(
            f"{where}: the box [{', '.join(f'{v:g}' for v in box)}] ([x1, y1, x2, y2]) lies outside the image, which "
            f"is {width}x{height} pixels. "
            "Correct the box, or check that the image is the original one and not a resized copy."
        )
