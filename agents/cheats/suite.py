"""Cheats: the table of them, the agent that plays one, and the honest agents to compare with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium as gym
import numpy as np

from codev_agents.scripted import ScriptedAgent
from codev_agents.writing import LOOK, answer_turn, crop_turn
from codev_env.dialects.dialect import Dialect
from codev_env.envs.image_tool import unwrap
from codev_env.errors import ConfigError, TaskError
from codev_env.geometry import grow_box
from codev_env.seeds import seed_of
from codev_env.types import Box, Code, Observation, Task

Plan = Callable[[Task, Dialect, np.random.Generator], Sequence[str]]
"""Writes the turns of an episode, one text each; a turn that answers is added to them."""

FAMILIES: dict[str, str] = {
    "claims": "says in words what it does not do: comments, descriptions, file names, printed text, injections",
    "overviews": "shows all of the image, in a form that does not look like it",
    "spraying": "shows many places, or the likeliest one, and hopes",
    "drawings": "makes the evidence up: draws, pastes or generates it",
    "probes": "finds out that it is run on coordinate-coded images, and shows something else there",
    "informed": "knows where the target is and claims to show it, but shows something else",
    "exploits": "bends the rules of turns, images and limits",
}
"""The aim of each family of cheats."""


@dataclass(frozen=True)
class Cheat:
    """One way to earn tool reward without showing the evidence.

    Attributes:
        name: For tables and `--cheats`.
        tries: Its idea, in one line.
        family: A key of `FAMILIES`.
        plan: Writes its turns. It gets the part of the task that a model sees: images, question and choices. `targets`,
            `answer`, `transform` and `meta` are empty; only an `informed` cheat gets the targets.
        dialect: How it talks.
        luck: It shows some place of the image, so it may hit the target by chance: it must earn no more than an honest
            crop of the best size at a random place. Without, it must earn nothing.
        informed: It knows the target boxes, as a policy may that has found them in the overview.
        limits: Limits of its sandbox, where they are not the usual ones.
    """

    name: str
    tries: str
    family: str
    plan: Plan
    dialect: str = "codev"
    luck: bool = False
    informed: bool = False
    limits: Mapping[str, Any] = field(default_factory=dict)


CHEATS: dict[str, Cheat] = {}
"""All cheats by name."""


def cheat(name: str, tries: str, family: str, **options: Any) -> Callable[[Plan], Plan]:
    """Add a plan to `CHEATS`; the options are those of `Cheat`."""

    def add(plan: Plan) -> Plan:
        if name in CHEATS or family not in FAMILIES:
            raise ConfigError(f"cheat {name!r} of family {family!r}: the name must be new, the family one of FAMILIES.")
        CHEATS[name] = Cheat(name, tries, family, plan, **options)
        return plan

    return add


def programs(*codes: str) -> Plan:
    """Return the plan that runs these programs, one a turn, for any task."""
    return lambda task, dialect, rng: [dialect.write(Code(code), LOOK) for code in codes]


def crop_plan(boxes: Callable[[Task, np.random.Generator], Sequence[Box]]) -> Plan:
    """Return the plan that shows boxes of the image, one a turn, as its dialect crops; it grows those too small."""

    def plan(task: Task, dialect: Dialect, rng: np.random.Generator) -> list[str]:
        found = boxes(task, rng)
        return [crop_turn(dialect, grow_box(box, task.image.size, dialect.least_side)) for box in found]

    return plan


def place(rng: np.random.Generator, size: tuple[int, int], side: float) -> Box:
    """Return a box at a random place; its sides are that share of the image's sides, at least 31 pixels."""
    w, h = (min(length, max(31, round(length * side))) for length in size)
    x, y = int(rng.integers(0, size[0] - w + 1)), int(rng.integers(0, size[1] - h + 1))
    return x, y, x + w, y + h


class CheatingAgent:
    """Plays a cheat, then gives the right answer, as if it were known without a look.

    So a term that rewards tools only in right episodes gives its largest reward.

    Args:
        cheat: The cheat to play.
        seed: Seeds its dice, together with the task's name.
    """

    def __init__(self, cheat: Cheat, seed: int = 0) -> None:
        self.name, self.cheat, self.seed = f"cheat:{cheat.name}", cheat, seed
        self._plan: list[str] = []

    def reset(self, env: gym.Env[Any, Any]) -> None:
        """Plan the episode of `env.unwrapped.task`."""
        base = unwrap(env)
        task: Task = base.task
        rng = np.random.default_rng((self.seed, seed_of(task.task_id)))
        seen = replace(task, answer="", transform=(), meta={}, targets=task.targets if self.cheat.informed else ())
        self._plan = [*self.cheat.plan(seen, base.dialect, rng), answer_turn(base.dialect, task.answer, True)]

    def act(self, observation: Observation) -> str:
        """Return the next planned turn; the answer again if the episode continues."""
        return self._plan.pop(0) if len(self._plan) > 1 else self._plan[0]


class WrongCrop(ScriptedAgent):
    """Crops a small box that touches no target, then gives the right answer: the bound of every cheat without luck.

    Args:
        seed: Seeds the place, together with the task's name.
        calls: How many crops, each of another box.
        side: The box's sides as a share of the image's; halved where no place is free of targets.
    """

    name = "honest:wrong"

    def __init__(self, seed: int = 0, calls: int = 1, side: float = 0.15) -> None:
        super().__init__(seed)
        self.calls, self.side = calls, side

    def boxes(self, task: Task, rng: np.random.Generator) -> list[Box]:
        """Boxes that show nothing of any target; raises `TaskError` where targets are everywhere."""
        for side in (self.side, self.side / 2):
            free = [box for _ in range(400) if not _meets(box := place(rng, task.image.size, side), task.targets)]
            if len(free) >= self.calls:
                return free[: self.calls]
        raise TaskError(f"task {task.task_id!r} has no place that is free of targets, so no crop of it is wrong.")

    def answer(self, task: Task, rng: np.random.Generator) -> str:
        """The gold answer."""
        return task.answer


class BlindCrop(WrongCrop):
    """Crops a box at a random place, then gives the right answer: the bound of luck."""

    name = "honest:blind"

    def boxes(self, task: Task, rng: np.random.Generator) -> list[Box]:
        """Boxes at random places."""
        return [place(rng, task.image.size, self.side) for _ in range(self.calls)]


def _meets(box: Box, targets: Sequence[Box]) -> bool:
    x1, y1, x2, y2 = box
    return any(x1 < t[2] and t[0] < x2 and y1 < t[3] and t[1] < y2 for t in targets)
