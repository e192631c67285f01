"""Formulas as math-verify reads them whole: in LaTeX, or refused where the package would drop a sign without a word."""

from __future__ import annotations

import re

from codev_env.scoring.numbers import plain

_RAISED = re.compile(r"\^([+-]?\d+)")
_ROOT = re.compile(r"√\s*(\d+(?:\.\d+)?|[A-Za-z]|\{[^{}]*\}|\([^()]*\))")
_PERCENT = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*\\?%")
_MIXED = re.compile(r"(?<![\d/.])(\d+) +(\d+)/(\d+)(?![\d/])")
_SPELLED = (("×", r"\times "), ("·", r"\cdot "), ("⋅", r"\cdot "), ("÷", "/"), ("≤", r"\le "), ("≥", r"\ge "))

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
