"""Custom rewards: a plain function of an episode becomes a `Reward`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from PIL import Image

from codev_env.errors import ConfigError
from codev_env.rewards.reward import Reward, Term, is_number
from codev_env.types import Episode, Task

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
    try:
        value = fn(blank)
    except Exception as error:
        raise ConfigError(
            f"reward function {label!r} raised {error!r} for an episode without steps, which it must accept: "
            "begin it with `if not episode.steps: return 0.0` (or its names, each with 0.0)."
        ) from error
    if is_number(value):
        return Reward(name or label, (Term(label, fn),))  # type: ignore[arg-type]
    if isinstance(value, Mapping) and value and all(isinstance(k, str) and is_number(v) for k, v in value.items()):
        names = tuple(value)
        return Reward(name or label, tuple(Term(key, _Part(fn, names, key)) for key in names))
    raise ConfigError(
        f"reward function {label!r} returned {value!r}; it must return a number, or a dict of names and numbers."
    )


def name_of(fn: Any) -> str:
    """Return the name of a function; of another callable, its type's."""
    name = getattr(fn, "__name__", type(fn).__name__)
    return "reward" if name == "<lambda>" else str(name)
