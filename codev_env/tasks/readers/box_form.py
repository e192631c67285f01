"""Recognises boxes whose form was not stated and that do not look like `[x1, y1, x2, y2]` in pixels."""

from __future__ import annotations

from collections.abc import Sequence

from codev_env.tasks.readers.boxes import THOUSAND, BoxForm, is_inside

_FEW = 3  # boxes; fewer say nothing about the largest coordinate of a data set
_NEAR = 0.9  # of 1000; the largest of many coordinates that count to 1000 is above it
_LARGE = 1.25 * THOUSAND  # pixels; coordinates of smaller images may well end near 1000

Boxes = Sequence[Sequence[float]]
Size = tuple[int, int]


def likely_form(boxes: Boxes, samples: Sequence[tuple[Boxes, Size]]) -> BoxForm | None:
    """Return the form that boxes of unstated form seem to have, or `None` if they look like pixels.

    Widths and heights read as corners never leave the image, but among a few boxes one has no area: `boxes_from` asks.

    Args:
        boxes: All boxes of the data, read as `[x1, y1, x2, y2]`.
        samples: The boxes of some rows, each with the (width, height) of the row's image in pixels.
    """
    fits = all(is_inside(box, *size) for row, size in samples for box in row)
    to_thousand = all(0 <= value <= THOUSAND for box in boxes for value in box)
    if not fits:
        return "thousand" if to_thousand else None
    all_large = all(min(size) > _LARGE for _, size in samples)
    largest = max((value for box in boxes for value in box), default=0.0)
    if samples and all_large and to_thousand and largest >= _NEAR * THOUSAND and len(boxes) >= _FEW:
        return "thousand"
    return None
