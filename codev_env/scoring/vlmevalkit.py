"""`vlmevalkit`: how VLMEvalKit reads an answer before it would ask an LLM (its `exact_matching` policy).

Source: `open-compass/VLMEvalKit`, `vlmeval/utils/matching_util.py` (`can_infer`), used for V*Bench, HR-Bench and BLINK
by `vlmeval/dataset/utils/multiple_choice.py`, and for MathVista by `vlmeval/dataset/utils/mathvista.py` (`post_check`).
TreeBench and MME-RealWorld-Lite (`vlmeval/dataset/image_mcq.py`) take the first letter
(`extract_characters_regex` of `multiple_choice.py`), and ChartQAPro the rules of its authors; none of these three asks
an LLM.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from codev_env.benches import scoring_of
from codev_env.errors import ConfigError
from codev_env.scoring.chartqapro import score_chartqapro
from codev_env.scoring.letters import first_letter
from codev_env.scoring.official import answer_type
from codev_env.scoring.scorer import Score, bench_of, letters_of, score_option, untagged
from codev_env.types import Task

_FAILED = "Failed to obtain answer via API"
_REFUSALS = (
    "Sorry, I can't help with images of people yet.",
    "I can't process this file.",
    "I'm sorry, but without the image provided",
    "Cannot determine the answer",
)
_TO_SPACES = str.maketrans(dict.fromkeys(".()[],:;!*#{}", " "))
_WINDOW = 4  # the letter must be among the last so many words
# Nothing need follow the letter, so "the answer is dark" reads as D.
_PHRASE = re.compile(r"answer\s+is\s+\**([ABCD])", re.IGNORECASE)
_FIRST = ("mme", "treevgr")
"""The scorings of benchmarks where the first letter counts."""
_LEADS = (
    "The best answer is",
    "The correct answer is",
    "The answer is",
    "The answer",
    "The best option is",
    "The correct option is",
    "Best answer:",
    "Best option:",
)
_BRACKETED = tuple(f"({letter})" for letter in "ABCDE")


@dataclass(frozen=True)
class Matching:
    """Which of VLMEvalKit's rules are in force; lmms-eval carries an older version without these three.

    Attributes:
        near_end: A letter counts only among the last four words.
        phrase: Where the letters do not decide, "answer is B" does.
        short: Options' texts are looked for only in answers up to twice as long as all options together.
    """

    near_end: bool = True
    phrase: bool = True
    short: bool = True


CURRENT = Matching()
OLDER = Matching(near_end=False, phrase=False, short=False)


def match_letter(text: str, options: Mapping[str, str], rules: Matching = CURRENT) -> str | None:
    """Return the option's letter that a text names as a word of its own; `"Z"` for a refusal, `None` for neither."""
    if _FAILED in text:
        return None
    if any(refusal in text for refusal in _REFUSALS):
        return "Z"
    words = text.translate(_TO_SPACES).split()
    named = [letter for letter in options if letter in words]
    if len(named) == 1 and (not rules.near_end or words.index(named[0]) >= len(words) - _WINDOW):
        return named[0]
    if not named and "Z" in words:
        return "Z"
    phrase = _PHRASE.search(text) if rules.phrase else None
    return phrase[1].upper() if phrase and phrase[1].upper() in options else None


def match_text(text: str, options: Mapping[str, str], rules: Matching = CURRENT) -> str | None:
    """Return the letter of the only option whose text occurs in a text, also inside of a word; else `None`."""
    if rules.short and len(text) > 2 * sum(map(len, options.values())):
        return None
    named = [letter for letter, option in options.items() if option.lower() in text.lower()]
    return named[0] if len(named) == 1 else None


def match_option(text: str, options: Mapping[str, str], rules: Matching = CURRENT) -> str | None:
    """Return the letter by `match_letter`, else by `match_text`."""
    return match_letter(text, options, rules) or match_text(text, options, rules)


def score_vlmevalkit(task: Task, answer: str, /) -> Score:
    """Score one answer as VLMEvalKit does without an LLM.

    TreeBench and MME-RealWorld-Lite: the first of A to E anywhere ("Beige" is B), else a small letter alone; an empty
    answer is A. MathVista: an integer must be one for Python ("14.0" is not), a float equal without rounding, and a
    list is never right, since what is compared is not the answer. `<answer>` tags are taken off first: VLMEvalKit reads
    nothing from "<answer>B</answer>".

    Raises:
        ConfigError: An open question that is none of MathVista's or ChartQAPro's.
        TaskError: One of MathVista's without its answer type.
    """
    text, scoring = untagged(answer), scoring_of(bench_of(task))
    if task.choices and scoring in _FIRST:
        letter = first_letter(text, _LEADS, _BRACKETED)
        return score_option(task, letter, f"letter {letter}" if letter else "no letter")
    if task.choices:
        return match_score(task, text, CURRENT)
    if scoring == "relaxed":
        return score_chartqapro(task, text)
    if scoring != "mathvista":
        raise ConfigError(
            f"scorer 'vlmevalkit': task {task.task_id!r} is an open question and meta['bench'] is {bench_of(task)!r}; "
            "of open questions it knows those of 'mathvista' and 'chartqapro'. Use the scorer 'rules' or 'math-verify'."
        )
    kind = answer_type(task)
    if kind in ("integer", "float"):
        return _number(task, text, int if kind == "integer" else float)
    return Score(False, why=f"VLMEvalKit compares no {kind}: nothing matches")


def match_score(task: Task, text: str, rules: Matching) -> Score:
    """Score an answer to a question with options by `match_option`."""
    options = letters_of(task)
    letter = match_letter(text, options, rules)
    if letter is not None:
        return score_option(task, letter, "refusal" if letter not in options else f"letter {letter}")
    letter = match_text(text, options, rules)
    return score_option(task, letter, "no single option" if letter is None else f"text of {letter}", "text")


def _number(task: Task, text: str, read: type[int] | type[float]) -> Score:
    try:
        value, gold = read(text), read(task.answer)
    except ValueError:
        return Score(False, why=f"no {read.__name__} alone")
    return Score(value == gold, str(value), "number", f"compared as {read.__name__}, not rounded")
