"""Texts without case, spaces and punctuation, but with every sign that changes what a number or formula means."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from codev_env.scoring.numbers import THOUSANDS, plain

_LOOSE_DOT = re.compile(r"(?<!\d)[.](?!\d)|(?<=\d)[.](?!\d)|(?<!\d)[.](?=\d\w*[^\W\d])")
_LONG_WORD = re.compile(r"[^\W\d_]{2}")
_OTHER = re.compile(r"[^\w\s.]|_")
_WORDED = re.compile(r"(?<=\d) ?(?:(degrees?)|percent|per cent)\b")
_BRACKETED = re.compile(r"\s*([\[({]).*[,;].*([\])}])\s*", re.DOTALL)
# A dash before one of these is a minus, and no hyphen or bullet: in formulas, without a space between, anywhere.
_OPENING = frozenset("|([{+-√$€£¥")
_TIGHT = frozenset('|([{$*_`"')
_COMMAND = frozenset("\\√∞")
_FUNCTION = re.compile(
    r"(?:(?:a(?:rc)?)?(?:sin|cos|tan|cot|csc)h?|ln|log|exp|sqrt|cbrt|lim|pi|inf|infinity)(?![^\W\d_])"
)
_PRODUCT = re.compile(r"[a-z]{2}(?![^\W_])")  # of two variables

# Of decoration: a bullet before the text, <red>, marks beside a text, and selectors of a glyph's style.
_BULLET = re.compile(r"^[•‣⁃∙·◦●○▪▫■□◆◇▶►▸▹☐] +(?=\S)")
_ANGLED = re.compile(r"<([^<>\d]*)>")
_MARKS = frozenset("©®✓✔✅☑")
_STYLES = re.compile("[\ufe00-\ufe0f\u20e3\U000e0100-\U000e01ef]")
_FIRST_EMOJI = "\U0001f000"

_ARROWS = re.compile(r"<[-=]{1,3}>|[-=]{1,3}>|<[-=]{0,2}-(?=\s{1,3}[^\s\d])")
_ARROW = str.maketrans("⇒⟹⟶➔➜➡⇐⟸⟵⬅⇔⟺⟷⇑⬆⇓⬇♯", "→→→→→→←←←←↔↔↔↑↑↓↓#")
# f'(x), y'; not 'n', don't or 5', which is a number.
_PRIMES = re.compile(r"(?<![^\W_])([^\W\d_])(['′’]+)(?![^\W_])")
_QUOTED = re.compile(r"(?<![^\W_])['‘](?=\w)")
# Brackets around an operation count where they bind it to what is outside: x-(y-z), (a+b)/c, 2(a+b), sqrt{x+1}.
_OPERATION = re.compile(r"[^\s([{] *[-+*/·×÷] *\S")
_BRACKETS = "([{)]}"
_REACH = 200
_SHORT_WORD = re.compile(r"(?<![^\W_])[^\W\d_]{1,2}$")


@lru_cache(maxsize=64)  # an answer is compared with every option
def normalize(text: str) -> str:
    """Return a text in lower case, with single spaces and without punctuation other than that of numbers and formulas.

    Kept are minus signs of numbers and between them, but not hyphens; the signs of mathematics, arrows and other
    symbols; vowel signs and accents; signs at the end of a name or grade (C#, C++, A-); and, in a text with digits,
    currency signs, a colon between digits and marks of feet or minutes. A `!` is a factorial in a text without words.
    Decoration is not kept: Markdown's emphasis, bullets, quotes, frames, check marks, and emojis beside the text.
    """
    folded = " ".join(_STYLES.sub("", plain(text)).translate(_ARROW).casefold().split())
    folded = _BULLET.sub("", _ARROWS.sub(_arrow, folded))
    if angled := _ANGLED.fullmatch(folded):
        folded = angled[1]
    if not _QUOTED.search(folded):
        folded = _PRIMES.sub(lambda found: found[1] + "′" * len(found[2]), folded)
    folded = _LOOSE_DOT.sub(" ", THOUSANDS.sub(lambda number: number[0].replace(",", ""), folded)).rstrip(" ,;:?")
    folded = _WORDED.sub(lambda word: "°" if word[1] else "%", folded)
    whole = _Folded.of(folded)
    return " ".join(_OTHER.sub(lambda sign: _kept(whole, sign.start()), folded).split())


def same_brackets(a: str, b: str) -> bool:
    """Whether two lists may be the same by their brackets: [1, 2) is not (1, 2], but 1, 2 is any of them."""
    one, two = _BRACKETED.fullmatch(a), _BRACKETED.fullmatch(b)
    return one is None or two is None or one.groups() == two.groups()


def _arrow(found: re.Match[str]) -> str:
    """Return the sign that an arrow in ASCII stands for; <= is none."""
    left, right = found[0].startswith("<"), found[0].endswith(">")
    return "↔" if left and right else "→" if right else "←"


@dataclass(frozen=True)
class _Folded:
    """A text in lower case, and what decides about its signs.

    Attributes:
        text: The text.
        digits: Whether it has digits.
        words: Whether it has words, which are no variables.
        first: Index of the first letter or digit.
        last: Index of the last one; before `first` if there is none.
    """

    text: str
    digits: bool
    words: bool
    first: int
    last: int

    @classmethod
    def of(cls, text: str) -> _Folded:
        """Look through a text."""
        at = [i for i, char in enumerate(text) if char.isalnum()] or [len(text), -1]
        words = bool(_LONG_WORD.search(text)) or any(map(_is_word, text))
        return cls(text, any(map(str.isdigit, text)), words, at[0], at[-1])

    def inside(self, at: int) -> bool:
        """Whether there are letters or digits on both sides."""
        return self.first < at < self.last


def _is_mark(char: str) -> bool:
    """Whether a character is a vowel sign, an accent or another mark on a letter."""
    return bool(char) and unicodedata.category(char).startswith("M")


def _in_word(char: str) -> bool:
    """Whether a character is of a word or number: a letter, a digit or a mark on one."""
    return char.isalnum() or _is_mark(char)


def _is_word(char: str) -> bool:
    """Whether a character is of a word and no variable, since its script has no case, or it is a mark on a letter."""
    return not char.isascii() and unicodedata.category(char) in ("Lo", "Mc", "Mn")


def _kept(whole: _Folded, at: int) -> str:
    """Return what becomes of one sign: itself, with or without spaces around it, or a space."""
    text, sign = whole.text, whole.text[at]
    before, after = text[max(0, at - 2) : at], text[at + 1 : at + 3]
    if _is_mark(sign):
        return sign if before.strip() == before != "" else ""
    left, right = before.rstrip()[-1:], after.lstrip()[:1]
    if right == ".":
        right = after.lstrip()[1:2] or "0"
    if sign in "+-" and not _in_word(left) and right.isdigit():
        return " " if sign == "+" and left not in ("+", "-", "^") else sign
    if sign == "-":
        return _dash(whole, at, left, right)
    if sign == "^" or (sign == "_" and left.isdigit() and right.isdigit()):
        return sign
    kept = _is_symbol(whole, at, left, right) or _is_punctuation_kept(whole, at, left, right)
    return f" {sign} " if kept else " "


def _is_symbol(whole: _Folded, at: int, left: str, right: str) -> bool:
    """Whether a sign is one of mathematics, a currency or another symbol, and no decoration."""
    text, sign = whole.text, whole.text[at]
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    kind = unicodedata.category(sign)
    if sign in "%‰":
        return True
    if kind == "Sc":
        return whole.digits or sign != "$" or _is_single(text, sign)  # Two are the bounds of a formula.
    if kind == "So":
        tight = _in_word(before) or _in_word(after)
        return sign not in _MARKS and (sign < _FIRST_EMOJI or tight or whole.inside(at))
    if kind != "Sm" or whole.digits:
        return kind == "Sm"
    if sign == "=":
        return whole.inside(at)
    if sign == "|":
        return _in_word(before) or _in_word(after) or _is_between(before, after, left, right)
    if sign == "~":
        return "~" not in (before, after) and (_in_word(after) or _is_between(before, after, left, right))
    return True


def _is_punctuation_kept(whole: _Folded, at: int, left: str, right: str) -> bool:
    """Whether a sign of punctuation is part of a number, a formula or a name."""
    text, sign = whole.text, whole.text[at]
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    ended = _in_word(before) and not _in_word(after)
    if sign in _BRACKETS:
        return _binds(whole, at, left, right)
    if sign == "/":
        return _closes(left) and _opens(right)
    if sign == "*":
        star = before.isalpha() and ended and not whole.words and _is_single(text, sign)
        return star or _is_between(before, after, left, right)
    if sign == "·":
        return (whole.digits or not whole.words) and _is_between(before, after, left, right)
    if sign == ":":
        ratio = before.isalpha() and after.isalpha() and not whole.words
        return ratio or (before.isdigit() and after.isdigit())
    if sign == "!":
        return not whole.words or after == "="
    if sign == "#":
        return ended
    if sign == "′" and (before == "′" or before.isalpha()):
        return True
    return sign in "'\"′″" and before.isdigit() and ended and _is_single(text, sign)


def _binds(whole: _Folded, at: int, left: str, right: str) -> bool:
    """Whether a bracket holds an operation together that would be read otherwise without it."""
    text, sign = whole.text, whole.text[at]
    if sign in "([{":
        binds = _in_word(text[at - 1 : at]) or (left != "" and left in "-*/^·×÷√)]}")
        after = text[at + 1 : at + _REACH]
        ends = [end for end in map(after.find, _BRACKETS) if end >= 0]
        return binds and bool(_OPERATION.search(after[: min(ends, default=len(after)) + 1]))
    binds = _in_word(text[at + 1 : at + 2]) or (right != "" and right in "*/^·×÷([{")
    if not binds and (right != "!" or whole.words):
        return False
    before = text[max(0, at - _REACH) : at]
    return bool(_OPERATION.search(before[max(0, *map(before.rfind, _BRACKETS)) :]))


def _is_single(text: str, sign: str) -> bool:
    """Whether a sign occurs once, and not as one of a pair."""
    return text.find(sign) == text.rfind(sign)


def _closes(char: str) -> bool:
    """Whether an operand may end with this character."""
    return _in_word(char) or (char != "" and char in ")]}|")


def _opens(char: str) -> bool:
    """Whether an operand may begin with this character."""
    return _in_word(char) or (char != "" and char in "([{|√\\")


def _is_between(before: str, after: str, left: str, right: str) -> bool:
    """Whether a sign is between two operands, and is no emphasis, which has a space on one side."""
    return _closes(left) and _opens(right) and (before == " ") == (after == " ")


def _dash(whole: _Folded, at: int, left: str, right: str) -> str:
    """Keep a minus, drop a hyphen: 3-5, x-5, 5- and A- have the former, covid-19 and x-ray the latter."""
    text = whole.text
    before, after = text[max(0, at - 2) : at], text[at + 1 : at + 3]
    spaced = before.endswith(" ") and not after.startswith(" ")
    if right and (right in _COMMAND or (right in _OPENING and (whole.digits or _in_word(left)))):
        return " - "
    if not _in_word(left) and after[:1] in _TIGHT:
        return " - "
    variable = not _in_word(left) and after[:1].isalpha() and not _in_word(after[1:])
    if not _in_word(left):
        variable = variable or bool(_PRODUCT.match(text, at + 1) or _FUNCTION.match(text, at + 1))
    elif left.isdigit() or _SHORT_WORD.search(text, max(0, at - 3), at):
        variable = bool(_FUNCTION.match(text, at + 1))
    if variable or (right.isdigit() and spaced):
        return " -"
    ended = _in_word(before[-1:]) and not _in_word(after[:1])
    if ended and (at > whole.last or _SHORT_WORD.search(text, max(0, at - 3), at)):
        return " - "
    hyphen = (
        before[-1:].isalnum()
        and after[:1].isalnum()
        and (len(before) == 2 and before.isalpha() or after.isalpha() and len(after) == 2)
    )
    single = left.isalpha() and right.isalpha() and not before.isalpha() and not after.isalpha()
    return " - " if (left.isdigit() or right.isdigit()) and not hyphen or single and not hyphen else " "
