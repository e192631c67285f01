"""How the authors of TreeBench, MME-RealWorld, BLINK and O3-Bench read an option's letter from an answer."""

from __future__ import annotations

import re
from collections.abc import Iterable

from codev_env.scoring.scorer import letters_of
from codev_env.types import Task

_ANY = re.compile("[ABCDE]")
# Three of the script's phrases lack a comma after them, so that it looks for them as one.
_PHRASES = (
    "The best answer is",
    "The correct answer is",
    "The answer is",
    "The answer",
    "The best option isThe correct option is",
    "Best answer:Best option:",
)
_MAX_WORDS = 10
_BOXED = re.compile(r"\\boxed\{(.*?)\}", re.DOTALL)


def treebench_letter(task: Task, text: str) -> str:
    """Return the whole answer in capitals.

    Source: `Haochen-Wang409/TreeVGR`, `inference_treebench.py`.
    """
    return text.strip().upper()


def mme_letter(task: Task, text: str) -> str:
    """Return the first of the letters A to E, wherever it is; else the first option that contains the answer.

    "Blue" is B, and an empty answer the first option. `""` where nothing is read.

    Source: `yfzhang114/MME-RealWorld`, `evaluation/eval_your_results.py`.
    """
    return first_letter(text, _PHRASES, [f"({letter}) {choice}" for letter, choice in letters_of(task).items()])


def first_letter(text: str, phrases: Iterable[str], options: Iterable[str]) -> str:
    """Return the first of the letters A to E in a text without some phrases; else of the first option that contains it.

    Args:
        text: The answer.
        phrases: Left out of it.
        options: Texts that begin with the letter in brackets.
    """
    text = text.strip()
    for phrase in phrases:
        text = text.replace(phrase, "")
    found = _ANY.search(text)
    if found:
        return found[0]
    if len(text.split()) > _MAX_WORDS:
        return ""
    return next((option[1] for option in options if text.lower() in option.lower()), "")


def blink_letter(task: Task, text: str) -> str | None:
    """Return the letter of a bare or bracketed letter, or the only "(B)" among the words; `None`: a model is asked.

    Where the whole answer names several, its last paragraph decides.

    Source: `zeyofu/BLINK_Benchmark`, `eval/test_benchmark.py`.
    """
    if text in tuple("ABCDE"):
        return text
    if len(text) == 3 and text[0] == "(" and text[2] == ")" and text[1] in "ABCDE":
        return text[1]
    options = {f"({letter})" for letter in list(letters_of(task))[:5]}
    named, last = options & set(text.split()), options & set(text.split("\n\n")[-1].split())
    found = last if len(last) == 1 else named
    return next(iter(found))[1] if len(found) == 1 else None


def o3bench_letter(task: Task, text: str) -> str | None:
    """Return what the last box holds, or the whole answer, if that is a letter of an option; `None`: a model is asked.

    Source: `m-Just/InSight-o3`, `insight_o3/scripts/evaluate.py`.
    """
    boxed = _BOXED.findall(text, 0, text.rfind("}") + 1)  # no search for an end goes through the whole text in vain
    read = boxed[-1].strip() if boxed else text.strip()
    return read if read in letters_of(task) else None
