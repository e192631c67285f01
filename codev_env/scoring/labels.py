"""Texts of digits that name something and are no amount: codes, dates, times and ratios."""

from __future__ import annotations

import re

from codev_env.scoring import numbers

# Rooms, plates and serial numbers: 007, 2E3. A power of ten is written with an e in data, as in 2e3.
_CODE = re.compile(r"0\d+|\d+E\d+", re.ASCII)
_EXCLAIMED = re.compile(r"\d+ ?!", re.ASCII)
_COLONS = re.compile(r"(\d+) ?: ?(\d+)(?: ?: ?(\d+))?(?: ?([ap])\.? ?m\.?)?", re.ASCII | re.IGNORECASE)
_DATE = re.compile(r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2})|\d{1,2}([-/.])\d{1,2}\2\d{4}", re.ASCII)
# Digits between signs that would otherwise be operators: 555-123-4567, 192.168.0.1.
_SEPARATED = re.compile(r"[\d(][\d ()]*(?:[-/.:][\d ()]+)+", re.ASCII)


def is_label(text: str) -> bool:
    """Whether a text is a code, date, time, ratio or other digits with signs between them, and not one quantity."""
    bare = _bare(text)
    if _CODE.fullmatch(bare) or _COLONS.fullmatch(bare):
        return True
    return len(bare) <= numbers.MAX_CHARACTERS and bool(_SEPARATED.fullmatch(bare)) and numbers.read(bare) is None


def needs_text(gold: str, answer: str) -> bool:
    """Whether an answer must have the right answer's own characters, since that may be a code.

    An answer with decimals takes 007 for a number, as 7.0 does.
    """
    bare = _bare(gold)
    if _EXCLAIMED.fullmatch(bare):
        return True
    return bool(_CODE.fullmatch(bare)) and ("E" in bare or "." not in _bare(answer))


def same_moment(a: str, b: str) -> bool:
    """Whether two texts are one time, ratio or date: 7:00 and 07:00, 2020-01-05 and 2020/1/5.

    Days and months may trade places where the year is last, so there the sign between them must be the same.
    """
    one = _moment(_bare(a))
    return one is not None and one == _moment(_bare(b))


def _moment(text: str) -> tuple[object, ...] | None:
    if found := _COLONS.fullmatch(text):
        return found[1].lstrip("0"), found[2], found[3], (found[4] or "").lower()
    if found := _DATE.fullmatch(text):
        return found[2], *map(int, re.findall(r"\d+", text))
    return None


def _bare(text: str) -> str:
    return numbers.plain(text).strip("$ ").rstrip(".,;:? ")
