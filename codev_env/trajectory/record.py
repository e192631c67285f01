"""The record of one episode."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from PIL import Image

from codev_env.errors import TrajectoryError
from codev_env.trajectory.images import ImageFiles
from codev_env.types import Box, Source, Step, StopReason


@dataclass(frozen=True)
class Trajectory:
    """One episode from its first observation to its end.

    Attributes:
        task_id: The task's identifier.
        index: The task's index in its set.
        env_id: For example `"CodeV-VStar-v0"`.
        split: `"train"`, `"val"` or `"test"`.
        source: `"real"` or `"generated"`.
        category: The task's category.
        question: The question without its choices.
        choices: The options in the order shown.
        answer: The gold answer.
        targets: Boxes of the evidence in pixels of `images[0]`.
        transform: Names of the changes to the original image, see `Task.transform`.
        system_prompt: The dialect's system prompt.
        prompt: Text of the first observation.
        images: The input images that the first observation shows.
        dialect: Name of the dialect.
        observation_role: Who says the turns' observations, see `Dialect.observation_role`.
        reward_name: Name of the reward.
        agent: Name of the agent.
        seed: The seed `reset` was called with.
        turns: The turns in order.
        final_answer: The agent's answer, `None` if it gave none.
        is_correct: Whether that is right.
        share: Share of the points where the scorer gave a part, see `Score.share`; else `None`.
        is_faithful: Whether some tool call showed a target as its main content, see `Episode.is_faithful`.
        stop_reason: Why the episode ended.
        meta: Anything else that is JSON-able; tuples become lists.
        times: For frames of a video, the second of each, shown or not, see `Task.times`.
    """

    task_id: str
    index: int = 0
    env_id: str = ""
    split: str = ""
    source: Source = "generated"
    category: str = ""
    question: str = ""
    choices: tuple[str, ...] = ()
    answer: str = ""
    targets: tuple[Box, ...] = ()
    transform: tuple[str, ...] = ()
    system_prompt: str = ""
    prompt: str = ""
    images: Sequence[Image.Image] = ()
    dialect: str = ""
    observation_role: str = "user"
    reward_name: str = ""
    agent: str = ""
    seed: int | None = None
    turns: tuple[Step, ...] = ()
    final_answer: str | None = None
    is_correct: bool = False
    is_faithful: bool = False
    stop_reason: StopReason = ""
    meta: Mapping[str, Any] = field(default_factory=dict)
    share: float | None = None
    times: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        try:
            # The record in memory equals the one that is read from the file.
            object.__setattr__(self, "meta", json.loads(json.dumps(dict(self.meta), allow_nan=False)))
        except (TypeError, ValueError) as error:
            raise TrajectoryError(f"meta of trajectory {self.task_id!r} is not JSON: {error}.") from error

    @property
    def total_reward(self) -> float:
        """The sum of the turns' rewards."""
        return float(sum(turn.reward for turn in self.turns))

    @property
    def reward_terms(self) -> dict[str, float]:
        """The sum of the turns' rewards by term."""
        total: dict[str, float] = {}
        for turn in self.turns:
            for name, value in turn.reward_terms.items():
                total[name] = total.get(name, 0.0) + value
        return total

    @property
    def judge_failed(self) -> bool:
        """The judge failed on some tool call: the episode must not be trained on."""
        return any(turn.judge_failed for turn in self.turns)

    @property
    def image_size(self) -> tuple[int, int] | None:
        """(width, height) of the first input image, without decoding it."""
        return self.size_of(0)

    def size_of(self, index: int) -> tuple[int, int] | None:
        """Return (width, height) of an input image without decoding it; `None` without images.

        Args:
            index: Which image or frame. Frames that were never shown are not recorded: they are as large as the last
                one that was.
        """
        place = min(index, len(self.images) - 1)
        if place < 0:
            return None
        return self.images.sizes[place] if isinstance(self.images, ImageFiles) else self.images[place].size
