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
_BASE = {
    **{"left": "left", "right": "right", "above": "above", "below": "below"},
    **{"leftmost": "left", "rightmost": "right"},
    **dict.fromkeys(("upper", "top", "topmost", "uppermost"), "above"),
    **dict.fromkeys(("lower", "bottom", "bottommost", "lowermost"), "below"),
}
"""The direction that each word names."""
_BESIDE = {"above": "upper", "below": "lower"}
_EDGES = {"above": "top", "below": "bottom"}
_FURTHEST = {"left": "leftmost", "right": "rightmost", "above": "topmost", "below": "bottommost"}
_PLACES = "part|half|corner|edge|side|area|portion|section|region|quadrant|third|middle|cent(?:er|re)|row"
_BODY = "hand|arm|leg|foot|feet|eye|ear|paw|shoulder|wing|knee|wrist|elbow|thigh|cheek|hoof|hooves"
_IMAGE = "image|picture|photo(?:graph)?|scene|frame|view|page|chart|map"
_OF_IMAGE = rf" of the (?:{_IMAGE})\b"
# The right answer, that is right, has left, all the above.
_NO_WORD = r"(?!right[ -](?:answer|option|choice|angle|triangle))(?<!\bthat )(?<!\ball )(?<!\bhas )(?<!\bhave )"
_PHRASE = re.compile(
    r"\bon the (?P<side>left|right)(?: or (?:the )?(?P<other>left|right))? (?:hand )?side of\b"
    rf"|\b(?:to|on|at) the (?P<to>left|right)(?!{_OF_IMAGE}) of\b"
    rf"|\bon the (?P<one>left|right) or (?:the )?(?P<two>left|right)(?={_OF_IMAGE}|[^\w\s-]|\s*$)"
    r"|\b(?P<first>above|below) or (?P<second>above|below)\b"
    rf"|\b(?P<body>left|right)(?= (?:{_BODY})s?\b(?! side))"
    r"|(?P<lead>\b(?:turn|steer|veer)\w*(?: slightly)? (?:to the )?|\b(?:front|rear) |\b(?:his|her|its|their|your|my) )"
    r"(?P<own>left|right)\b(?! side of)"
    r"|\bfrom (?P<start>left|right|top|bottom) to (?P<stop>left|right|top|bottom)\b"
    r"|\b(?P<up>upper|lower|top|bottom)(?P<joint>[ -]?)(?P<across>left|right)\b"
    r"|\b(?P<most>leftmost|rightmost|topmost|uppermost|bottommost|lowermost)\b"
    rf"|\b(?P<part>upper|lower|top|bottom)(?= (?:{_PLACES})s?\b)"
    r"|\b(?P<before>on|at|in|from|to|towards?) the (?P<edge>left|right|top|bottom)(?P<hand>[ -]hand)?"
    rf"(?=(?P<place> (?:{_PLACES}))\b|{_OF_IMAGE}|[^\w\s-]|\s*$| (?:or|and|is|are|in|with|that)\b)"
    rf"|\b{_NO_WORD}(?:(?<=\bthe )|(?<=\bfar ))(?P<which>left|right)(?= (?!of\b|or\b|and\b|is\b|are\b)[a-z])"
    rf"|\b{_NO_WORD}(?P<alone>left|right|(?<!\bthe )(?:above|below))\b(?P<tail> (?:of )?the\b)?",
    re.IGNORECASE,
)


def is_relational(texts: Iterable[str]) -> bool:
    """Whether some of the texts, a task's question and choices, name a direction in the image.

    A body's left hand, and a turn to the left, are none.
    """
    return any(not (phrase["body"] or phrase["own"]) for text in texts for phrase in _PHRASE.finditer(text))


def turn_words(text: str, transform: str) -> str:
    """Replace the directions in a text about an upright image by those that hold in the transformed one.

    Args:
        text: For example "on the left side of", "above", "upper left", "the leftmost" or "at the top".
        transform: One of `TRANSFORMS`: `flip_horizontal` makes right of left; `rotate_90`, which turns
            counter-clockwise, makes below of left, left of above and "lower left" of "upper left". A left hand, or a
            turn to the left, becomes a right one in a mirror only.
    """
    return _PHRASE.sub(lambda phrase: _turned(phrase, transform), text)


def _turned(phrase: re.Match[str], transform: str) -> str:
    said = next(filter(None, map(phrase.group, ("side", "to", "first", "alone"))), None)
    out = _related(phrase, said, transform) if said else _placed(phrase, transform)
    return out.capitalize() if phrase[0][:1].isupper() else out


def _related(phrase: re.Match[str], said: str, transform: str) -> str:
    """Turn what relates two things: "on the left side of", "above"."""
    second = phrase["other"] or phrase["second"]
    one = _direction(said, transform)
    beside = one in ("left", "right")
    if second:
        two = _direction(second, transform)
        return f"on the {one} or {two} side of" if beside else f"{one} or {two}"
    if phrase["side"] or phrase["to"]:
        middle = ("on the {} side of" if phrase["side"] else "to the {} of").format(one)
        return middle if beside else one
    tail = phrase["tail"] or ""
    vertical = said.lower() in ("above", "below")
    return f"on the {one} side of{tail}" if beside and vertical and tail else one + tail


def _placed(phrase: re.Match[str], transform: str) -> str:
    """Turn what names a place in the image: "upper left", "at the top", "the leftmost", "the left cup"."""
    if own := phrase["body"] or phrase["own"]:
        hand = {"left": "right", "right": "left"}[own.lower()] if _is_mirror(transform) else own.lower()
        return (phrase["lead"] or "") + hand
    if phrase["start"] or phrase["one"]:
        names = ("start", "stop") if phrase["start"] else ("one", "two")
        first, second = (_direction(phrase[name], transform) for name in names)
        before, joint = ("from", "to") if phrase["start"] else ("at the" if first in _EDGES else "on the", "or")
        return f"{before} {_EDGES.get(first, first)} {joint} {_EDGES.get(second, second)}"
    if phrase["up"]:
        turned = {_direction(phrase["up"], transform), _direction(phrase["across"], transform)}
        (up,), (across,) = turned & set(_EDGES), turned - set(_EDGES)
        words = _BESIDE if phrase["up"].lower() in ("upper", "lower") else _EDGES
        return f"{words[up]}{phrase['joint']}{across}"
    if phrase["most"]:
        return _FURTHEST[_direction(phrase["most"], transform)]
    if phrase["edge"]:
        one, before = _direction(phrase["edge"], transform), phrase["before"].lower()
        if not phrase["place"] and before in ("on", "at", "in"):
            before = "at" if one in _EDGES else "on"
        hand = "" if one in _EDGES else phrase["hand"] or ""
        return f"{before} the {_EDGES.get(one, one)}{hand}"
    said = phrase["part"] or phrase["which"]
    one = _direction(said, transform)
    return (_EDGES if said.lower() in ("top", "bottom") else _BESIDE).get(one, one)


def _direction(word: str, transform: str) -> str:
    """Return the word for a direction after a transform, by where it moves a pixel beside the centre."""
    x, y = _AXES[_BASE[word.lower()]]
    x1, y1, _, _ = transform_box((1 + x, 1 + y, 2 + x, 2 + y), (3, 3), transform)
    return _WORDS[(round(x1) - 1, round(y1) - 1)]


def _is_mirror(transform: str) -> bool:
    """Whether a transform turns left hands into right ones."""
    right, below = (_AXES[_direction(word, transform)] for word in ("right", "below"))
    return right[0] * below[1] - right[1] * below[0] < 0


def turns_of(steps: Iterable[str], names: Iterable[str]) -> str:
    """Return the single transform that the steps in `names` come to."""
    known = set(names)
    return compose(step for step in steps if step in known)
