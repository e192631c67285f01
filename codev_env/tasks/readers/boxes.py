"""Target boxes as data sets write them, checked and brought to the pixels of the decoded image."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from codev_env.errors import TaskError
from codev_env.geometry import ImageBox, outward
from codev_env.tasks.readers.fields import brief, is_number
from codev_env.tasks.readers.images import EXIF_TRANSFORMS, DecodedImage
from codev_env.transforms import transform_box
from codev_env.types import Box

Frame = Literal["stored", "shown"]
"""Box coordinates: in pixels as the file stores them, or in pixels of the upright image."""

BoxForm = Literal["xyxy", "xywh", "normalized", "thousand"]
"""Form of a box: `[x1, y1, x2, y2]` or `[x, y, width, height]` in pixels, or the former from 0 to 1 or to 1000."""

THOUSAND = 1000.0
_UNITS: dict[BoxForm, float] = {"normalized": 1.0, "thousand": THOUSAND}
_NAMES = {
    "xyxy": "[x1, y1, x2, y2] in pixels",
    "xywh": "[x, y, width, height] in pixels",
    "normalized": "[x1, y1, x2, y2] from 0 to 1",
    "thousand": "[x1, y1, x2, y2] from 0 to 1000",
}
_EDGE = 1.0  # pixels by which rounding may move a box out of its image


def boxes_from(
    value: Any, where: str, *, form: BoxForm | None = "xyxy", numbered: bool = False
) -> tuple[tuple[float, ...], ...]:
    """Read boxes as data sets write them: one box, a list of boxes, or none; a box of zeros is none.

    Args:
        value: `None`, `[…4 numbers…]` or a list of those.
        numbered: A fifth number is allowed: which image the box is on, from 0.
        where: Names row and file in errors.
        form: Form of the boxes; `None` for `"xyxy"` unless a box cannot have that form, which is an error that asks.

    Returns:
        Boxes `(x1, y1, x2, y2)` with `x1 < x2` and `y1 < y2`, as floats; in pixels, or in the units of the form. Where
        the image is not the first, its number is the fifth.

    Raises:
        TaskError: Anything else.
    """
    if value is None or (isinstance(value, Sequence) and not value):
        return ()
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise TaskError(f"{where}: the box is {brief(value)}; expected 4 numbers or a list of boxes.")
    entries = [value] if any(isinstance(v, int | float) for v in value) else list(value)
    boxes = []
    for entry in entries:
        image, entry = _numbered(entry, where) if numbered else ((), entry)
        if not _is_nothing(entry):
            boxes.append((*_box(entry, where, form), *image))
    return tuple(boxes)


def _numbered(entry: Any, where: str) -> tuple[tuple[float, ...], Any]:
    """Take the number of the image off a box that has one; none where it is 0."""
    if not isinstance(entry, Sequence) or isinstance(entry, str) or len(entry) != 5:
        return (), entry
    *box, image = entry
    if not is_number(image) or image < 0 or image != int(image):
        raise TaskError(f"{where}: a box is {brief(entry)}; its fifth number must be that of an image, from 0.")
    return (float(image),) if image else (), box


def _is_nothing(entry: Any) -> bool:
    return entry is None or (isinstance(entry, Sequence) and not isinstance(entry, str) and not any(entry))


def _box(entry: Any, where: str, form: BoxForm | None) -> tuple[float, float, float, float]:
    names = _NAMES[form or "xyxy"]
    if not isinstance(entry, Sequence) or len(entry) != 4 or not all(is_number(v) for v in entry):
        raise TaskError(f"{where}: a box is {brief(entry)}; expected {names}.")
    x1, y1, x2, y2 = (float(v) for v in entry)
    if form is None and min(entry) > -1 and max(entry) < 2:  # rounding may take shares a little beyond the image
        raise TaskError(f"{where}: the box {brief(entry)} looks like shares of the image. {ask_form('normalized')}")
    unit = _UNITS.get(form) if form else None
    if unit is not None and not (min(entry) >= 0 and max(entry) <= unit):
        raise TaskError(
            f"{where}: the box {brief(entry)} is not {names}. Correct it, or give another "
            "form: boxes=…, for an environment reader={'boxes': …} (--reader boxes=…)."
        )
    if form == "xywh":
        x2, y2 = x1 + x2, y1 + y2
    if x1 >= x2 or y1 >= y2:
        may_be = f" {ask_form('xywh')}" if form is None and min(entry) >= 0 and x2 > 0 < y2 else ""
        raise TaskError(f"{where}: the box {brief(entry)} ({names}) has no area. Correct or remove it.{may_be}")
    return x1, y1, x2, y2


def ask_form(likely: BoxForm) -> str:
    """Return the sentence that asks for the form of the boxes and names the likely one."""
    return (
        f"If boxes are {_NAMES[likely]}, give boxes={likely!r} (--reader boxes={likely}); for an environment "
        f"reader={{'boxes': {likely!r}}}. If they are {_NAMES['xyxy']}, say so with 'xyxy'."
    )


def place_on(
    boxes: Iterable[Sequence[float]], images: Sequence[DecodedImage], where: str, frame: Frame, form: BoxForm | None
) -> tuple[Box, ...]:
    """Convert boxes to pixels of the decoded images that they are on; see `boxes_from` and `place_boxes`."""
    placed: list[Box] = []
    for entry in boxes:
        ((number, own),) = by_image([entry]).items()
        if number >= len(images):
            raise TaskError(f"{where}: a box is on image {number}, but the last image is {len(images) - 1}.")
        (box,) = place_boxes(own, images[number], where, frame, form)
        placed.append(ImageBox(box, number) if number else box)
    return tuple(placed)


def by_image(boxes: Iterable[Sequence[float]]) -> dict[int, list[Sequence[float]]]:
    """Return boxes as `boxes_from` returns them by the number of their image, without it."""
    found: defaultdict[int, list[Sequence[float]]] = defaultdict(list)
    for box in boxes:
        found[int(box[4]) if len(box) > 4 else 0].append(box[:4])
    return dict(found)


def place_boxes(
    boxes: Iterable[Sequence[float]],
    image: DecodedImage,
    where: str,
    frame: Frame = "stored",
    form: BoxForm | None = "xyxy",
) -> tuple[Box, ...]:
    """Convert boxes to pixels of a decoded image.

    Args:
        boxes: Boxes `(x1, y1, x2, y2)` of `frame`, as `boxes_from` returns them.
        image: The image they belong to.
        where: Names row and file in errors.
        frame: `"stored"`: boxes are in pixels as the file stores them and turn with the image; `"shown"`: they already
            are in pixels of the upright image.
        form: The form they were read with: whether they are in pixels or in shares of the image.

    Returns:
        Boxes in pixels of `image.image`, rounded outwards and clipped to it.

    Raises:
        TaskError: A box exceeds the image by more than a pixel.
    """
    width, height = image.stored if frame == "stored" else image.upright
    across, down = (new / old for new, old in zip(image.image.size, image.upright, strict=True))
    unit = _UNITS.get(form) if form else None
    along = (1.0, 1.0) if unit is None else (width / unit, height / unit)
    placed = []
    for entry in boxes:
        box = tuple(value * along[axis % 2] for axis, value in enumerate(entry))
        check_inside(box, width, height, where)
        x1, y1, x2, y2 = box
        if frame == "stored":
            x1, y1, x2, y2 = transform_box((x1, y1, x2, y2), (width, height), EXIF_TRANSFORMS[image.orientation])
        placed.append(outward((x1 * across, y1 * down, x2 * across, y2 * down), image.image.size))
    return tuple(placed)


def is_inside(box: Sequence[float], width: int, height: int) -> bool:
    """Return whether a box `(x1, y1, x2, y2)` exceeds the image by at most a pixel."""
    x1, y1, x2, y2 = box
    return -_EDGE <= x1 < width and -_EDGE <= y1 < height and x2 <= width + _EDGE and y2 <= height + _EDGE


def check_inside(box: Sequence[float], width: int, height: int, where: str) -> None:
    """Raise `TaskError` if a box `(x1, y1, x2, y2)` exceeds the image by more than a pixel."""
    if not is_inside(box, width, height):
        raise TaskError(
            f"{where}: the box [{', '.join(f'{v:g}' for v in box)}] ([x1, y1, x2, y2]) lies outside the image, which "
            f"is {width}x{height} pixels. "
            "Correct the box, or check that the image is the original one and not a resized copy."
        )
