"""The scoring of ChartQAPro: numbers within 5 %, years exactly, texts by their edit distance, lists entry by entry.

Source: `vis-nlp/ChartQAPro`, `evaluate_predictions.py`, which VLMEvalKit has as well, and the package `anls` 0.0.2 that
it calls. The released script means to compare the answers to two types of questions exactly, but does not pass that on
to its comparison: here as there, only years are compared exactly.
"""

from __future__ import annotations

import re

from codev_env.python_text import literal
from codev_env.scoring.rules import score_rules
from codev_env.scoring.scorer import Score, edit_distance
from codev_env.types import Task

_TOLERANCE = 0.05
_LIST = re.compile(r"\[(.*)\]")
_BARE = re.compile(r"(?<!['\w])\w[^,]*?(?!['\w])")
_MAX = 10_000  # characters of an answer that is read as a list


def score_chartqapro(task: Task, answer: str) -> Score:
    """Return the score; its share is the mean over the entries of the longer of the two lists."""
    if task.choices:  # no question of the benchmark has any, but generated ones in its place do
        return score_rules(task, answer)
    flags = [str(flag) for flag in task.meta.get("year") or ()] or ["NO"]
    flags = flags[-1:] if task.category == "Conversational" else flags
    share = relaxed_correctness(_ends(task.answer), _ends(answer), flags)
    return Score(share == 1.0, answer.strip(), "text", "relaxed accuracy of ChartQAPro", share)


def relaxed_correctness(gold: str, answer: str, years: list[str]) -> float:
    """Return the points of an answer, 0 to 1.

    Args:
        gold: The right answer, or several as `[a, b]`, with quotes or without.
        answer: The answer, several as `['a', 'b']`.
        years: For each right answer whether it is a year, `"YES"` or `"NO"`; repeated where there are fewer.
    """
    right, given = _listed(str(_quoted(gold))) or [gold], _listed(answer) or [answer]
    years = years * len(right) if len(years) < len(right) else years
    pairs = list(zip(right, given, years, strict=False))
    points = sum(_same(a, b) if year.upper() == "YES" else _near(a, b) for a, b, year in pairs)
    return points / max(len(right), len(given))


def _ends(text: str) -> str:
    return text.strip(".").strip("\n")


def _quoted(text: str) -> object:
    """Return a list with or without quotes, as the script reads it: words without quotes grow together."""
    found = _LIST.fullmatch(text.strip())
    if found is None:
        return text
    entries = _BARE.sub(r"'\g<0>'", found[1])
    try:
        return literal(f"[{entries}]")
    except ValueError:
        return text


def _listed(text: str) -> list[str]:
    """Return the entries of a list that Python reads, without quotes and space around them; none if it is no list."""
    try:
        found = literal(text) if len(text) <= _MAX else None
        return [str(entry).strip(" '") for entry in found] if isinstance(found, list) else []
    except ValueError:
        return []


def _same(gold: str, answer: str) -> float:
    return float(gold.strip().lower() == answer.strip().lower())


def _near(gold: str, answer: str) -> float:
    gold, answer = (text.strip().strip("%").strip() for text in (gold, answer))
    try:
        right, given = (float(text.strip("%")) for text in (gold, answer))
    except ValueError:
        return _similar(gold, answer)
    if right == 0:
        return float(given == 0)
    return float(abs(given - right) / abs(right) <= _TOLERANCE)


def _similar(gold: str, answer: str) -> float:
    """Return 1 minus the edit distance per character (ANLS), 0 from half of the characters on."""
    gold, answer = (" ".join(text.lower().split()) for text in (gold, answer))
    length = max(len(gold), len(answer))
    distance = edit_distance(gold, answer) / length if length else 0.0
    return 1 - distance if distance < 0.5 else 0.0
