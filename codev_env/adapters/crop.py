"""Any of the environments for agents that act in numbers: they choose a crop and see arrays of fixed sizes."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.error import InvalidAction
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray
from PIL import Image

from codev_env.envs.image_tool import unwrap
from codev_env.errors import ConfigError
from codev_env.types import Answer, Box, Task

Array = NDArray[np.float32]
AnswerFunction = Callable[[Task, NDArray[np.uint8]], str]
"""Gives the answer from the task and the last crop, shape (height, width, 3)."""


class CropWrapper(gym.Wrapper[dict[str, Any], Any, dict[str, Any], str], RecordConstructorArgs):
    """Turns an `ImageToolEnv` into an environment with array spaces, for libraries that know no text.

    Each action is a crop of the task's first image. It is written as a turn of the environment's dialect and played
    like a model's: sandbox, provenance, judge and reward are those of the wrapped environment. An episode has as many
    crops as the environment has turns (`max_turns`), less one where an answer is given after the last crop. It always
    ends by termination: the number of crops is a part of this task, and `left` shows how many remain.

    The observation is a dict of float32 arrays from 0 to 1, except `question`, which goes from -1 to 1:

    | key | shape | value |
    | --- | --- | --- |
    | `scene` | (scene_side, scene_side, 3) | the task's first image, scaled down |
    | `crop` | (crop_side, crop_side, 3) | the last crop, scaled; black at first |
    | `box` | (4,) | what that crop showed, (x1, y1, x2, y2) as shares of the image's sides; 0 at first or if unknown |
    | `question` | (question_size,) | question and choices: a fixed random direction for each word and each pair of neighbours, added up, of length 1 |
    | `left` | (1,) | share of the episode's crops that are left |

    Args:
        env: The environment to wrap.
        grid: Cells per side. An action is one number: a cell's middle, times one of `sizes`. `None`: an action is four
            numbers from -1 to 1: the crop's middle (x, y), from edge to edge, and its width and height, from the least
            of `sizes` to the greatest. Crops that would reach over an edge are moved inside, and those that are too
            small for the dialect are enlarged.
        sizes: Sides of the crops as shares of the image's sides.
        answer: The turn after the last crop: `"none"`, nothing; `"oracle"`, the right answer; or a function of the task
            and the last crop.
        scene_side: Side of `scene` in pixels.
        crop_side: Side of `crop` in pixels.
        question_size: Length of `question`.

    Raises:
        ConfigError: If an argument cannot be used, or the environment is not one of this package.
    """  # noqa: E501 - rows of tables cannot be wrapped

    def __init__(
        self,
        env: gym.Env[dict[str, Any], str],
        *,
        grid: int | None = 8,
        sizes: Sequence[float] = (0.125, 0.25),
        answer: Literal["none", "oracle"] | AnswerFunction = "none",
        scene_side: int = 32,
        crop_side: int = 16,
        question_size: int = 64,
    ) -> None:
        RecordConstructorArgs.__init__(
            self,
            grid=grid,
            sizes=sizes,
            answer=answer,
            scene_side=scene_side,
            crop_side=crop_side,
            question_size=question_size,
        )
        super().__init__(env)
        self._core = unwrap(env)
        if answer not in ("none", "oracle") and not callable(answer):
            raise ConfigError(f"answer is {answer!r}; it must be 'none', 'oracle' or a function of task and crop.")
        for name, value in (("scene_side", scene_side), ("crop_side", crop_side), ("question_size", question_size)):
            if value < 1:
                raise ConfigError(f"{name} is {value!r}; it must be at least 1.")
        if not sizes or not 0 < min(sizes) <= max(sizes) <= 1:
            raise ConfigError(f"sizes is {sizes!r}; it must be shares of the image's sides, above 0 and at most 1.")
        if grid is not None and grid < 1:
            raise ConfigError(f"grid is {grid!r}; it must be at least 1, or None for actions of four numbers.")
        if grid is None and min(sizes) == max(sizes):
            raise ConfigError(f"sizes is {sizes!r}; without a grid it must hold the least and the greatest share.")
        self._grid, self._sizes, self._answer = grid, tuple(sizes), answer
        self._scene_side, self._crop_side, self._question_size = scene_side, crop_side, question_size
        self._crops = self._core.max_turns - (answer != "none")
        if self._crops < 1:
            raise ConfigError("max_turns is 1, which the answer takes; make the environment with max_turns=2 or more.")
        self._taken = 0
        self._fixed: dict[str, Array] = {}
        self.action_space = (
            spaces.Box(-1.0, 1.0, (4,), np.float32) if grid is None else spaces.Discrete(grid * grid * len(self._sizes))
        )
        self.observation_space = spaces.Dict(
            {
                "scene": spaces.Box(0.0, 1.0, (scene_side, scene_side, 3), np.float32),
                "crop": spaces.Box(0.0, 1.0, (crop_side, crop_side, 3), np.float32),
                "box": spaces.Box(0.0, 1.0, (4,), np.float32),
                "question": spaces.Box(-1.0, 1.0, (question_size,), np.float32),
                "left": spaces.Box(0.0, 1.0, (1,), np.float32),
            }
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start an episode; `options` are those of the wrapped environment."""
        observation, info = self.env.reset(seed=seed, options=options)
        task = self._core.task
        self._taken = 0
        self._fixed = {
            "scene": scaled(observation["images"][0], self._scene_side),
            "question": encode(" ".join((task.question, *task.choices)), self._question_size),
        }
        return self._observation(None, None), info

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Crop, and give the answer after the last crop.

        Returns:
            The five values of Gymnasium. `info` is that of the wrapped environment; if an answer was given, its
            `reward_terms` add up the crop's and the answer's, and its `crop_boxes` are the crop's.
        """
        dialect = self._core.dialect
        observation, reward, terminated, truncated, info = self.env.step(dialect.write(dialect.crop(self.box(action))))
        self._taken += 1
        image = observation["images"][-1] if observation["images"] else None
        box = info["crop_boxes"][-1] if info["crop_boxes"] else None
        if self._taken == self._crops and self._answer != "none":
            _, more, terminated, truncated, last = self.env.step(dialect.write(Answer(self._give_answer(image))))
            reward = float(reward) + float(more)
            terms = {name: value + last["reward_terms"][name] for name, value in info["reward_terms"].items()}
            info = {**last, "reward_terms": terms, "crop_boxes": info["crop_boxes"]}
        return self._observation(image, box), float(reward), terminated or truncated, False, info

    def box(self, action: Any) -> Box:
        """Return the crop that an action means in the current task, (x1, y1, x2, y2) in pixels.

        Raises:
            InvalidAction: It is not a cell's number, or without a grid not four finite numbers.
        """
        if self._grid is None:
            low, high = min(self._sizes), max(self._sizes)
            x, y, *sides = (np.clip(_numbers(action, (4,), "four finite numbers"), -1, 1) + 1) / 2
            return self._inside((x, y), [low + (high - low) * side for side in sides])
        count = self._grid**2 * len(self._sizes)
        number = int(_numbers(action, (), wanted := f"a number from 0 to {count - 1}"))
        if not 0 <= number < count:
            raise InvalidAction(f"the action is {action!r}; it must be {wanted}.")
        cell, size = divmod(number, len(self._sizes))
        row, column = divmod(cell, self._grid)
        middle = (column + 0.5) / self._grid, (row + 0.5) / self._grid
        return self._inside(middle, [self._sizes[size]] * 2)

    def _inside(self, middle: Sequence[float], sides: Sequence[float]) -> Box:
        """Return the box around a middle, both in shares of the image's (width, height), moved inside it."""
        low, high = [], []
        for at, share, length in zip(middle, sides, self._core.task.image.size, strict=True):
            side = min(length, max(self._core.dialect.least_side, round(share * length)))
            start = min(max(0, round(at * length - side / 2)), length - side)
            low.append(start)
            high.append(start + side)
        return low[0], low[1], high[0], high[1]

    def _give_answer(self, image: NDArray[np.uint8] | None) -> str:
        if callable(self._answer):
            return self._answer(self._core.task, np.zeros((1, 1, 3), np.uint8) if image is None else image)
        return self._core.task.answer

    def _observation(self, image: NDArray[np.uint8] | None, box: Box | None) -> dict[str, Array]:
        side = self._crop_side
        crop = np.zeros((side, side, 3), np.float32) if image is None else scaled(image, side)
        shares = np.zeros(4) if box is None else np.array(box) / np.tile(self._core.task.image.size, 2)
        left = 1 - self._taken / self._crops
        fixed = {name: array.copy() for name, array in self._fixed.items()}
        return {**fixed, "crop": crop, "box": shares.astype(np.float32), "left": np.array([left], np.float32)}


def scaled(image: NDArray[np.uint8], side: int) -> Array:
    """Scale an image of shape (height, width, 3) to (side, side, 3), 0 to 1, each pixel the mean of what it covers."""
    small = Image.fromarray(image).resize((side, side), Image.Resampling.BOX, reducing_gap=2.0)
    return np.asarray(small, np.float32) / np.float32(255)


def encode(text: str, size: int) -> Array:
    """Encode a text as a vector of length 1; a text without words as zeros.

    Words and pairs of neighbouring words each have a direction of their own, drawn once and for all: texts that share
    words lie close, and no vocabulary has to be known (random indexing, Kanerva et al. 2000).
    """
    words = re.findall(r"\w+", text.lower())
    parts = [*words, *(" ".join(pair) for pair in zip(words, words[1:], strict=False))]
    total = np.sum([_direction(part, size) for part in parts], axis=0) if parts else np.zeros(size)
    length = np.linalg.norm(total)
    return (total / length if length else total).astype(np.float32)


@lru_cache(maxsize=65_536)
def _direction(part: str, size: int) -> NDArray[np.float64]:
    return np.random.default_rng(zlib.crc32(part.encode())).choice((-1.0, 1.0), size)


def _numbers(action: Any, shape: tuple[int, ...], wanted: str) -> NDArray[np.float64]:
    """Return an action as finite numbers of a shape."""
    try:
        numbers = np.asarray(action, np.float64)
    except (TypeError, ValueError):
        numbers = np.asarray(np.nan)
    if numbers.size == 1 and not shape:  # some agents give an array of one number
        numbers = numbers.reshape(())
    if numbers.shape != shape or not np.isfinite(numbers).all():
        raise InvalidAction(f"the action is {action!r}; it must be {wanted}.")
    return numbers
