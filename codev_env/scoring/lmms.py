"""`lmms`: how lmms-eval reads an answer, without the LLM it asks where it reads none.

Source: `EvolvingLMMs-Lab/lmms-eval`, `lmms_eval/tasks/`: `vstar_bench/utils.py` (`extract_answer_letter`),
`hrbench/hrbench_evals.py` (`can_infer`), `mathvista/mathvista_evals.py` (`normalize_extracted_answer`, `safe_equal`).
"""

from __future__ import annotations

import re

from codev_env.benches import benches_scored_by, scoring_of
from codev_env.errors import ConfigError
from codev_env.scoring.official import OfficialScorer, answer_type, integer_text
from codev_env.scoring.scorer import Score, bench_of, score_option, untagged
from codev_env.scoring.vlmevalkit import OLDER, match_score
from codev_env.types import Task

# In order, on text in capitals. The first reads "BLUE" as B, the second "ANSWER IS DARK" as D, the fourth "RED." as D.
_LETTER_RULES = (
    ("at the start", re.compile(r"^([A-D])")),
    ("after a phrase", re.compile(r"(?:ANSWER|CHOICE|OPTION)(?:\s+IS)?[\s:]+([A-D])")),
    ("in brackets", re.compile(r"\(([A-D])\)")),
    ("before a dot or bracket", re.compile(r"([A-D])\s*[.)\]]")),
    ("a word of its own", re.compile(r"(?:^|\s)([A-D])(?:\s|$)")),
)
_official = OfficialScorer()
_KNOWN = ("vstar", "hrbench", "mathvista")
"""The scorings whose counterpart in lmms-eval is done here."""


def vstar_letter(text: str) -> tuple[str | None, str]:
    """Return the letter that lmms-eval reads from an answer to V*Bench, and by which of its rules.

    Returns:
        The letter A to D, whether or not there is such an option, or `None`; and the rule's name.
    """
    capitals = text.strip().upper()
    for name, rule in _LETTER_RULES:
        found = rule.search(capitals)
        if found:
            return found[1], name
    letters = re.findall("[A-D]", capitals)
    return (letters[0], "the only A, B, C or D") if len(letters) == 1 else (None, "no letter")


def score_lmms(task: Task, answer: str, /) -> Score:
    """Score one answer as lmms-eval does, without an LLM.

    No float of MathVista is ever right: its `precision` comes as a float from the data set, with which rounding fails.
    `<answer>` tags are taken off first.

    Raises:
        ConfigError: A task of a benchmark that lmms-eval does not have here.
        TaskError: A MathVista task without its answer type.
    """
    text, bench = untagged(answer), bench_of(task)
    scoring = scoring_of(bench)
    if scoring not in _KNOWN:
        known = ", ".join(benches_scored_by(*_KNOWN))
        raise ConfigError(
            f"scorer 'lmms': task {task.task_id!r} has meta['bench'] {bench!r}; it knows {known}. "
            "Use the scorer 'rules', or 'math-verify' for open answers."
        )
    if scoring == "vstar":
        letter, rule = vstar_letter(text)
        return score_option(task, letter, f"letter {letter}: {rule}" if letter else rule)
    if scoring != "mathvista":
        return match_score(task, text, OLDER)
    if task.choices:
        return _official(task, text)
    kind = answer_type(task)
    if kind == "float":
        return Score(False, why="lmms-eval cannot round: every float is wrong")
    if kind == "integer":
        read = integer_text(text)
        return Score(read == task.answer.strip(), read or "", "number" if read else "none", "cut to an integer")
    return Score(text == task.answer.strip(), text, "text", "compared as a text")
