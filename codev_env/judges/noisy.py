"""A judge that errs at a known rate, for studies of what a judge's errors do to training and to metrics."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from codev_env.errors import ConfigError
from codev_env.judges.ground_truth import GroundTruthJudge
from codev_env.judges.rubrics import LEVELS
from codev_env.types import Step, StepScore, Task

if TYPE_CHECKING:
    from codev_env.judges.judge import Judge


class NoisyJudge:
    """Passes on another judge's score, or with a probability a wrong one.

    A wrong score has the opposite of `faithful` and another value: one of `rubrics.LEVELS` that is not the nearest to
    the right value, each equally likely. Whether and how it errs follows from the question, the pixels and the seed
    alone: the same images for the same question are misjudged in the same way in every episode and process, as by a
    model at temperature 0. A step whose program failed or showed nothing is passed on, and so is a missing value.

    Args:
        inner: The judge that scores; ground truth by default.
        rate: Probability of a wrong score, 0 to 1.
        seed: Another seed errs elsewhere.

    Raises:
        ConfigError: A rate or seed that cannot be used.
    """

    name = "noisy"

    def __init__(self, inner: Judge | None = None, rate: float = 0.2, seed: int = 0) -> None:
        if not 0 <= rate <= 1:
            raise ConfigError(f"option rate of the noisy judge is {rate!r}; it must be a probability from 0 to 1.")
        if seed < 0:
            raise ConfigError(f"option seed of the noisy judge is {seed!r}; it must be at least 0.")
        self.inner, self.rate, self.seed = inner or GroundTruthJudge(), rate, seed

    @classmethod
    def parse(cls, spec: str) -> NoisyJudge:
        """Make the judge that `"noisy:RATE"` or `"noisy:RATE:SEED"` names: ground truth with errors."""
        numbers = re.fullmatch(r"noisy:([0-9.]+)(?::([0-9]+))?", spec)
        try:
            rate, seed = (float(numbers[1]), int(numbers[2] or 0)) if numbers else (math.nan, 0)
        except ValueError:
            rate, seed = math.nan, 0
        if not 0 <= rate <= 1:
            raise ConfigError(f"judge {spec!r}: write noisy:RATE or noisy:RATE:SEED, with a rate from 0 to 1.")
        return cls(None, rate, seed)

    def for_view(self, view_pixels: int) -> NoisyJudge:
        """Return the same around a judge for that view; raises `ConfigError` if the judge does not know views."""
        from codev_env.judges.judge import for_view

        return NoisyJudge(for_view(self.inner, view_pixels), self.rate, self.seed)

    def score(self, task: Task, step: Step, history: Sequence[Step]) -> StepScore:
        """Score a code turn; raises what the other judge raises."""
        score = self.inner.score(task, step, history)
        shown = step.execution
        if score.value is None or shown is None or shown.error is not None or not shown.images:
            return score
        rng = np.random.default_rng(self._digest(task, step))
        if rng.random() >= self.rate:
            return score
        right = nearest_level(score.value)
        value = float(rng.choice([level for level in LEVELS if level != right]))
        wrong = not score.faithful
        why = f"{score.why}; misjudged on purpose"
        return replace(score, value=value, faithful=wrong, any_crop=wrong, spread=False, why=why)

    def _digest(self, task: Task, step: Step) -> list[int]:
        digest = hashlib.blake2b(f"{self.seed}\n{task.question}".encode(), digest_size=16)
        for image in step.execution.images if step.execution else ():
            digest.update(f"{image.mode}{image.size}".encode() + image.tobytes())
        return list(digest.digest())


def nearest_level(value: float) -> float:
    """Return the one of `LEVELS` that is nearest to a value, the lower of two; negative values have 0."""
    return min(LEVELS, key=lambda level: abs(level - value))
