"""How a scripted agent writes its turns: the text is constant up to the coordinates and the answer, in any dialect."""

from __future__ import annotations

from codev_env.dialects.dialect import Dialect
from codev_env.types import Answer, Box

LOOK, LOOKED, KNOWN = "I need a closer look.", "Now I can see it.", "I can see it."


def crop_turn(dialect: Dialect, box: Box, image_index: int = 0) -> str:
    """Write the turn that crops a box of an input image and shows the crop.

    Args:
        dialect: Says how a turn is written and what the image is called.
        box: (x1, y1, x2, y2) in pixels of the input image.
        image_index: Which input image.
    """
    return dialect.write(dialect.crop(box, image_index), LOOK)


def answer_turn(dialect: Dialect, answer: str, looked: bool) -> str:
    """Write the last turn; `looked` says whether the agent asked for an image before."""
    return dialect.write(Answer(answer), LOOKED if looked else KNOWN)
