"""TIR-Bench's rules, which give parts of a point.

Source: `agents-x-project/TIR-Bench`, `calculate_score.py` and `tools.py` (arXiv 2511.01833). There a model cuts the
answer out of each response first, except for OCR; here the answer of the episode takes that place.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from codev_env.scoring.maths import verified
from codev_env.scoring.scorer import Score, edit_distance, gold_letter, letters_of
from codev_env.types import Task

_LETTERS = "ABCDEFGHIJ"
_LOOKED_UP = f"{_LETTERS}H"  # as the script lists them
_NOISE = re.compile(r"[A-Za-z*:\s]+")
_NUMBERS = re.compile(r"\d+")
_RUN = re.compile("[\\d\\s,\uff0c]+")
_PAIR = re.compile(r"\b(\d+)\s*,\s*(\d+)\b")
_CORRECTED = {"60.jpg": "mobi", "62.jpg": "aires"}
"""Right answers that the authors' script puts in place of those of two images, by the end of their names."""


def score_tirbench(task: Task, answer: str) -> Score:
    """Score one answer by the rule of its task, `Task.category`; `Score.share` is the script's count.

    Raises:
        ConfigError: The answer needs the package math-verify, which is missing.
        ScorerError: That package cannot run.
    """
    gold = gold_letter(task) or task.answer
    if task.category == "ocr":
        return _points(_substring(task, answer), answer, "the right text is part of the answer")
    text = answer.replace("*", "").strip()
    kind = _kind(gold)
    if task.category in _BY_TASK and not (kind is int and task.category != "jigsaw"):
        rule, why = _BY_TASK[task.category]
        try:
            return _points(rule(task, text, gold), text, why)
        except ValueError:  # thousands of digits in a row are no number for Python, and no points there
            return Score(False, text, "none", "a number with too many digits", 0.0)
    if kind is str:
        return _choice(task, text, gold)
    if kind is None:
        return Score(False, text, "none", "the right answer is neither letters nor a number: TIR-Bench has no rule")
    return _points(_number(text, gold, kind), text, "compared as a number, then by math-verify")


def _points(share: float, text: str, why: str) -> Score:
    part = f": {share:.3g} of the point" if 0 < share < 1 else ""
    return Score(share >= 1, text, "text" if text else "none", why + part, share)


def _kind(gold: str) -> type[str | int | float] | None:
    """Return how a right answer is compared: letters, an integer, a float, or `None` for none of these."""
    if gold.isalpha():
        return str
    for kind in (int, float):
        try:
            kind(gold)
            return kind
        except ValueError:
            continue
    return None


def _substring(task: Task, answer: str) -> float:
    image = str(task.meta.get("image_1", ""))
    # The later correction wins, as in the script.
    named = [text for name, text in _CORRECTED.items() if name in image]
    return float((named or [task.answer])[-1] in answer)


def _number(text: str, gold: str, kind: type[str | int | float]) -> float:
    try:
        if kind(_NOISE.sub("", text.replace("Extracted answer:", ""))) == kind(gold):
            return 1.0
    except (ValueError, OverflowError):
        pass
    return float(verified(text, gold))


def _choice(task: Task, text: str, gold: str) -> Score:
    """Compare letters: a single one after the nearest option is found, several as a set with repetitions."""
    if len(gold) > 1:
        return _points(float(sorted(gold) == sorted(text)), text, "the same letters in any order")
    read = text.replace("Extracted answer:", "").strip()
    if read not in tuple(_LETTERS):
        prompt = str(task.meta.get("prompt", task.question))
        for letter in _LOOKED_UP:
            if any(f"{letter}{mark}{read}" in prompt for mark in (". ", ".", " ", "")):
                read = letter
        read = min(_LETTERS, key=lambda letter: edit_distance(read, letter))
    same = float(read == gold)
    return Score(bool(same), letters_of(task).get(read, read), "letter", f"letter {read}", same)


def _two_numbers(task: Task, text: str, gold: str) -> float:
    right, read = _PAIR.search(gold), _PAIR.search(text)
    same = right and read and tuple(map(int, right.groups())) == tuple(map(int, read.groups()))
    return float(bool(same))


def _overlap(task: Task, text: str, gold: str) -> float:
    read, right = (set(map(int, _NUMBERS.findall(part))) for part in (text, gold))
    return len(read & right) / len(read | right) if read | right else 1.0


def _pieces(task: Task, text: str, gold: str) -> float:
    meta = task.meta.get("meta_data") or task.meta.get("metadata") or {}
    side = meta.get("difficulty")
    if not isinstance(side, int) or side < 1:
        return 0.0
    read, right = (_numbers_in_a_row(part, side * side) for part in (text, gold))
    if read is None or right is None:
        return 0.0
    return sum(a == b for a, b in zip(read, right, strict=True)) / len(right)


def _numbers_in_a_row(text: str, count: int) -> list[int] | None:
    """Return the first run of exactly so many numbers with nothing but spaces and commas between them."""
    runs = (_NUMBERS.findall(run) for run in _RUN.findall(text))
    return next((list(map(int, run)) for run in runs if len(run) == count), None)


_BY_TASK: dict[str, tuple[Callable[[Task, str, str], float], str]] = {
    "word_search": (_two_numbers, "the first two numbers"),
    "spot_difference": (_overlap, "overlap of the two lists"),
    "jigsaw": (_pieces, "share of the pieces in their places"),
}
"""Tasks with rules of their own; those of the first two are for right answers that are no integer."""
