"""Questions about left, right, above and below in the frame that is shown, where an image was turned or mirrored."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, get_args

from codev_env.transforms import compose, transform_box

Frame = Literal["upright", "shown"]
FRAMES: tuple[Frame, ...] = get_args(Frame)

_AXES = {"left": (-1, 0), "right": (1, 0), "above": (0, -1), "below": (0, 1)}
_WORDS = {axis: word for word, axis in _AXES.items()}
_PHRASE = re.compile(
    r"\bon the (?P<side>left|right)(?: or (?:the )?(?P<other>left|right))? (?:hand )?side of\b"
    r"|\bto the (?P<to>left|right) of\b"
    r"|\b(?P<first>above|below) or (?P<second>above|below)\b"
    r"|\b(?!right[ -](?:answer|option|choice|angle|triangle))"  # right here is no direction
    r"(?P<alone>left|right|above|below)\b(?P<of> (?:of )?the\b)?",
    re.IGNORECASE,
)


def is_relational(texts: Iterable[str]) -> bool:
    """Whether some of the texts, a task's question and choices, name a direction."""
    return any(_PHRASE.search(text) for text in texts)


def turn_words(text: str, transform: str) -> str:
    """Replace the directions in a text about an upright image by those that hold in the transformed one.

    Args:
        text: For example "on the left side of" or "above".
        transform: One of `TRANSFORMS`: `flip_horizontal` makes right of left; `rotate_90`, which turns
            counter-clockwise, makes below of left and left of above.
    """
    return _PHRASE.sub(lambda phrase: _turned(phrase, transform), text)


def _turned(phrase: re.Match[str], transform: str) -> str:
    first = phrase["side"] or phrase["to"] or phrase["first"] or phrase["alone"]
    second = phrase["other"] or phrase["second"]
    one = _direction(first.lower(), transform)
    beside = one in ("left", "right")
    if second:
        two = _direction(second.lower(), transform)
        out = f"on the {one} or {two} side of" if beside else f"{one} or {two}"
    elif phrase["side"] or phrase["to"]:
        middle = ("on the {} side of" if phrase["side"] else "to the {} of").format(one)
        out = middle if beside else one
    else:
        tail = phrase["of"] or ""
        vertical = first.lower() in ("above", "below")
        out = f"on the {one} side of{tail}" if beside and vertical and tail else one + tail
    return out.capitalize() if phrase[0][:1].isupper() else out


def _direction(word: str, transform: str) -> str:
    """Return the word for a direction after a transform, by where it moves a pixel beside the centre."""
    x, y = _AXES[word]
    x1, y1, _, _ = transform_box((1 + x, 1 + y, 2 + x, 2 + y), (3, 3), transform)
    return _WORDS[(round(x1) - 1, round(y1) - 1)]


def turns_of(steps: Iterable[str], names: Iterable[str]) -> str:
    """Return the single transform that the steps in `names` come to."""
    known = set(names)
    return compose(step for step in steps if step in known)
