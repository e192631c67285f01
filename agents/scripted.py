"""Scripted agents: an expert that knows the target, and three baselines that do not look."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np

from codev_agents.writing import answer_turn, crop_turn
from codev_env.envs.image_tool import unwrap
from codev_env.envs.trial import verdict_on
from codev_env.errors import ConfigError
from codev_env.geometry import ImageBox, grow_box, image_of, same_image
from codev_env.scoring.scorer import Scorer, gold_letter
from codev_env.seeds import seed_of
from codev_env.types import Box, Observation, Task


class ScriptedAgent:
    """Crops the boxes its plan names, one per turn, then answers.

    Subclasses choose the boxes and the answer; the text of the turns comes from `writing`. Of the images of a task they
    see those that the dialect can crop, and the targets on them: without any, the expert answers at once. An option is
    named by its text, or by its letter where the environment's scorer reads only that.
    """

    name = "scripted"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self._plan: list[str] = []

    def reset(self, env: gym.Env[Any, Any]) -> None:
        """Plan the episode of `env.unwrapped.task`."""
        base = unwrap(env)
        dialect, task = base.dialect, base.task
        # Seeded by the task, so that neither the order of episodes nor the number of workers changes the turns.
        rng = np.random.default_rng((self.seed, seed_of(task.task_id)))
        boxes = self.boxes(_croppable(task, dialect.croppable), rng)
        grown = [grow_box(box, task.images[image_of(box)].size, dialect.least_side) for box in boxes]
        self._plan = [crop_turn(dialect, one, image_of(box)) for box, one in zip(boxes, grown, strict=True)]
        answer = _as_read(base.scorer, task, self.answer(task, rng))
        self._plan.append(answer_turn(dialect, answer, bool(boxes)))

    def act(self, observation: Observation) -> str:
        """Return the next planned turn; the answer again if the episode continues."""
        return self._plan.pop(0) if len(self._plan) > 1 else self._plan[0]

    def boxes(self, task: Task, rng: np.random.Generator) -> list[Box]:
        """The boxes to crop, in order."""
        raise NotImplementedError

    def answer(self, task: Task, rng: np.random.Generator) -> str:
        """A guess: one of the choices, uniformly; without choices an admission."""
        return str(rng.choice(task.choices)) if task.choices else "I do not know"


class Oracle(ScriptedAgent):
    """The expert: crops the first targets, then gives the gold answer.

    Args:
        margin: Share of the target's width and height that is added on each side.
        snap: Align the crop box outward to multiples of this many pixels; `None` for no grid.
        crops: How many targets to crop at most, one per turn.
    """

    name = "oracle"

    def __init__(self, margin: float = 0.25, snap: int | None = None, crops: int = 1) -> None:
        super().__init__()
        if margin < 0 or crops < 1 or (snap is not None and snap < 1):
            raise ConfigError(f"Oracle(margin={margin}, snap={snap}, crops={crops}): need margin >= 0, others >= 1")
        self.margin, self.snap, self.crops = margin, snap, crops

    def boxes(self, task: Task, rng: np.random.Generator) -> list[Box]:
        """The boxes of the first targets, with margin."""
        return [
            same_image(expand_box(box, task.images[image_of(box)].size, self.margin, self.snap), box)
            for box in task.targets[: self.crops]
        ]

    def answer(self, task: Task, rng: np.random.Generator) -> str:
        """The gold answer."""
        return task.answer


class RandomCrop(ScriptedAgent):
    """Crops a box anywhere, of any of the images, and guesses.

    Args:
        seed: Seeds place and guess, together with the task's name.
        side: The box's sides as a share of the image's.
        snap: As in `Oracle`.
    """

    name = "random"

    def __init__(self, seed: int = 0, side: float = 0.25, snap: int | None = None) -> None:
        super().__init__(seed)
        if not 0 < side <= 1:
            raise ConfigError(f"RandomCrop(side={side}): need 0 < side <= 1")
        self.side, self.snap = side, snap

    def boxes(self, task: Task, rng: np.random.Generator) -> list[Box]:
        """One random box."""
        number, (width, height) = _any_image(task, rng)
        w, h = max(1, round(width * self.side)), max(1, round(height * self.side))
        x, y = int(rng.integers(0, width - w + 1)), int(rng.integers(0, height - h + 1))
        return [ImageBox(expand_box((x, y, x + w, y + h), (width, height), 0.0, self.snap), number)]


class LazyCrop(ScriptedAgent):
    """Crops the whole image and guesses: a tool call that shows nothing new."""

    name = "lazy"

    def boxes(self, task: Task, rng: np.random.Generator) -> list[Box]:
        """The whole image."""
        return [(0, 0, *task.image.size)]


class NoTool(ScriptedAgent):
    """Guesses at once."""

    name = "none"

    def boxes(self, task: Task, rng: np.random.Generator) -> list[Box]:
        """None."""
        return []


class DecorativeCrop(ScriptedAgent):
    """Crops the middle of the image, or of any of several, then gives the gold answer: right, but not by looking.

    The agent that tool-blind rewards produce; the cold start imitates it on purpose.

    Args:
        side: The box's sides as a share of the image's.
        snap: As in `Oracle`.
    """

    name = "decorative"

    def __init__(self, side: float = 1 / 6, snap: int | None = None) -> None:
        super().__init__()
        if not 0 < side <= 1:
            raise ConfigError(f"DecorativeCrop(side={side}): need 0 < side <= 1")
        self.side, self.snap = side, snap

    def boxes(self, task: Task, rng: np.random.Generator) -> list[Box]:
        """The box whose top left corner is the middle of an image."""
        number, (width, height) = _any_image(task, rng)
        x, y = width // 2, height // 2
        box = (x, y, x + round(width * self.side), y + round(height * self.side))
        return [ImageBox(expand_box(box, (width, height), 0.0, self.snap), number)]

    def answer(self, task: Task, rng: np.random.Generator) -> str:
        """The gold answer."""
        return task.answer


def _croppable(task: Task, count: int | None) -> Task:
    """Return a task with only its first images, and the targets on them."""
    if count is None or len(task.images) <= count:
        return task
    return replace(task, images=task.images[:count], targets=tuple(b for b in task.targets if image_of(b) < count))


def _as_read(scorer: Scorer, task: Task, answer: str) -> str:
    """Return an option's letter where the scorer does not read its text as that option; else the text."""
    task = replace(task, answer=answer)
    letter = gold_letter(task)
    return letter if letter and not verdict_on(scorer, task, answer).correct else answer


def _any_image(task: Task, rng: np.random.Generator) -> tuple[int, tuple[int, int]]:
    """Draw one of the images: its number and size. Where there is one, nothing is drawn."""
    number = int(rng.integers(len(task.images))) if len(task.images) > 1 else 0
    return number, task.images[number].size


def expand_box(box: Box, size: tuple[int, int], margin: float = 0.0, snap: int | None = None) -> Box:
    """Grow a box by a share of its sides, then outward to a grid, then clip it to the image.

    Args:
        box: (x1, y1, x2, y2) in pixels.
        size: (width, height) of the image.
        margin: Share of the box's width and height added on each side.
        snap: Grid in pixels, or `None`.
    """
    x1, y1, x2, y2 = box
    dx, dy, grid = (x2 - x1) * margin, (y2 - y1) * margin, snap or 1
    low = [int((value // grid) * grid) for value in (x1 - dx, y1 - dy)]
    high = [int(-(-value // grid) * grid) for value in (x2 + dx, y2 + dy)]
    return max(0, low[0]), max(0, low[1]), min(size[0], high[0]), min(size[1], high[1])


SCRIPTED = {agent.name: agent for agent in (Oracle, RandomCrop, LazyCrop, NoTool)}
"""The scripted agents by the name that `codev eval --model scripted:NAME` uses."""
