"""Answers that are numbers: exact decimals, wrong choices nearby, and the answer fields of MathVista."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from codev_env.tasks.generators.generator import sample

AnswerType = Literal["integer", "float", "text", "list"]

N_CHOICES = 4


def write(value: int, decimals: int = 0) -> str:
    """Format a number given in units of its last decimal: `write(1250, 2)` is `"12.50"`."""
    if decimals == 0:
        return str(value)
    sign, digits = "-" if value < 0 else "", str(abs(value)).rjust(decimals + 1, "0")
    return f"{sign}{digits[:-decimals]}.{digits[-decimals:]}"


def choices_for(
    rng: np.random.Generator, value: int, decimals: int = 0, tempting: Iterable[int] = (), least: int = 0
) -> tuple[str, ...]:
    """Return four different choices in random order: a number and wrong ones.

    Args:
        rng: Decides the wrong numbers and the order.
        value: The right number, in units of its last decimal.
        decimals: Number of decimals.
        tempting: Wrong numbers to prefer, for example others in the image.
        least: Lower bound of the wrong choices.
    """
    unit = 10**decimals
    step = 1 if value < 20 * unit else 10
    steps = [sign * factor * step for factor in (1, 2, 3, 5) for sign in (-1, 1)]
    near = [value + s * (unit if decimals and value > 5 * unit else 1) for s in steps]
    preferred = sample(rng, sorted({v for v in tempting if v != value and v >= least}), 2)
    others = [v for v in sample(rng, near, len(near)) if v >= least and v not in preferred]
    wrong = (preferred + others)[: N_CHOICES - 1]
    return tuple(write(v, decimals) for v in sample(rng, [value, *wrong], N_CHOICES))


def answer_fields(answer_type: AnswerType, choices: tuple[str, ...], decimals: int = 0) -> dict[str, Any]:
    """Return MathVista's fields of an answer (arXiv 2310.02255): `question_type, answer_type, precision, unit`."""
    return {
        "question_type": "multi_choice" if choices else "free_form",
        "answer_type": "text" if choices else answer_type,
        "precision": decimals if answer_type == "float" and not choices else None,
        "unit": None,
    }


def decimals_hint(decimals: int) -> str:
    """Return the sentence that asks for this number of decimals; empty for whole numbers."""
    words = {0: "", 1: " Give one decimal place.", 2: " Give two decimal places."}
    return words[decimals]
