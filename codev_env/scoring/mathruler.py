r"""The rule that ZoomBench tries before it asks an LLM: the grader of the package MathRuler, as far as it is safe.

Source: `hiyouga/MathRuler`, `mathruler/grader.py` and `math_normalize.py`, as `mm-eval/judge_qwenlm.py` of
`inclusionAI/Zooming-without-Zooming` calls it. Two answers are the same if one of two normalisations makes them the
same text, or their parts are equal numbers. The package also has sympy evaluate the difference of any two formulas,
which runs what a model wrote; here only numbers, fractions and mixed numbers are compared. LaTeX (a backslash) is not
read. Both leave what they do not find equal to the LLM, so a pair that only the package finds equal costs a question.
"""

from __future__ import annotations

import keyword
import re
from fractions import Fraction

_UNITS = (
    *("degree", "cm", "centimeter", "meter", "mile", "second", "minute", "hour", "day", "week", "month", "year"),
    *("foot", "feet", "inch", "yard"),
)
_UNIT = [re.compile(rf"{unit}(es)?(s)? *(\^[0-9]+)?") for unit in _UNITS]
_WORDS = (("$", ""), ("%", ""), (" or ", " , "), (" and ", " , "))
_SCALES = (("million", "*10^6"), ("billion", "*10^9"), ("trillion", "*10^12"))
_THOUSANDS = re.compile(r"(\d),(\d\d\d)($|\D)")
_NEARLY = 1e-7  # of an integer
_MAX = 200  # characters that are read
_BRACKETS = "()[]"
_PLAIN = re.compile(r"(-?)(?:(\d+)\+)?(\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:/(\d{1,30}))?")
_FRACTION = re.compile(r"-?[0-9]+.?/0*[1-9][0-9]*.?")


def same_by_mathruler(gold: str, answer: str) -> bool:
    """Return whether the two are the same without asking anybody; `False` also where that is not known."""
    if "\\" in gold + answer or max(len(gold), len(answer)) > _MAX:
        return False
    if _as_in_math(gold) == _as_in_math(answer):
        return True
    one, other = _normalized(gold), _normalized(answer)
    if one == other or not one:
        return one == other
    parts, others = _parts(one), _parts(other)
    if len(parts) != len(others) or (len(others) > 1 and (one[0], one[-1]) != (other[0], other[-1])):
        return False
    return bool(parts) and all(map(_equal, parts, others))


def _as_in_math(text: str) -> str:
    """Normalise as the data set MATH does: no space and percent, "x=" of one letter left out, a/b as a fraction."""
    text = text.strip().replace("\n", "").replace("%", "").replace(" .", " 0.").replace("{.", "{0.")
    text = f"0{text}" if text.startswith(".") else text
    left, equals, right = text.partition("=")
    if equals and "=" not in right and len(left) <= 2:
        text = right
    text = text.replace(" ", "")
    return "1/2" if text == "0.5" else text


def _normalized(text: str) -> str:
    """Normalise without case, units, currencies and percent, wherever they are: "Monday" is "mon"."""
    for old, new in (*_WORDS, *_SCALES):
        text = text.replace(old, new)
    for unit in _UNIT:
        text = unit.sub("", text)
    if text[:1] == "{" and text[-1:] == "}":
        text = text[1:-1]
    text = _integer(text) or text
    text = re.sub("- *", "-", text)
    text = re.sub("([0-9]) +([0-9])", r"\1+\2", text)
    text = text.replace(" ", "").replace("{", "").replace("}", "").lower()
    return _integer(_ungrouped(text)) or text


def _integer(text: str) -> str:
    """Return a number that is nearly an integer as one, else `""`."""
    try:
        value = float(text)
        whole = round(value)
    except (ValueError, OverflowError):
        return ""
    return str(whole) if abs(value - whole) <= _NEARLY else ""


def _ungrouped(text: str) -> str:
    """Take the commas out of groups of three digits."""
    while (shorter := _THOUSANDS.sub(r"\1\2\3", text)) != text:
        text = shorter
    return text


def _parts(text: str) -> list[str]:
    text = _ungrouped(text)
    bracketed = len(text) > 2 and text[0] in _BRACKETS and text[-1] in _BRACKETS
    if bracketed and not any(sign in text[1:-1] for sign in _BRACKETS):
        return [part.strip() for part in text[1:-1].split(",")]
    return [text]


def _equal(one: str, other: str) -> bool:
    """Whether two parts are equal numbers, or the same name of at most two letters."""
    if _FRACTION.fullmatch(one) and _FRACTION.fullmatch(other):
        return one == other  # 2/4 is not 1/2
    if bool(_integer(_ungrouped(one))) != bool(_integer(_ungrouped(other))):
        return False
    if one == other and one.isalpha() and len(set(one)) <= 2 and not keyword.iskeyword(one):
        return True
    value = _value(one)
    return value is not None and value == _value(other)


def _value(text: str) -> Fraction | None:
    match = _PLAIN.fullmatch(text)
    if match is None or (match[4] and not int(match[4])):
        return None
    sign, whole, number, below = match.groups()
    value = Fraction(number if not number.endswith(".") else number[:-1]) / int(below or 1)
    # -7+3/4, as the package writes -7 3/4, is -6.25 there as well.
    return (-int(whole) if sign else int(whole)) + value if whole else -value if sign else value
