"""The interface of judges, and the judges that look at no pixels."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from numbers import Real
from typing import Protocol, runtime_checkable

from codev_env.errors import ConfigError, JudgeError
from codev_env.judges.ground_truth import GroundTruthJudge
from codev_env.judges.options import JudgeStats
from codev_env.types import Step, StepScore, Task
from codev_env.usage import Usage

Item = tuple[Task, Step, Sequence[Step]]
"""The arguments of `Judge.score`."""


@runtime_checkable
class Judge(Protocol):
    """Scores one tool call by what it showed.

    A judge may also be a `BatchJudge`, an `AsyncJudge` or a `ServedJudge`, as `VLMJudge` is.

    Attributes:
        name: For logs.
    """

    name: str

    def score(self, task: Task, step: Step, history: Sequence[Step]) -> StepScore:
        """Score a code turn.

        Args:
            task: The task.
            step: The turn, with its execution and the regions its images show.
            history: The turns before it.

        Raises:
            JudgeError: If there can be no score. A failure is never a score of 0.
        """
        ...


@runtime_checkable
class BatchJudge(Judge, Protocol):
    """Scores many tool calls at once; vector environments use it."""

    def score_batch(self, items: Sequence[Item]) -> Sequence[StepScore]:
        """Score code turns, each as `score` does."""
        ...


@runtime_checkable
class AsyncJudge(Judge, Protocol):
    """Scores a tool call in a coroutine; rollouts use it."""

    async def ascore(self, task: Task, step: Step, history: Sequence[Step]) -> StepScore:
        """Score a code turn, as `score` does."""
        ...


@runtime_checkable
class ServedJudge(Judge, Protocol):
    """Scores by a server; `codev train --dry-run` asks whether the server is reachable."""

    def ping(self) -> str:
        """Return one line on the server; raises `JudgeError` if it or the model is not there."""
        ...


@runtime_checkable
class CountingJudge(Judge, Protocol):
    """Counts what it asks for; where it runs on the nodes of a farm, its counters come home."""

    def stats(self) -> JudgeStats:
        """Return a copy of its counters; none of them ever falls."""
        ...

    def count(self, stats: JudgeStats) -> None:
        """Add what the same judge has counted on another machine. Budgets include it."""
        ...


@runtime_checkable
class ViewJudge(Judge, Protocol):
    """Can score for a policy whose processor shrinks large images."""

    def for_view(self, view_pixels: int) -> Judge:
        """Return this judge for a policy that sees an image at no more than `view_pixels` pixels."""
        ...


def for_view(judge: Judge, view_pixels: int | None) -> Judge:
    """Return a judge for a policy that sees an image at no more than `view_pixels` pixels; `None` changes nothing.

    Raises:
        ConfigError: The number cannot be used, or the judge does not measure detail.
    """
    if view_pixels is None:
        return judge
    if not isinstance(view_pixels, Real) or not math.isfinite(view_pixels):
        raise ConfigError(f"view_pixels is {view_pixels!r}; it must be a number of pixels, at least 1, or None.")
    if not isinstance(judge, ViewJudge):
        raise ConfigError(
            f"view_pixels is {view_pixels!r}, but judge {judge.name!r} does not measure detail: leave view_pixels out, "
            "or choose judge='auto' or 'ground_truth'."
        )
    return judge.for_view(view_pixels)


class NoJudge:
    """Scores nothing: every value is `None`."""

    name = "none"

    def for_view(self, view_pixels: int) -> NoJudge:
        """Return this judge: it looks at nothing."""
        return self

    def score(self, task: Task, step: Step, history: Sequence[Step]) -> StepScore:
        """Return a score without a value."""
        return StepScore(None, "no judge")


class AutoJudge:
    """Ground truth for tasks that know their targets; no score, and one warning, for the others.

    Args:
        view_pixels: As for `GroundTruthJudge`.
        detail_power: As for `GroundTruthJudge`.
        detail_margin: As for `GroundTruthJudge`.
    """

    name = "auto"

    def __init__(
        self, view_pixels: int | None = None, detail_power: float = 1.0, detail_margin: float | None = None
    ) -> None:
        self._ground_truth = GroundTruthJudge(view_pixels, detail_power, detail_margin)
        self._warned = False

    def for_view(self, view_pixels: int) -> AutoJudge:
        """Return this judge for a policy that sees an image at no more than `view_pixels` pixels."""
        return AutoJudge(view_pixels, self._ground_truth.view.power, self._ground_truth.view.margin)

    def score(self, task: Task, step: Step, history: Sequence[Step]) -> StepScore:
        """Score by ground truth where there is one."""
        if task.targets:
            return self._ground_truth.score(task, step, history)
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"task {task.task_id!r} has no target boxes, so judge='auto' gives its tool calls no score; "
                "choose another judge, or judge='none' to silence this.",
                RuntimeWarning,
                stacklevel=2,
            )
        return StepScore(None, "no target boxes")


class MaskingJudge:
    """Turns the failures of a judge into scores without a value, so that their episodes are left out of training.

    Args:
        judge: The judge that scores.
    """

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.name = judge.name

    def for_view(self, view_pixels: int) -> MaskingJudge:
        """Return the same around a judge for that view; raises `ConfigError` if the judge does not know views."""
        return MaskingJudge(for_view(self.judge, view_pixels))

    def score(self, task: Task, step: Step, history: Sequence[Step]) -> StepScore:
        """Score by the judge; a `JudgeError` gives a score that has `failed` set, and the error's usage."""
        try:
            return self.judge.score(task, step, history)
        except JudgeError as error:
            return StepScore(None, str(error), failed=True, usage=error.usage.judge if error.usage else Usage())
