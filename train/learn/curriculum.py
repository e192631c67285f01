"""Curricula: the choice of an update's tasks, by the policy's earlier success on them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from codev_env.errors import ConfigError
from codev_env.files import read_rows, write_text
from codev_env.registry import Registry

if TYPE_CHECKING:
    from codev_agents.rollout.selection import PlayedGroup

PLAYED = "tasks.jsonl"
"""File in the run folder: one line for each update, `{"step": 1, "tasks": [[index, right, episodes], …]}`."""


@dataclass(frozen=True)
class Visit:
    """The last time that a task was played.

    Attributes:
        step: Number of the update, from 1.
        right: Episodes with a right answer.
        episodes: Episodes; 0 if the task was skipped because its first prompt is too long.
    """

    step: int
    right: int
    episodes: int

    @property
    def success(self) -> float:
        """Share of right answers; 0 if the task was skipped."""
        return self.right / max(1, self.episodes)


Choose = Callable[[np.random.Generator, int, int, Mapping[int, Visit]], Sequence[int]]
"""From a generator, the number of tasks, how many are wanted, and the last visit to each task that was played, to the
indices to play. It must depend on nothing else, so that a resumed run chooses the same."""


def uniform(rng: np.random.Generator, size: int, count: int, visits: Mapping[int, Visit]) -> list[int]:
    """Draw each task from all of them with equal probability."""
    return rng.integers(size, size=count).tolist()


LOW, HIGH = 0.2, 0.8
"""The band of `success_band`."""


def success_band(rng: np.random.Generator, size: int, count: int, visits: Mapping[int, Visit]) -> list[int]:
    """Take half of the tasks from those with a last success rate from 0.2 to 0.8, and draw the others uniformly.

    Groups of such tasks have a signal, the largest at a rate of one half. If there are fewer such tasks than that, more
    are drawn uniformly. The uniform part finds new tasks in the band.
    """
    band = sorted(index for index, visit in visits.items() if LOW <= visit.success <= HIGH)
    again = rng.choice(band, size=min(count // 2, len(band)), replace=False).tolist() if band else []
    return [*again, *uniform(rng, size, count - len(again), visits)]


CURRICULA: Registry[Choose] = Registry("curriculum", {"uniform": uniform, "success-band": success_band})
"""The values of `--curriculum`, by name."""


def get_curriculum(name: str) -> Choose:
    """Return a curriculum by its name in `CURRICULA` or its path `"module:function"`.

    Raises:
        ConfigError: There is none, or it cannot be called.
    """
    return CURRICULA.find(name)


def check_curriculum(name: str) -> None:
    """Look whether a curriculum takes what `Choose` is given, so that one that does not is found before training.

    Raises:
        ConfigError: There is none, or it takes other arguments.
    """
    choose = get_curriculum(name)
    try:
        inspect.signature(choose).bind(None, 1, 1, {})
    except TypeError as error:
        raise ConfigError(
            f"curriculum {name!r} cannot be called with a generator, the number of tasks, how many are wanted and the "
            f"last visits (TypeError: {error})."
        ) from error
    except ValueError:  # Some functions in C have no signature.
        return


class TaskChooser:
    """Chooses tasks, and keeps their results in `tasks.jsonl` of the run folder.

    Args:
        name: Curriculum, see `get_curriculum`.
        size: Number of tasks.
        run: The run folder.
        done: Updates that are done; notes of an interrupted run after them are dropped.
        writes: Whether this process writes the file.
    """

    def __init__(self, name: str, size: int, run: Path, done: int = 0, writes: bool = True) -> None:
        self.name, self.size = name, size
        self._choose = get_curriculum(name)
        self._path, self._writes = run / PLAYED, writes
        self._visits: dict[int, Visit] = {}
        rows = [row for row in read_rows(self._path) if row["step"] <= done]
        for row in rows:
            self._remember(row["step"], row["tasks"])
        if writes and self._path.exists():
            write_text(self._path, "".join(json.dumps(row) + "\n" for row in rows))

    def choose(self, rng: np.random.Generator, count: int) -> list[int]:
        """Return the indices of `count` tasks.

        Raises:
            ConfigError: The curriculum chose others than it may.
        """
        visits = dict(self._visits)  # at once: with `staleness` another thread chooses, while this one notes
        chosen = [int(index) for index in self._choose(rng, self.size, count, visits)]
        wrong = [index for index in chosen if not 0 <= index < self.size]
        if len(chosen) != count or wrong:
            raise ConfigError(
                f"curriculum {self.name!r} chose {len(chosen)} tasks"
                + (f", among them {wrong[0]}" if wrong else "")
                + f"; it must choose {count} from 0 to {self.size - 1}."
            )
        return chosen

    def note(self, step: int, played: Iterable[PlayedGroup]) -> None:
        """Note the groups of update number `step`, from 1, those of all processes."""
        if self._choose is uniform:
            return  # it does not look back
        tasks = [[group.index, group.right, group.episodes] for group in played]
        self._remember(step, tasks)
        if self._writes:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"step": step, "tasks": tasks}) + "\n")

    def _remember(self, step: int, tasks: Iterable[Sequence[int]]) -> None:
        for index, right, episodes in tasks:
            self._visits[index] = Visit(step, right, episodes)
