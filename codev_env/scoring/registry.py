"""Scorers by name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from codev_env.chat_model import is_address, split_address
from codev_env.errors import ConfigError
from codev_env.registry import Registry
from codev_env.scoring.scorer import Score, Scorer
from codev_env.types import Task

_SCORERS: Registry[Scorer] = Registry(
    "scorer",
    # By path, because their dependencies are optional or slow to import.
    {
        "rules": "codev_env.scoring.rules:score_rules",
        "official": "codev_env.scoring.official:OfficialScorer",
        "vlmevalkit": "codev_env.scoring.vlmevalkit:score_vlmevalkit",
        "lmms": "codev_env.scoring.lmms:score_lmms",
        "math-verify": "codev_env.scoring.maths:MathVerifyScorer",
        "llm": "codev_env.scoring.llm:LLMScorer",
        "answer": "codev_env.scoring.answers:AnswerScorer",
    },
    expected="a function of a task and an answer",
    makes=True,
    forms=("URL#NAME",),
)

SCORERS = tuple(_SCORERS)
"""The names that `get_scorer` knows, besides `"URL#NAME"` and `"module:attribute"`."""


def get_scorer(name: str | Scorer = "rules", **options: Any) -> Scorer:
    """Return a scorer, a function of a task and an answer's text.

    Args:
        name: One of `SCORERS`; `"URL#NAME"`, short for `answer` with that `base_url` and `model`;
            `"module:attribute"` of a function `(task, answer) -> Score`, or of a class of such; or such a function.
        options: Given to the scorer's class: `OfficialScorer`, `MathVerifyScorer`, `LLMScorer` and `AnswerScorer` have
            some.

    Raises:
        ConfigError: An unknown name, an option that the scorer lacks, or a missing optional package.
    """
    if not isinstance(name, str):
        return _SCORERS.checked(name)
    if is_address(name):
        url, model = split_address(name, "scorer")
        return get_scorer("answer", base_url=url, model=model, **options)
    found = _SCORERS.find(name, **options)
    return found if name in _SCORERS else _checked(name, found)


def _checked(name: str, scorer: Callable[[Task, str], Any]) -> Scorer:
    """Wrap a scorer from elsewhere, so that anything but a `Score` is an error and not a truth value."""

    @functools.wraps(scorer)
    def checked(task: Task, answer: str, /) -> Score:
        score = scorer(task, answer)
        if not isinstance(score, Score):
            raise ConfigError(
                f"scorer {name!r} returned a {type(score).__name__} ({score!r:.60}); it must return a "
                "codev_env.scoring.Score, for example Score(correct=True)."
            )
        return score

    return checked
