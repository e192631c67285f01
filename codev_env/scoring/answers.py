"""`answer`: whether an answer is right, by rules, then as mathematics, then, if asked to, by a language model.

Each stage sees only what the ones before could not decide:

1. *rules* (`rules`): the same text or number is right; another of the task's options, or no answer, is wrong.
2. *math-verify*, where installed, for tasks without options: equal is right; unequal is wrong, with a model only where
   both are numbers alone.
3. *llm*, only with `model`: the same or not the same. Without it, an undecided answer is wrong.

CodeV's accuracy reward (arXiv 2511.19661) has the last two.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import ClassVar

from codev_env.errors import ConfigError
from codev_env.scoring import numbers
from codev_env.scoring.llm import AnswerReader
from codev_env.scoring.maths import MathVerifyScorer, NotMathematicsError, installed
from codev_env.scoring.rules import score_rules
from codev_env.scoring.scorer import Score, untagged
from codev_env.types import Task


@dataclass(frozen=True)
class AnswerScorer(AnswerReader):
    """The scorer `answer`. `Score.how` names the stage that decided, `"none"` if none could, and `why` says how.

    Attributes:
        model: Asked where the other stages cannot decide; `""`: none is. The options of `AnswerReader` belong to it.
        cpu_s: Seconds of CPU time that math-verify may take for one answer.

    Raises:
        ConfigError: An impossible option, an option for the model without one, or a missing package.
    """

    name: ClassVar[str] = "answer"

    cpu_s: float = 5.0

    def __post_init__(self) -> None:
        if self.model:
            super().__post_init__()
        elif set_ := [f.name for f in fields(AnswerReader) if getattr(self, f.name) != f.default]:
            raise ConfigError(f"scorer 'answer': {', '.join(set_)} is for a model, but model is not given. Name it.")
        if installed():
            MathVerifyScorer(self.cpu_s)  # Raises if the option is impossible.

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that there are here, to be reported beside a result."""
        return ("rules", *(("math-verify",) if installed() else ()), *(("llm",) if self.model else ()))

    def __call__(self, task: Task, answer: str, /) -> Score:
        """Score one answer; raises `ScorerError` if a stage that is needed does not work."""
        score = score_rules(task, answer)
        text = untagged(answer)
        if score.correct or not text or (task.choices and score.how != "none"):
            return replace(score, how="rules")
        maths = None if task.choices else self._as_mathematics(task, text)
        # With a model, "not equal" of anything but two numbers alone may be another notation: 1K for 1000.
        plain = numbers.is_bare(task.answer) and numbers.is_bare(score.extracted)
        if maths is not None and (maths.correct or plain or not self.model):
            return maths
        if self.model:
            return self.judge(task, text)
        return replace(score, how="none", why=f"undecided by {' and '.join(self.stages)}")

    def _as_mathematics(self, task: Task, text: str) -> Score | None:
        """Return the verdict of math-verify, or `None` if it is missing or cannot read one of the two."""
        if not installed():
            return None
        try:
            score = MathVerifyScorer(self.cpu_s)(task, text)
        except NotMathematicsError:
            return None
        return replace(score, how="math-verify") if score.how == "math" else None
