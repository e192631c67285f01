"""Shared code of all kinds of scenes: the base class of their options, checks, difficulty, and random streams."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any, ClassVar, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from codev_env.errors import ConfigError, unknown
from codev_env.types import Task

T = TypeVar("T")

SPLIT_KEYS = {"train": 0, "val": 1, "test": 2}
"""The first key of a scene's seed, by split: splits never share a scene."""


@dataclass(frozen=True)
class SceneOptions(ABC):
    """Base of the options of generated scenes; a subclass knows how to draw one kind of scene.

    Options are immutable, hashable and consist of JSON values; `dataclasses.replace` makes variations.
    """

    kind: ClassVar[str]
    """Name of the kind of scene; the first part of its task ids."""

    @property
    def cycles(self) -> int:
        """Number of consecutive tasks about one scene, each with its choices rotated by one more place."""
        return 1

    @abstractmethod
    def draw(self, task_id: str, seed: np.random.SeedSequence) -> Task:
        """Draw the scene that belongs to a seed: a pure function of the options and the seed.

        Args:
            task_id: The id of the task to make.
            seed: Decides all random values; see `stream`.

        Returns:
            A task with `source="generated"` and exact target boxes.
        """

    @abstractmethod
    def only(self, category: str) -> SceneOptions:
        """Return a copy that asks questions of one category only; raises `ConfigError` for an unknown one."""

    @abstractmethod
    def at_difficulty(self, difficulty: float) -> SceneOptions:
        """Return a copy with the options of a level of difficulty; each kind documents the options that it sets.

        Args:
            difficulty: 0 (easiest) to 1 (hardest). A target's share of the image never grows with it.

        Raises:
            ConfigError: A difficulty out of range.
        """

    def option_names(self) -> tuple[str, ...]:
        """Return the names that `with_overrides` takes."""
        return tuple(f.name for f in dataclasses.fields(self))

    def with_overrides(self, overrides: dict[str, Any]) -> SceneOptions:
        """Return a copy with other values, as JSON has them (lists become tuples).

        Raises:
            ConfigError: A name that this kind of scene lacks, or a value that it does not allow.
        """
        types = get_type_hints(type(self))
        hints = {f.name: types[f.name] for f in dataclasses.fields(self)}
        values = {}
        for name, value in overrides.items():
            if name not in hints:
                raise unknown(f"option of {self.kind} scenes", name, self.option_names())
            values[name] = _checked(f"{self.kind} scene option {name!r}", hints[name], _tuples(value))
        return dataclasses.replace(self, **values)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list | tuple) else value


def _checked(what: str, hint: Any, value: Any) -> Any:
    """Check a value's type, so that `cell="112"` is an error here and not in the middle of drawing."""
    if not _has_type(value, hint):
        raise ConfigError(f"{what} is {value!r}; its type must be {getattr(hint, '__name__', hint)}.")
    return value


def _has_type(value: Any, hint: Any) -> bool:
    if isinstance(hint, UnionType):
        return any(_has_type(value, h) for h in get_args(hint))
    if get_origin(hint) is not tuple:
        accepted = (int, float) if hint is float else hint
        return isinstance(value, accepted) and (hint is bool or not isinstance(value, bool))
    inner = get_args(hint)
    if not isinstance(value, tuple) or (inner[-1] is not Ellipsis and len(inner) != len(value)):
        return False
    hints = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
    return all(_has_type(v, h) for v, h in zip(value, hints, strict=True))


def require(ok: bool, option: str, value: object, allowed: str) -> None:
    """Raise a `ConfigError` that names the option, its value and the allowed values, unless `ok`."""
    if not ok:
        raise ConfigError(f"scene option {option!r} is {value!r}; it must be {allowed}.")


def require_range(option: str, value: tuple[Any, Any], low: float, high: float) -> None:
    """Check that an option is a pair `(least, most)` inside `[low, high]`."""
    ok = len(value) == 2 and all(isinstance(v, int | float) for v in value) and low <= value[0] <= value[1] <= high
    require(ok, option, value, f"a pair (least, most) with {low} <= least <= most <= {high}")


def require_names(option: str, names: tuple[str, ...], allowed: Sequence[str]) -> None:
    """Check that an option is a tuple of one or more known names."""
    require(len(names) > 0 and set(names) <= set(allowed), option, names, f"one or more of {', '.join(allowed)}")


def require_sizes(option: str, sizes: tuple[tuple[int, int], ...], least: int) -> None:
    """Check that an option is a tuple of one or more image sizes (width, height), no side below `least` pixels."""
    ok = len(sizes) > 0 and all(len(size) == 2 and min(size) >= least for size in sizes)
    require(ok, option, sizes, f"one or more pairs (width, height) of at least {least} pixels")


def check_difficulty(difficulty: object) -> float:
    """Return a difficulty as a float; raises `ConfigError` unless it is a number from 0 to 1."""
    number = isinstance(difficulty, int | float) and not isinstance(difficulty, bool)
    if not number or not 0 <= difficulty <= 1:  # type: ignore[operator]
        raise ConfigError(f"difficulty is {difficulty!r}; it must be a number from 0 (easiest) to 1 (hardest).")
    return float(difficulty)  # type: ignore[arg-type]


def grade(difficulty: float, easiest: float, hardest: float) -> float:
    """Return the value of an option at a difficulty: equal steps of difficulty multiply it by the same factor."""
    return float(easiest * (hardest / easiest) ** difficulty)


def grade_range(difficulty: float, easiest: tuple[float, float], hardest: tuple[float, float]) -> tuple[int, int]:
    """Return a pair (least, most) of whole numbers at a difficulty; see `grade`."""
    least, most = (round(grade(difficulty, a, b)) for a, b in zip(easiest, hardest, strict=True))
    return least, most


def child_seed(seed: np.random.SeedSequence, number: int) -> np.random.SeedSequence:
    """Return one of a seed's independent children; unlike `SeedSequence.spawn`, without changing the seed."""
    return np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, number))


def split_of(seed: np.random.SeedSequence) -> str:
    """Return the split that a scene's seed belongs to; `""` for a seed of no split."""
    return next((split for split, key in SPLIT_KEYS.items() if seed.spawn_key[:1] == (key,)), "")


def stream(seed: np.random.SeedSequence, number: int) -> np.random.Generator:
    """Return the random stream of a seed's child."""
    return np.random.default_rng(child_seed(seed, number))


def pick(rng: np.random.Generator, items: Sequence[T]) -> T:
    """Return one item, each with the same probability."""
    return items[int(rng.integers(len(items)))]


def sample(rng: np.random.Generator, items: Sequence[T], count: int) -> list[T]:
    """Return `count` distinct items in random order."""
    return [items[i] for i in rng.permutation(len(items))[:count].tolist()]


def between(rng: np.random.Generator, low: int, high: int) -> int:
    """Return an integer from `low` to `high`, both included."""
    return int(rng.integers(low, high + 1))
