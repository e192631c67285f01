"""Texts without case, spaces and punctuation, but with every sign that changes what a number or formula means."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from codev_env.scoring.numbers import THOUSANDS, plain

_LOOSE_DOT = re.compile(r"(?<!\d)[.](?!\d)|(?<=\d)[.](?!\d)|(?<!\d)[.](?=\d\w*[^\W\d])")
_LONG_WORD = re.compile(r"[^\W\d_]{2}")
_OTHER = re.compile(r"[^\w\s.]|_")
_BRACKETED = re.compile(r"\s*([\[({]).*[,;].*([\])}])\s*", re.DOTALL)
_OPENING = frozenset("|(+-√$€£¥")
_ONLY_WITH_DIGITS = frozenset("<>=~|%‰°")


@lru_cache(maxsize=64)  # an answer is compared with every option
def normalize(text: str) -> str:
    """Return a text in lower case, with single spaces and without punctuation other than that of numbers and formulas.

    Kept are minus signs of numbers and between them, but not hyphens; the signs of mathematics; and, in a text with
    digits, percent, degree and currency signs, a colon between digits, a factorial and marks of feet or minutes.
    """
    folded = " ".join(plain(text).casefold().split())
    folded = _LOOSE_DOT.sub(" ", THOUSANDS.sub(lambda number: number[0].replace(",", ""), folded))
    digits, words = any(map(str.isdigit, folded)), bool(_LONG_WORD.search(folded))
    return " ".join(_OTHER.sub(lambda sign: _kept(folded, sign.start(), digits, words), folded).split())


def same_brackets(a: str, b: str) -> bool:
    """Whether two lists may be the same by their brackets: [1, 2) is not (1, 2], but 1, 2 is any of them."""
    one, two = _BRACKETED.fullmatch(a), _BRACKETED.fullmatch(b)
    return one is None or two is None or one.groups() == two.groups()


def _kept(text: str, at: int, digits: bool, words: bool) -> str:
    """Return what becomes of one sign: itself, with or without spaces around it, or a space."""
    sign, before, after = text[at], text[max(0, at - 2) : at], text[at + 1 : at + 3]
    left, right = before.rstrip()[-1:], after.lstrip()[:1]
    if right == ".":
        right = after.lstrip()[1:2] or "0"
    if sign in "+-" and not left.isalnum() and right.isdigit():
        return " " if sign == "+" and left not in ("+", "-", "^") else sign
    if sign == "-":
        return _dash(text, at, left, right, digits)
    if sign == "^" or (sign == "_" and left.isdigit() and right.isdigit()):
        return sign
    kind = unicodedata.category(sign)
    arrow = "\u2190" <= sign <= "\u21ff"
    if kind == "Sm" and (digits or not (arrow or sign in _ONLY_WITH_DIGITS)):
        return f" {sign} "
    if not digits:
        return " "
    tight = before[-1:].isalnum() and after[:1].isalnum()
    between = left.isalnum() and right.isalnum() and (before[-1:] == " ") == (after[:1] == " ")
    if (
        kind == "Sc"
        or sign in _ONLY_WITH_DIGITS
        or (sign == "/" and left.isalnum() and right.isalnum())
        or (sign in "*·⋅" and between)
        or (sign == ":" and tight and left.isdigit() and right.isdigit())
        or (sign == "!" and not words)
        or (sign in "'\"′″" and before[-1:].isdigit() and not after[:1].isalnum() and text.count(sign) == 1)
    ):
        return f" {sign} "
    return " "


def _dash(text: str, at: int, left: str, right: str, digits: bool) -> str:
    """Keep a minus, drop a hyphen: 3-5, x-5 and 5- have the former, covid-19 and x-ray the latter."""
    before, after = text[max(0, at - 2) : at], text[at + 1 : at + 3]
    spaced = before.endswith(" ") and not after.startswith(" ")
    if right and right in _OPENING and (digits or left.isalnum()):
        return " - "
    variable = not left.isalnum() and after[:1].isalpha() and not after[1:].isalnum()
    if variable or (right.isdigit() and spaced):
        return " -"
    hyphen = (
        before[-1:].isalnum()
        and after[:1].isalnum()
        and (len(before) == 2 and before.isalpha() or after.isalpha() and len(after) == 2)
    )
    single = left.isalpha() and right.isalpha() and not before.isalpha() and not after.isalpha()
    return " - " if (left.isdigit() or right.isdigit()) and not hyphen or single and not hyphen else " "
