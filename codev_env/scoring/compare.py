"""Prints where the scorers differ, as the table of docs/scorers.md: `python -m codev_env.scoring.compare`."""

from __future__ import annotations

from collections.abc import Iterator

from PIL import Image

from codev_env.scoring.registry import get_scorer
from codev_env.types import Task

NAMES = ("rules", "official", "vlmevalkit", "lmms")
_COLORS = ("red", "blue", "green", "yellow")
_FRACTIONS = ("3/11", "8/11", "6/11", "3/5")


def _task(bench: str, answer: str, choices: tuple[str, ...] = (), **meta: object) -> Task:
    image = Image.new("RGB", (1, 1))
    return Task(bench, (image,), "?", answer, choices, meta={"bench": bench, **meta})


_VSTAR = _task("vstar", "blue", _COLORS)
_HRBENCH = _task("hrbench4k", "blue", _COLORS)
_CHOICE = _task("mathvista", "8/11", _FRACTIONS, question_type="multi_choice", answer_type="text")
_INTEGER = _task("mathvista", "14", question_type="free_form", answer_type="integer")
_FLOAT = _task("mathvista", "0.6", question_type="free_form", answer_type="float", precision=1)
_LIST = _task("mathvista", "[2007, 2008]", question_type="free_form", answer_type="list")

EXAMPLES: tuple[tuple[str, Task, tuple[str, ...]], ...] = (
    (
        "V\\*, B blue",
        _VSTAR,
        (
            "B",
            "<answer>B</answer>",
            "blue",
            "b",
            "It is B one two three four",
            "It is blue, not red",
            "The answer is B. A is wrong",
        ),
    ),
    ("V\\*, B blue", _VSTAR, ("A or B", "B or A", "Both are blue", "Beige", "Cannot tell")),
    ("HR-Bench, B blue", _HRBENCH, ("B", "It is B one two three four", "The answer is B. A is wrong")),
    ("HR-Bench, B blue", _HRBENCH, ("The answer is bright", "light blue" + " and so on" * 6, "b", "B or A")),
    ("MathVista, (B) 8/11", _CHOICE, ("B", "(B)", "b", "B. 8/11", "(A) or (B)", "8", "The answer is B", "")),
    ("MathVista, integer 14", _INTEGER, ("14", "14.0", "14.7", "14 cm", "1_4", "+14")),
    ("MathVista, float 0.6, 1 decimal", _FLOAT, ("0.6", "0.60", "0.64", "3/5", "60%")),
    ("MathVista, list [2007, 2008]", _LIST, ("[2007, 2008]", "[2007,2008]", "2007, 2008")),
)
"""A label for the right answer, a task, and answers to it."""


def table() -> Iterator[str]:
    """Yield the lines of the table: `yes` where an answer is right, else `no` and what was read."""
    scorers = [get_scorer(name) for name in NAMES]
    yield f"| right answer | answer | {' | '.join(f'`{name}`' for name in NAMES)} |"
    yield "| --- " * (2 + len(NAMES)) + "|"
    for label, task, answers in EXAMPLES:
        for answer in answers:
            scores = [scorer(task, answer) for scorer in scorers]
            cells = ["yes" if s.correct else f"no: {s.extracted}" if s.how != "none" else "no" for s in scores]
            yield f"| {label} | {f'`{answer}`' if answer else '(empty)'} | {' | '.join(cells)} |"


if __name__ == "__main__":
    print("\n".join(table()))
