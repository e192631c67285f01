"""Formulas as math-verify reads them whole: in LaTeX, part by part, or refused where it would drop a sign."""

from __future__ import annotations

import re

from codev_env.scoring.numbers import THOUSANDS, plain

_RAISED = re.compile(r"\^([+-]?\d+)")
_ROOT = re.compile(r"√\s*(\d+(?:\.\d+)?|[A-Za-z]|\{[^{}]*\}|\([^()]*\))")
_PERCENT = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*\\?%")
_MIXED = re.compile(r"(?<![\d/.])(\d+) +(\d+)/(\d+)(?![\d/])")
_SPELLED = (("×", r"\times "), ("·", r"\cdot "), ("⋅", r"\cdot "), ("÷", "/"), ("≤", r"\le "), ("≥", r"\ge "))

DELIMITED = re.compile(r"\$|\\\(|\\\[|\\boxed")
FORMULA = re.compile(r"\$+[^$]*\$+|\\\(.*?\\\)|\\\[.*?\\\]", re.DOTALL)
_DELIMITER = re.compile(r"\$|\\[()\[\]]")
_BOX = "\\boxed{"
_EQUALS = re.compile(r"(?<![<>!:=])=+")
_SUBSCRIPT = re.compile(r"_(?:\{[^{}]*\}|\w)")
_NAME = re.compile(r"\D*|[^\W\d_]+ ?\(.*\)", re.DOTALL)  # x, the area, f(2)

_KINDS = {
    "<": ("<", ">", "lt", "gt"),
    "≤": ("≤", "≥", "le", "leq", "ge", "geq", "leqslant", "geqslant"),
    "±": ("±", "∓", "pm", "mp"),
    "≠": ("≠", "ne", "neq"),
    "≈": ("≈", "~", "≃", "∼", "≅", "approx", "approxeq", "sim", "simeq", "cong", "doteq"),
    "¬": ("¬", "neg", "lnot", "not"),
    "?": ("‰", "'", "′", '"', "″", "%", "ll", "gg", "propto", "prime", "equiv"),
}
_KIND_OF = {sign: kind for kind, signs in _KINDS.items() for sign in signs}
_SIGN = re.compile(r"[<>≤≥±∓≠¬≈~≃∼≅‰′'\"″%]|\\([A-Za-z]+)")
_OPEN_END = re.compile(r"[-+*/^=_<>]\s*\$*\s*$|\\(?:times|cdot|div|pm)\s*\$*\s*$")


def latex(text: str) -> str:
    """Write what is no LaTeX yet as LaTeX: raised digits, roots, products, fractions of one sign, and percent."""
    text = _MIXED.sub(r"(\1+\\frac{\2}{\3})", plain(text))
    text = _RAISED.sub(r"^{\1}", text)
    text = _ROOT.sub(lambda root: rf"\sqrt{{{root[1].strip('{}()')}}}", text)
    text = _PERCENT.sub(r"\\frac{\1}{100}", text)
    for sign, command in _SPELLED:
        text = text.replace(sign, command)
    return text


def signs(text: str) -> frozenset[str]:
    """Return the comparisons and other signs of a formula that the package drops, by kind; `"…"` for an open end."""
    found = {_KIND_OF.get(sign[1] or sign[0], "") for sign in _SIGN.finditer(text)} - {""}
    return frozenset(found | ({"…"} if _OPEN_END.search(text) else set()))


def claims(text: str, *, equations: bool) -> list[str]:
    """Return the formulas of an answer that must each be equal to the right one, `[]` if they are not all of it.

    The package reads one of several: the last side of 8 = 7, and the last formula of `$4$ $5$`.

    Args:
        text: LaTeX with or without delimiters and words.
        equations: Whether both sides of an equation are one claim, as in y = 2x + 1.
    """
    if text.count(_BOX) > 1:
        return [text]
    found = [_boxed(text)] if _BOX in text else FORMULA.findall(text) or [text]
    if _BOX not in text and found != [text] and any(map(str.isdigit, FORMULA.sub(" ", text))):
        return []
    sides = [side for formula in found for side in ([formula] if equations else _sides(formula))]
    return [text] if len(sides) == 1 else [f"${side}$" for side in sides]


def entries(text: str) -> tuple[str, list[str]]:
    """Return the brackets around a list and its entries in their order; `("", [])` for a set and what is no list."""
    text = text.strip()
    text = _DELIMITER.sub("", text).strip() if FORMULA.fullmatch(text) else text
    text = THOUSANDS.sub(lambda number: number[0].replace(",", ""), text)
    depths, depth = [], 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        depths.append(depth)
    brackets = text[0] + text[-1] if text[:1] in ("(", "[") and 0 not in depths[:-1] else ""
    ends = [i for i, char in enumerate(text) if char in ",;" and depths[i] == len(brackets) // 2]
    starts = [len(brackets) // 2 - 1, *ends]
    parts = [
        text[start + 1 : end].strip()
        for start, end in zip(starts, [*ends, len(text) - len(brackets) // 2], strict=True)
    ]
    return (brackets, parts) if len(parts) > 1 and all(parts) else ("", [])


def _boxed(text: str) -> str:
    """Return what the box of a text holds."""
    start = text.index(_BOX) + len(_BOX)
    depth = 1
    for end in range(start, len(text)):
        depth += (text[end] == "{") - (text[end] == "}")
        if not depth:
            return text[start:end]
    return text[start:]


def _sides(formula: str) -> list[str]:
    """Return the sides of an equation, or the formula itself if it gives one value to a name."""
    formula = _DELIMITER.sub("", formula).strip()
    sides = [side.strip() for side in _EQUALS.split(formula) if side.strip()]
    values = sides[1:] if len(sides) > 1 and _NAME.fullmatch(_SUBSCRIPT.sub("", sides[0])) else sides
    return values if len(values) > 1 else [formula]
