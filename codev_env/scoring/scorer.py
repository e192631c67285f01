"""The interface of scorers, and the small helpers they share."""

from __future__ import annotations

import re
import string
from dataclasses import dataclass, field
from typing import Literal, Protocol

from codev_env.benches import BENCHES
from codev_env.errors import CodevError
from codev_env.types import Task
from codev_env.usage import Usage

How = Literal["letter", "text", "number", "edit distance", "math", "llm", "rules", "math-verify", "none"]

_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)
_END = re.compile("</answer>", re.IGNORECASE)


class ScorerError(CodevError, RuntimeError):
    """A scorer could not decide. It is never turned into "wrong"."""


@dataclass(frozen=True)
class Score:
    """A scorer's verdict on one answer.

    Attributes:
        correct: The answer counts as right.
        extracted: The text that was read as the answer: an option's text where there are options, a number or a text
            otherwise, `""` if nothing could be read.
        how: The rule that read it, or the stage that decided (`answer`); `"none"` if nothing could be read.
        why: One line for people.
        share: Share of the points, 0 to 1, where a benchmark gives parts of a point; `None`: all or nothing.
        usage: The requests that were sent to a model for it.
    """

    correct: bool
    extracted: str = ""
    how: How = "none"
    why: str = ""
    share: float | None = None
    usage: Usage = field(default=Usage(), compare=False)

    @property
    def points(self) -> float:
        """The points of the answer, 0 to 1."""
        return float(self.correct) if self.share is None else self.share


class Scorer(Protocol):
    """Anything that turns a task and an answer into a `Score`; raises `ScorerError` if it cannot."""

    def __call__(self, task: Task, answer: str, /) -> Score:
        """Score one answer."""
        ...


def bench_of(task: Task) -> str:
    """Return `meta["bench"]`; where it is missing, `"vstar"` for the categories of V*Bench and otherwise `""`."""
    bench = task.meta.get("bench")
    if bench:
        return str(bench)
    return "vstar" if task.category in BENCHES["vstar"].categories else ""


def letters_of(task: Task) -> dict[str, str]:
    """Return the options by letter, in the order shown; at most 26."""
    return dict(zip(string.ascii_uppercase, task.choices, strict=False))


def right_answers(task: Task) -> tuple[str, ...]:
    """Return the right answer, and the texts that `meta["accepted_answers"]` lists beside it."""
    others = task.meta.get("accepted_answers")
    listed = others if isinstance(others, list | tuple) else ()
    return task.answer, *(text for text in listed if isinstance(text, str) and text)


def untagged(answer: str) -> str:
    """Return the content of the last `<answer>…</answer>`, or the text itself, without space around it."""
    ends = [end.end() for end in _END.finditer(answer)]
    # Up to the last end: no search for one goes through the whole text in vain.
    found = _TAGGED.findall(answer, 0, ends[-1]) if ends else []
    return (found[-1] if found else answer).strip()


def gold_letter(task: Task) -> str:
    """Return the letter of the right option, `""` for a task without options.

    Of options with the same text it is the one that `meta["label"]` names, or else the first.
    """
    right = [letter for letter, choice in letters_of(task).items() if choice == task.answer]
    label = task.meta.get("label")
    return str(label) if label in right else next(iter(right), "")


def is_right_letter(task: Task, letter: str) -> bool:
    """Whether a letter names the right option; of options with the same text any, unless `meta["label"]` names one."""
    right = [option for option, choice in letters_of(task).items() if choice == task.answer]
    label = task.meta.get("label")
    return letter == label if label in right else letter in right


def score_option(task: Task, letter: str | None, why: str, how: How = "letter") -> Score:
    """Return the score of an option's letter; `None` and letters that are no option are wrong, read as nothing."""
    options = letters_of(task)
    if letter is None or letter not in options:
        return Score(False, why=why)
    return Score(is_right_letter(task, letter), options[letter], how, why)


def edit_distance(a: str, b: str) -> int:
    """Return the Levenshtein distance, in one pass over `a` with one integer of `len(b)` bits per character.

    Source: the bit-parallel recurrence of Myers (1999) in the form of Hyyrö (2003), for whole strings.
    """
    if not b:
        return len(a)
    masks: dict[str, int] = {}
    for i, char in enumerate(b):
        masks[char] = masks.get(char, 0) | 1 << i
    full, last = (1 << len(b)) - 1, 1 << len(b) - 1
    rises, falls, distance = full, 0, len(b)
    for char in a:
        same = masks.get(char, 0)
        diagonal = (((same & rises) + rises) ^ rises) | same | falls
        up, down = falls | ~(diagonal | rises) & full, rises & diagonal
        distance += bool(up & last) - bool(down & last)
        up, down = (up << 1 | 1) & full, down << 1 & full
        rises, falls = down | ~(diagonal | up) & full, up & diagonal
    return distance
