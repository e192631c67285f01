"""Episodes from recorded trajectories, so that any reward can be computed again, turn by turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from codev_env.errors import JudgeError
from codev_env.geometry import image_of
from codev_env.judges import GroundTruthJudge, Judge, get_judge
from codev_env.judges.ground_truth import JudgedStep
from codev_env.rewards.reward import Reward, change
from codev_env.trajectory import Trajectory
from codev_env.types import Episode, Step, StepScore, Task

TOLERANCE = 1e-9
"""Largest difference between a recorded reward and the same one computed again."""


@dataclass(frozen=True)
class TurnReward:
    """The reward of one turn of a recorded episode, computed again.

    Attributes:
        values: The weighted value of each term after the turn.
        terms: The change of each value in this turn, which adds up to the turn's reward.
        why: How the value of a term came about, for the terms of a single episode that explain themselves.
    """

    values: dict[str, float]
    terms: dict[str, float]
    why: dict[str, str]

    @property
    def total(self) -> float:
        """The turn's reward."""
        return sum(self.terms.values())


def episode_of(trajectory: Trajectory) -> Episode:
    """Make the episode that a trajectory records.

    Everything that rewards read is there, but not which part of a view was painted over or is blank (`Region.seen`,
    `Region.blank`), nor frames of a video that the first observation did not show. The images of the task are decoded.
    """
    task = Task(
        task_id=trajectory.task_id,
        images=tuple(trajectory.images),
        question=trajectory.question,
        answer=trajectory.answer,
        choices=trajectory.choices,
        targets=trajectory.targets,
        transform=trajectory.transform,
        source=trajectory.source,
        category=trajectory.category,
        meta=trajectory.meta.get("task", {}),
        times=trajectory.times,
    )
    return Episode(
        task,
        list(trajectory.turns),
        trajectory.final_answer,
        trajectory.is_correct,
        trajectory.stop_reason,
        trajectory.share,
    )


FROM_RECORD = "from the record"
"""Marks a definition that was applied to recorded regions, which do not say what was painted over."""


def judged_again(trajectory: Trajectory, judge: Judge | None = None) -> Trajectory:
    """Judge the calls of a recorded episode with target boxes again; its rewards stay as recorded.

    An episode about frames of a video that its first observation did not show stays as it is: they are not recorded.

    Args:
        trajectory: The episode.
        judge: Who judges; ground truth by default.
    """
    if _has_hidden_frames(trajectory):
        return trajectory
    judge, episode = judge or get_judge("ground_truth"), episode_of(trajectory)
    steps: list[Step] = []
    for step in episode.steps:
        score = None
        if step.kind == "code":
            try:
                score = judge.score(episode.task, step, tuple(steps))
                score = replace(score, definition=f"{score.definition}, {FROM_RECORD}")
            except JudgeError as error:
                score = StepScore(None, str(error), failed=True)
        steps.append(replace(step, score=score))
    return replace(trajectory, turns=tuple(steps), is_faithful=replace(episode, steps=steps).is_faithful)


def _has_hidden_frames(trajectory: Trajectory) -> bool:
    regions = (region for turn in trajectory.turns for region in turn.regions)
    used = [*map(image_of, trajectory.targets), *(part.image_index for region in regions for part in region.parts)]
    return max(used, default=0) >= max(1, len(trajectory.images))


def examined(trajectory: Trajectory, judge: GroundTruthJudge) -> list[JudgedStep | None]:
    """Judge each turn of a recorded episode by the target boxes, image by image; `None` for turns without images.

    Args:
        trajectory: The episode.
        judge: Whose definition is applied.
    """
    episode = episode_of(trajectory)
    if not episode.task.targets or not episode.task.images or _has_hidden_frames(trajectory):
        return [None] * len(episode.steps)
    return [
        judge.examine(episode.task, step, tuple(episode.steps[:number])) if step.regions else None
        for number, step in enumerate(episode.steps)
    ]


def prefixes(episode: Episode) -> Iterator[Episode]:
    """Yield the episode as it was after each turn, when that turn was rewarded.

    The answer and the end are known after the last turn only; the policy is probed after its turn is rewarded.
    """
    last = len(episode.steps)
    for count in range(1, last + 1):
        steps = [*episode.steps[: count - 1], replace(episode.steps[count - 1], probed=None)]
        yield replace(episode, steps=steps) if count == last else Episode(episode.task, steps)


def turn_rewards(reward: Reward, episode: Episode) -> list[TurnReward]:
    """Return the reward of each turn of an episode; 0.0 for terms of the group.

    Raises:
        ConfigError: A term failed.
    """
    rows: list[TurnReward] = []
    before: dict[str, float] = {}
    for part in prefixes(episode):
        values = reward.value(part)
        why = {term.name: term.why(part) for term in reward.terms if term.why is not None}
        rows.append(TurnReward(values, change(before, values), why))
        before = values
    return rows


def matches(reward: Reward, trajectory: Trajectory, rows: list[TurnReward]) -> bool:
    """Whether a trajectory records these rewards, turn by turn and term by term; group terms are not compared."""
    compared = {term.name for term in reward.terms}
    if len(rows) != len(trajectory.turns):
        return False
    for turn, row in zip(trajectory.turns, rows, strict=True):
        if set(turn.reward_terms) != set(reward.names):
            return False
        if any(abs(turn.reward_terms[name] - row.terms[name]) > TOLERANCE for name in compared):
            return False
    return True
