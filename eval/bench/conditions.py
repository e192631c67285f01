"""Conditions of an evaluation beyond the plain one: suites of variants, and tools that show something else."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from codev_env.envs.image_tool import unwrap
from codev_env.errors import ConfigError
from codev_env.geometry import ImageBox, boxes_on, image_of, overlap
from codev_env.seeds import seed_of
from codev_env.tasks import TransformedTaskSet
from codev_env.tasks.wrappers import SOURCE
from codev_env.types import Box, Execution, Task, TaskSet
from codev_eval.bench.options import Perturbation

_TRIES = 200
Pixels = NDArray[np.uint8]


def all_variants(name: str, tasks: TaskSet) -> TransformedTaskSet:
    """Return the tasks of a suite; raises `ConfigError` unless they are all variants of each task."""
    if not isinstance(tasks, TransformedTaskSet) or tasks.mode != "each":
        raise ConfigError(f"--suites {name} draws one variant for each task: a suite plays all of them.")
    return tasks


def without_source(tasks: TaskSet, count: int) -> list[int]:
    """Return the indices of all variants of the first tasks but the source, which the plain condition covers."""
    assert isinstance(tasks, TransformedTaskSet)
    names = [variant.name for variant in tasks.variants]
    return [i for i in range(count * len(names)) if names[i % len(names)] != SOURCE]


class Perturbed(gym.Wrapper[dict[str, Any], str, dict[str, Any], str]):
    """Replaces the tool's output for the agent; execution and score stay those of the real output.

    Args:
        env: One of codev_env's environments.
        kind: `"mask"`: each returned image all grey. `"noise"`: Gaussian noise. `"other"`: another part of the input,
            as large as the part that was shown, that overlaps neither it nor a target if there is such a place. All
            of the returned image's size, and printed text stays. `"empty"`: no image and no text.
        seed: Seeds noise and places, together with the task and the turn.
    """

    def __init__(self, env: gym.Env[dict[str, Any], str], kind: Perturbation, seed: int = 0) -> None:
        super().__init__(env)
        self.kind, self._seed = kind, seed

    def step(self, action: str) -> tuple[dict[str, Any], Any, bool, bool, dict[str, Any]]:
        """Take a turn in the environment, and replace what it shows."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        base = unwrap(self.env)
        steps = base.episode.steps
        last = steps[-1]
        if last.execution is None:
            return observation, reward, terminated, truncated, info
        if self.kind == "empty":
            text, info = base.dialect.render(Execution(), 0), {**info, "crop_boxes": ()}
            return {"text": text, "images": ()}, reward, terminated, truncated, info
        rng = np.random.default_rng((self._seed, seed_of(base.task.task_id), len(steps)))
        boxes = info["crop_boxes"]
        images = tuple(
            replaced(self.kind, image, base.task, boxes[place] if place < len(boxes) else None, rng)
            for place, image in enumerate(observation["images"])
        )
        return {**observation, "images": images}, reward, terminated, truncated, info


def replaced(kind: Perturbation, image: Pixels, task: Task, box: Box | None, rng: np.random.Generator) -> Pixels:
    """Return an image of the same shape (height, width, 3) in place of one that a tool returned.

    Args:
        kind: `"mask"`, `"noise"` or `"other"`.
        image: The image that the tool returned.
        task: The task, whose images `"other"` crops.
        box: Which part of which image was shown, `None` where unknown: then the first image is cropped.
        rng: Draws noise and places.
    """
    if kind == "mask":
        return np.full_like(image, 127)
    if kind == "noise":
        return np.clip(rng.normal(127.5, 64.0, image.shape), 0, 255).astype(np.uint8)
    place = other_place(task, box, rng)
    crop = task.images[image_of(place)].crop(place).resize((image.shape[1], image.shape[0]), Image.Resampling.BILINEAR)
    return np.asarray(crop.convert("RGB"))


def other_place(task: Task, box: Box | None, rng: np.random.Generator) -> Box:
    """Return a random box that overlaps neither `box` nor a target, as large as `box` and on the same image.

    Where none is found the box shrinks; of all those tried, the one that overlaps least is taken.
    """
    on = image_of(box)
    width, height = task.images[on].size
    x1, y1, x2, y2 = box or (0, 0, max(1, width // 4), max(1, height // 4))
    avoid = boxes_on(on, (box, *task.targets))
    best: tuple[int, Box] | None = None
    for number in range(_TRIES):
        shrink = 2 ** (number * 4 // _TRIES)
        w = min(width, max(1, (x2 - x1) // shrink))
        h = min(height, max(1, (y2 - y1) // shrink))
        x, y = int(rng.integers(0, width - w + 1)), int(rng.integers(0, height - h + 1))
        place = ImageBox((x, y, x + w, y + h), on)
        shared = sum(overlap(place, b) for b in avoid)
        if not shared:
            return place
        if best is None or shared < best[0]:
            best = (shared, place)
    assert best is not None
    return best[1]
