"""Quantities as people write them: read a text as one number with its sign, comparison and unit, or not at all."""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import dataclass, replace

_MINUS = dict.fromkeys(map(ord, "−–—‒―﹣－‐‑˗➖"), "-")
_RINGS = dict.fromkeys(map(ord, "º˚"), "°")  # NFKC would make an o of the first
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋", "0123456789+-")
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+")
_LOWERED = re.compile(r"(?<=\d)[₀₁₂₃₄₅₆₇₈₉₊₋]+")
_VULGAR = re.compile("[¼-¾⅐-⅞]")
_SPACES = re.compile(r"[^\S ]")
_DECIMAL_DIGIT = re.compile(r"[^\D0-9]")  # of another script
_SEPARATORS = str.maketrans("٫٬", ".,")

_CURRENCIES = "$€£¥₹₩₽¢"
_RELATIONS = {
    **{"<=": "≤", "=<": "≤", "⩽": "≤", "≦": "≤", ">=": "≥", "⩾": "≥", "≧": "≥"},
    **{
        "~": "≈",
        "~=": "≈",
        "≃": "≈",
        "∼": "≈",
        "≅": "≈",
        "+/-": "±",
        "+-": "±",
        "∓": "±",
        "!=": "≠",
        "=": "",
        "==": "",
    },
}
_RELATION = re.compile(r"\s*(\+/?-|[<>=!~]=|=<|==|[<>=~≤≥≦≧⩽⩾≈≃∼≅≠±∓])\s*")
_SCALES = {"hundred": 1e2, "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_UNITS = {
    **{"percent": "%", "per cent": "%", "pct": "%", "degrees": "°", "degree": "°", "deg": "°"},
    **{"dollar": "$", "dollars": "$", "usd": "$", "euro": "€", "euros": "€", "eur": "€", "gbp": "£", "yen": "¥"},
}
_WORDS_OF = {
    **{"mm": "millimeter millimetre", "cm": "centimeter centimetre", "m": "meter metre", "km": "kilometer kilometre"},
    **{"mg": "milligram", "g": "gram", "kg": "kilogram", "ml": "milliliter millilitre", "l": "liter litre"},
    **{"s": "second sec", "min": "minute min", "h": "hour hr", "in": "inch", "ft": "foot", "yd": "yard", "mi": "mile"},
}
_UNITS |= {name + end: unit for unit, names in _WORDS_OF.items() for name in names.split() for end in ("", "s")}
_UNITS |= {"inches": "in", "feet": "ft", "′": "'", "′′": '"', "''": '"'}
_SIGNS = frozenset({"%", "‰", "°", *_CURRENCIES})
"""Units of one sign, which an answer may leave out."""
_SAFE = frozenset({"°", *_CURRENCIES})
"""Units that an answer may add; not `%`, which makes another number of it."""
_MEASURES = frozenset(
    "mm cm dm m km in inch inches ft foot feet yd yard yards mi mile miles mg g kg lb lbs oz ms s sec secs second "
    "seconds min mins minute minutes h hr hrs hour hours ml cl l L kph mph kmh Hz kHz MHz GHz Pa kPa hPa bar".split()
)
"""Units that an answer may leave out as mathematics, alone or in m/s²; 12A and 2x are not 12 and 2."""
_SCALED = frozenset({"k", "K", "M", "mn", "B", "bn", "T", "tn"})
"""Letters that may stand for a thousand, a million and so on, so that 5K is not 5."""
_CASED = {"m": (1, 3), "b": (2, 4)}
"""Letters whose case alone makes another unit, of so many letters: mW is not MW, and Mb not MB."""
MAX_CHARACTERS = 64
_MAX_FACTORIAL = 20

_GROUPED = r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?|[1-9]\d{0,2}(?: \d{3})+(?:\.\d+)?|[1-9]\d{0,2}(?:['’]\d{3})+(?:\.\d+)?"
_DOTTED = r"[1-9]\d{0,2}(?:\.\d{3}){2,}"
# Not to be taken for anything else: 1.234,56 and 1 234,56, and lakhs, 12,34,567.
_LOCAL = r"[1-9]\d{0,2}(?:\.\d{3})+,\d+|[1-9]\d{0,2}(?: \d{3})+,(?:\d{1,2}|\d{4,})|[1-9]\d?(?:,\d\d)+,\d{3}(?:\.\d+)?"
_DECIMAL = rf"(?:(?:{_LOCAL})(?![.,]?\d)|{_DOTTED}|{_GROUPED}|\d+(?:\.\d*)?|\.\d+)"
_MAGNITUDE = re.compile(
    rf"(?:(?:(?P<whole>\d+) +)?(?P<above>\d+) ?/ ?(?P<below>\d+)"
    rf"|(?P<mantissa>{_DECIMAL})(?: ?[x×·*⋅] ?10 ?\^ ?[({{]?(?P<power>[+-]?\d+)[)}}]?|e(?P<exponent>[+-]?\d{{1,3}}))"
    rf"|(?P<decimal>{_DECIMAL})(?: ?\^ ?[({{]?(?P<raised>[+-]?\d+)[)}}]?| ?(?P<factorial>!))?)(?![\d.,]*\d)",
    re.ASCII | re.IGNORECASE,
)
_WORDS = re.compile(r"\\(?:text|textrm|mathrm|mbox|rm|operatorname)\s?\{([^{}]*)\}")
_THIN = re.compile(r"\\[,;:! ]")
_BRACED = re.compile(r"(?<=[^\W\d_])\^\{([+-]?\d+)\}")
_DEGREES = re.compile(r"\s*\^?\s*(?:\{\s*\\circ\s*\}|\\circ\b|\\degree\b)")
_TIMES = re.compile(r"\s*\\(?:times|cdot)\b\s*")
_UNIT = re.compile(r"°?[^\W\d_]+(?:[23]|\^-?\d|(?: ?[/·*] ?[^\W\d_]+))*\.?|[%‰°'\"′]|''|′′")
_RANGE = re.compile(r"(.*[\d%°!)]) ?(?:-| to ) ?([^\s-].*)", re.DOTALL)
_BETWEEN = re.compile(r"(?:from|between) (.*\S) (?:to|and) (.*)", re.DOTALL | re.IGNORECASE)
_NEGATIVE = re.compile(r"^(?:minus|negative) (?=[\d.$€£¥])", re.IGNORECASE)
_INTERVAL = re.compile(r"([\[(])([^,;]+)[,;]([^,;]+)([\])])")

THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?![\d,])", re.ASCII)
"""A number in groups of three digits within a text."""


@dataclass(frozen=True)
class Quantity:
    """One number, or a range, as it is written.

    Attributes:
        value: The number, in the written unit: 50 for "50%"; the lower end of a range.
        relation: `""` or one of < > ≤ ≥ ≈ ≠ ±; "-" for a range, "[)" and the like for an interval.
        unit: `""`, a sign such as `%`, `°` or a currency, or letters such as "cm".
        upper: The upper end of a range.
    """

    value: float
    relation: str = ""
    unit: str = ""
    upper: float | None = None

    @property
    def fraction(self) -> float:
        """The value without a sign for hundredths or thousandths: 0.5 for "50%"."""
        return self.value / {"%": 100.0, "‰": 1000.0}.get(self.unit, 1.0)


def plain(text: str) -> str:
    """Write a text with ASCII digits and minus signs, `^` before what is raised, and fractions as `1/2`.

    As NFKC does, except that digits of other scripts are those of ASCII, and that 5² becomes 5^2 and not 52, 5₂ 5_2,
    and 5½ "5 1/2" and not 51/2.
    """
    text = text.translate(_RINGS).translate(_SEPARATORS)
    text = _RAISED.sub(lambda run: "^" + run[0].translate(_SUPERSCRIPTS) if run.start() else run[0], text)
    text = re.sub("^⁻", "-", text)
    text = _RAISED.sub(lambda run: "^" + run[0].translate(_SUPERSCRIPTS), text)
    text = _LOWERED.sub(lambda run: "_" + run[0].translate(_SUBSCRIPTS), text)
    text = _VULGAR.sub(lambda sign: f" {unicodedata.normalize('NFKC', sign[0])} ", text)
    text = unicodedata.normalize("NFKC", _SPACES.sub(" ", text)).translate(_MINUS)
    return _DECIMAL_DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), text.replace("⁄", "/").strip())


def read(text: str) -> Quantity | None:
    r"""Read a text as one quantity, all of it; `None` for anything else, and for what is not a finite number.

    Known are: signs (any dash as minus), groups of thousands (1,000; 1 000; 1'000; 1.000.000), a decimal comma after
    such groups (1.234,56), lakhs (12,34,567), fractions and mixed numbers, powers and 2×10³ or 2e3, factorials, |x|,
    percent and per mille, degrees, currencies, a unit of letters, "5 million", comparisons (<5, ≥5, ≈5, ±5), ranges
    (3–5, 3 to 5) and half-open intervals; of LaTeX units in `\text{}`, thin spaces, degrees and products.
    """
    if len(text) > MAX_CHARACTERS:
        return None
    text = plain(text).rstrip(".,;:? ").replace("\\%", "%").replace("\\$", "$")
    if "\\" in text:
        text = _THIN.sub(" ", _WORDS.sub(r"\1", text))
        text = _TIMES.sub("×", _DEGREES.sub("°", text)).strip()
    text = _BRACED.sub(r"^\1", text.replace("{,}", ","))
    text = _NEGATIVE.sub("-", text)
    interval = _INTERVAL.fullmatch(text)
    if interval and interval[1] + interval[4] in ("[)", "(]"):
        return _span(interval[2], interval[3], interval[1] + interval[4])
    found = _RELATION.match(text)
    if found and (end := found.end()) < len(text):
        number = _signed(text[end:])
        return number and replace(number, relation=_RELATIONS.get(found[1], found[1]))
    number = _signed(text)
    if number is None and (ends := _BETWEEN.fullmatch(text) or _RANGE.fullmatch(text)):
        return _span(ends[1], ends[2], "-")
    return number


def same(answer: Quantity, gold: Quantity) -> bool:
    """Whether two quantities are the same: value, comparison and unit.

    An answer may leave out a percent sign, a degree sign or a currency of the right answer, and may add one of the
    latter two. It may not add a percent sign: 50% is not 50.
    """
    units = (
        _same_unit(answer.unit, gold.unit)
        or (not answer.unit and gold.unit in _SIGNS)
        or (not gold.unit and answer.unit in _SAFE)
    )
    return units and answer.relation == gold.relation and _close(answer.value, gold.value) and _ends(answer, gold)


def equal(answer: Quantity, gold: Quantity) -> bool | None:
    """Whether two quantities are equal as numbers: 50% is 0.5, and 5 cm are 5. `None` where a unit decides."""
    if {answer.unit, gold.unit} <= {"", "%", "‰"}:
        return answer.relation == gold.relation and _close(answer.fraction, gold.fraction) and _ends(answer, gold)
    if _same_unit(answer.unit, gold.unit) or (not answer.unit and _is_measure(gold.unit)):
        return same(replace(answer, unit=gold.unit), gold)
    return None


def differ(answer: Quantity, gold: Quantity) -> bool:
    """Whether two quantities, which `equal` does not compare, have different units."""
    return bool(gold.unit and answer.unit) or answer.unit in _SCALED


def _is_measure(unit: str) -> bool:
    return all(re.sub(r"-?\d$", "", part) in _MEASURES for part in re.split("[/·*]", unit))


def undelimited(text: str) -> str:
    """Return a text without the dollar signs of a formula around it; one alone is a currency."""
    text = text.strip()
    while len(text) > 2 and text[0] == text[-1] == "$":
        text = text[1:-1].strip()
    return text


def has_sign(number: Quantity) -> bool:
    """Whether the unit of a number is one that the package math-verify drops without a word, such as $ or °."""
    return number.unit in _SIGNS


def is_bare(text: str) -> bool:
    """Whether a text is one number alone, without comparison and unit."""
    number = read(undelimited(text))
    return number is not None and (number.relation, number.unit) == ("", "")


def _ends(answer: Quantity, gold: Quantity) -> bool:
    if answer.upper is None or gold.upper is None:
        return answer.upper is gold.upper
    return _close(answer.upper, gold.upper)


def _close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)


def _same_unit(a: str, b: str) -> bool:
    """Whether two units are the same, whatever their case, unless only that of one m or b differs."""
    if a == b:
        return True
    apart = [one.lower() for one, other in zip(a, b, strict=False) if one != other]
    least, most = _CASED.get(apart[0], (0, 0)) if len(apart) == 1 else (0, 0)
    return a.casefold() == b.casefold() and not least <= len(a) <= most


def _span(low: str, high: str, relation: str) -> Quantity | None:
    a, b = _signed(low.strip()), _signed(high.strip())
    if a is None or b is None or (a.unit and not _same_unit(a.unit, b.unit)):
        return None
    return Quantity(a.value, relation, b.unit, b.value)


def _signed(text: str) -> Quantity | None:
    """Read a number with sign, bars, brackets, currency and unit."""
    for opening, closing in (("|", "|"), ("(", ")")):
        if text.startswith(opening) and text.endswith(closing) and len(text) > 2:
            inner = text[1:-1].strip()
            if inner.startswith(("|", "(")):
                return None
            number = _signed(inner)
            return number and (replace(number, value=abs(number.value)) if opening == "|" else number)
    head = re.match(rf"([+-]?) ?([{_CURRENCIES}]?) ?([+-]?) ?", text)
    assert head is not None
    if (head[1] and head[3]) or (head[3] and not head[2]):
        return None
    sign, currency = head[1] + head[3], head[2]
    found = _MAGNITUDE.match(text, head.end())
    value = None if found is None else _value(found)
    if found is None or value is None or not math.isfinite(value):
        return None
    rest = text[found.end() :].strip()
    for word, factor in _SCALES.items():
        if rest.lower().startswith(word) and not rest[len(word) : len(word) + 1].isalpha():
            value, rest = value * factor, rest[len(word) :].strip()
    unit = _unit(rest)
    if unit is None or (currency and unit):
        return None
    return Quantity(-value if sign == "-" else value, "", unit or currency)


def _value(found: re.Match[str]) -> float | None:
    """Return the value of a magnitude; `None` if it is none, or larger than a float."""
    try:
        if found["below"]:
            return int(found["whole"] or 0) + int(found["above"]) / int(found["below"])
        if found["mantissa"]:
            return float(f"{_ungrouped(found['mantissa'])}e{int(found['power'] or found['exponent'])}")
        value = float(_ungrouped(found["decimal"]))
        if found["raised"]:
            return value ** int(found["raised"])
        if found["factorial"]:
            return float(math.factorial(int(value))) if value.is_integer() and value <= _MAX_FACTORIAL else None
        return value
    except (ArithmeticError, ValueError):
        return None


def _ungrouped(text: str) -> str:
    if re.search(r"[. ]\d{3},\d+$", text):
        text = re.sub(r"[. ]", "", text).replace(",", ".")
    text = re.sub(r"[, '’]", "", text)
    return text.replace(".", "") if text.count(".") > 1 else text


def _unit(text: str) -> str | None:
    """Return a unit in one writing, `""` for none, `None` for something else."""
    text = text.strip()
    if not text or text in _CURRENCIES:
        return text
    known = _UNITS.get(text.lower())
    if known:
        return known
    return re.sub(r"[ ^]|\.$", "", text) if _UNIT.fullmatch(text) else None
