"""Custom rewards: a plain function of an episode becomes a `Reward`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from PIL import Image

from codev_env.errors import ConfigError
from codev_env.rewards.reward import Reward, Term, is_number
from codev_env.types import Answer, Code, Episode, Execution, Region, Step, StepScore, Task

_OF_NOTHING = (IndexError, ArithmeticError, ValueError, StopIteration)
"""Errors that functions raise for an empty list of steps, such as of its last entry, its mean or its largest."""

RewardFunction = Callable[[Episode], float | Mapping[str, float]]


@dataclass(frozen=True)
class _Part:
    """One of the numbers that a function returns by name."""

    fn: Callable[[Episode], Any]
    names: tuple[str, ...]
    name: str

    def __call__(self, episode: Episode) -> float:
        values = self.fn(episode)
        if not isinstance(values, Mapping) or set(values) != set(self.names):
            seen = list(values) if isinstance(values, Mapping) else f"a {type(values).__name__}"
            raise ConfigError(
                f"reward function {name_of(self.fn)!r} returned {seen}, but {list(self.names)} for an episode without "
                "steps; it must return the same names for every episode."
            )
        return values[self.name]


def from_function(fn: RewardFunction, name: str = "") -> Reward:
    """Make a reward of a function.

    The function is called once, for an episode without steps, to learn what it returns.

    Args:
        fn: Takes the `Episode` so far and returns a number, which becomes the term of the function's name, or a mapping
            from names to numbers, which become its terms. Must be pure: it is called after every step.
        name: The reward's name; the function's where empty.

    Raises:
        ConfigError: If it fails for an episode without steps, or returns something else.
    """
    label = name_of(fn)
    if isinstance(fn, type):
        raise ConfigError(f"reward {label!r} is a class; give a function, or an object that can be called.")
    blank = Episode(Task("", (Image.new("RGB", (1, 1)),), "", ""))
    _takes_an_episode(fn, label)
    try:
        value = fn(blank)
    except Exception as error:
        raise ConfigError(
            f"reward function {label!r} raised {error!r} for an episode without steps, which it must "
            f"accept{_advice(fn, error)}"
        ) from error
    if is_number(value):
        return Reward(name or label, (Term(label, fn),))  # type: ignore[arg-type]
    if isinstance(value, Mapping) and value and all(isinstance(k, str) and is_number(v) for k, v in value.items()):
        names = tuple(value)
        return Reward(name or label, tuple(Term(key, _Part(fn, names, key)) for key in names))
    raise ConfigError(
        f"reward function {label!r} returned {value!r}; it must return a number, or a dict of names and numbers."
    )


def _takes_an_episode(fn: RewardFunction, label: str) -> None:
    try:
        inspect.signature(fn).bind(None)
    except TypeError as error:
        raise ConfigError(
            f"reward function {label!r} cannot be called with an episode (TypeError: {error}); it must take one "
            "argument, the Episode so far."
        ) from error
    except ValueError:  # Some functions in C have no signature.
        return


def _advice(fn: RewardFunction, error: Exception) -> str:
    """Return the end of the sentence that says what to do about a function that failed without steps."""
    if isinstance(error, _OF_NOTHING) or _accepts_a_step(fn):
        return ": begin it with `if not episode.steps: return 0.0` (or its names, each with 0.0)."
    names = ", ".join(field.name for field in fields(Episode))
    return f". It fails with a step as well. An Episode has {names}."


def _accepts_a_step(fn: RewardFunction) -> bool:
    """Return whether a function accepts an episode that has ended after a look and an answer."""
    image = Image.new("RGB", (64, 64))
    region = Region(((0, 0), (64, 0), (64, 64), (0, 64)), (0, 0, 64, 64), 0, "rot0", 1.0, 1.0, "probe")
    code, answer = Code("show(image)"), Answer("1")
    look = Step(code.code, code, Execution(images=(image,), names=("",)), (region,), StepScore(0.5))
    task = Task("trial", (image,), "Which?", "1", choices=("1", "2"), targets=((16, 16, 48, 48),))
    try:
        fn(Episode(task, [look, Step("1", answer)], "1", True, "answer"))
    except Exception:  # The error that counts is the one without steps.
        return False
    return True


def name_of(fn: Any) -> str:
    """Return the name of a function; of another callable, its type's."""
    name = getattr(fn, "__name__", type(fn).__name__)
    return "reward" if name == "<lambda>" else str(name)
