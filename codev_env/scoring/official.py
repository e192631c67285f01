"""`official`: the scoring of the benchmarks' own repositories, as far as it can be done on a text.

- MathVista (`lupantech/MathVista`, `evaluation/calculate_score.py`): done as it is there. The repository has an LLM
  cut the answer out of a response first; here the answer of the episode takes that place.
- V*Bench (`penghao-wu/vstar`, `vstar_bench_eval.py`): the option of the lowest loss, which no text shows: use
  `score_losses`. A text is read by the project's own rules.
- HR-Bench (`DreamMr/HR-Bench`, `hrbench/vlmeval/dataset/utils/hrbench.py`): an LLM says yes or no; give one as `judge`.
  Without it a text is read by the project's own rules.
- TIR-Bench: `codev_env.scoring.tirbench`. ChartQAPro: `codev_env.scoring.chartqapro`.
- TreeBench, MME-RealWorld-Lite: `codev_env.scoring.letters`.
- BLINK and O3-Bench: a letter by `codev_env.scoring.letters`; where that reads none, an LLM, as for HR-Bench.
- ZoomBench (`inclusionAI/Zooming-without-Zooming`, `mm-eval/judge_qwenlm.py`): `codev_env.scoring.mathruler`; where
  that does not find the answer right, an LLM, as for HR-Bench.
- CharXiv (`princeton-nlp/CharXiv`, `src/evaluate.py`) and VisualProbe (`Mini-o3/Mini-o3`,
  `verl/utils/reward_score/general_qa_tool.py`): an LLM, as for HR-Bench.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from codev_env.benches import scoring_of
from codev_env.errors import TaskError
from codev_env.scoring.chartqapro import score_chartqapro
from codev_env.scoring.letters import blink_letter, mme_letter, o3bench_letter, treebench_letter
from codev_env.scoring.mathruler import same_by_mathruler
from codev_env.scoring.rules import score_rules
from codev_env.scoring.scorer import (
    Score,
    Scorer,
    ScorerError,
    bench_of,
    edit_distance,
    gold_letter,
    letters_of,
    score_option,
    untagged,
)
from codev_env.scoring.tirbench import score_tirbench
from codev_env.types import Task

_BY_RULES = {
    "vstar": "V*Bench compares losses",
    "hrbench": "HR-Bench asks an LLM",
    "blink-eval": "BLINK asks an LLM",
    "insight-o3": "O3-Bench asks an LLM",
    "charxiv-reasoning": "CharXiv asks an LLM",
    "charxiv-templates": "CharXiv asks an LLM",
    "mathruler": "ZoomBench asks an LLM",
    "llm": "its authors ask an LLM",
}
_LETTERS: dict[str, Callable[[Task, str], str | None]] = {
    "treevgr": treebench_letter,
    "mme": mme_letter,
    "blink-eval": blink_letter,
    "insight-o3": o3bench_letter,
}
"""Reads a letter, or `None` where an LLM is asked."""
_LETTER_IN_BRACKETS = re.compile(r"\(([a-zA-Z])\)")


@dataclass(frozen=True)
class OfficialScorer:
    """The scorer `official`.

    Attributes:
        judge: Asked where the authors ask an LLM, for HR-Bench about every answer; `None`: the project's own rules.
    """

    judge: Scorer | None = None

    def __call__(self, task: Task, answer: str, /) -> Score:
        """Score one answer; raises `TaskError` if a MathVista task lacks its answer type."""
        scoring = scoring_of(bench_of(task))
        if scoring == "mathvista":
            return _mathvista(task, untagged(answer))
        if scoring == "tir":
            return score_tirbench(task, untagged(answer))
        if scoring == "relaxed":
            return score_chartqapro(task, untagged(answer))
        if scoring in _LETTERS and task.choices:
            letter = _LETTERS[scoring](task, untagged(answer))
            if letter is not None:
                return score_option(task, letter, f"letter {letter}" if letter else "no letter")
        if scoring == "mathruler" and same_by_mathruler(gold_letter(task) or task.answer, untagged(answer)):
            return Score(True, task.answer, "rules", "the same by MathRuler's rules, applied before an LLM is asked")
        if scoring in _BY_RULES and scoring != "vstar" and self.judge is not None:
            return self.judge(task, answer)
        score = score_rules(task, answer)
        note = _BY_RULES.get(scoring or "")
        return replace(score, why=f"{score.why} ({note}; read by rules)") if note else score


def score_losses(task: Task, losses: Sequence[float]) -> Score:
    """Score as V*Bench's own script does: the option with the lowest loss is the answer.

    Args:
        task: A task with choices, shuffled as `VStarTaskSet` does: on equal losses the first one counts, which in the
            folder's own order is always the right one.
        losses: The mean loss of each choice's tokens, in the order of `task.choices`.

    Raises:
        ScorerError: As many losses as choices are needed, all of them finite.
    """
    if len(losses) != len(task.choices) or not losses or not all(math.isfinite(loss) for loss in losses):
        raise ScorerError(
            f"task {task.task_id!r}: losses are {list(losses)!r}; expected {len(task.choices)} finite numbers, "
            "one for each choice."
        )
    best = min(range(len(losses)), key=losses.__getitem__)
    letter = list(letters_of(task))[best]
    return score_option(task, letter, f"lowest loss: {letter}")


def _mathvista(task: Task, text: str) -> Score:
    if task.meta.get("question_type") == "multi_choice" or task.choices:
        return _choice(task, text)
    kind = answer_type(task)
    if kind == "integer":
        return _compare(task, integer_text(text), "cut to an integer")
    if kind == "float":
        precision = task.meta.get("precision")
        return _compare(task, rounded_text(text, precision), f"rounded to {precision!r} decimals")
    return Score(text == task.answer, text, "text", "compared as a text")


def answer_type(task: Task) -> str:
    """Return MathVista's `meta["answer_type"]`; raises `TaskError` where it is none of its four."""
    kind = task.meta.get("answer_type")
    if kind not in ("text", "integer", "float", "list"):
        raise TaskError(
            f"task {task.task_id!r}: meta['answer_type'] is {kind!r}; expected 'text', 'integer', 'float' or 'list'. "
            "For other open questions use the scorer 'rules' or 'math-verify'."
        )
    return str(kind)


def _choice(task: Task, text: str) -> Score:
    """Take the first letter in brackets, else the whole text as a letter, else the option that is nearest."""
    bracketed = _LETTER_IN_BRACKETS.search(text)
    wanted = bracketed[1].upper() if bracketed else text
    if wanted in letters_of(task):
        return score_option(task, wanted, f"letter {wanted}")
    nearest = min(task.choices, key=lambda choice: edit_distance(wanted, choice))
    why = f"nearest to {wanted[:40]!r} by edit distance"
    return Score(nearest == task.answer, nearest, "edit distance", why)


def integer_text(text: str) -> str | None:
    """Return a number's text cut to an integer ("14.7" is "14"), or `None` if Python reads no finite number."""
    try:
        return str(int(float(text)))
    except (ValueError, OverflowError):
        return None


def rounded_text(text: str, precision: object) -> str | None:
    """Return a number's text rounded to `precision` decimals, or `None` if there is no number or no precision."""
    if not isinstance(precision, int | float):
        return None
    try:
        return str(round(float(text), int(precision)))
    except (ValueError, OverflowError):
        return None


def _compare(task: Task, read: str | None, why: str) -> Score:
    if read is None:
        return Score(False, why="no number alone")
    return Score(read == task.answer, read, "number", why)
