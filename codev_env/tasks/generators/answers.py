"""Answers that are numbers: exact decimals, wrong choices nearby, and the answer fields of MathVista."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from codev_env.tasks.generators.generator import pick, sample

AnswerType = Literal["integer", "float", "text", "list"]

N_CHOICES = 4
_STEPS = (1, 2)
"""Distances between the choices of small numbers, in units of the last decimal."""
_MOST_STEPS = 200
"""From so many distances above the least number on, choices are ten times as far apart. It and a tenth of it are
multiples of `N_CHOICES`, so that all four have one distance."""


def write(value: int, decimals: int = 0) -> str:
    """Format a number given in units of its last decimal: `write(1250, 2)` is `"12.50"`."""
    if decimals == 0:
        return str(value)
    sign, digits = "-" if value < 0 else "", str(abs(value)).rjust(decimals + 1, "0")
    return f"{sign}{digits[:-decimals]}.{digits[-decimals:]}"


def choices_for(
    rng: np.random.Generator,
    value: int,
    decimals: int = 0,
    tempting: Iterable[int] = (),
    least: int = 0,
    times: int = 1,
) -> tuple[str, ...]:
    """Return four different choices in random order: a number and wrong ones.

    The four do not say which one is right. They are the number and others that might as well have been asked for, or,
    without these, four numbers at equal distances, the same four for each of them as the right one.

    Args:
        rng: Decides the wrong numbers and the order.
        value: The right number, in units of its last decimal; at least `least`.
        decimals: Number of decimals.
        tempting: Numbers in the image, any of which might be the right one; used if it is one and there are others.
        least: Lower bound of the wrong choices.
        times: All are multiplied by it, the right one too.
    """
    might = {v for v in tempting if v >= least}
    if value in might and len(might) >= N_CHOICES:
        shown = [value, *sample(rng, sorted(might - {value}), N_CHOICES - 1)]
    else:
        step = pick(rng, _STEPS)
        while (value - least) // step >= _MOST_STEPS:
            step *= 10
        first = value - (value - least) // step % N_CHOICES * step
        shown = [first + number * step for number in range(N_CHOICES)]
    return tuple(write(times * v, decimals) for v in sample(rng, shown, N_CHOICES))


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
