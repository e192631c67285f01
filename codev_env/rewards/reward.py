"""Rewards: weighted sums of named terms, each a pure function of the episode so far, or of its group."""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from codev_env.errors import CodevError, ConfigError, unknown
from codev_env.types import Episode

TermFunction = Callable[[Episode], float]
GroupFunction = Callable[[Sequence[Episode]], Sequence[float]]
Need = Literal["boxes", "transform", "judge", "probing", "group"]


@dataclass(frozen=True)
class Channel:
    """Terms whose sum the trainer turns into an advantage of its own, before the advantages are added.

    Attributes:
        name: The same for all its terms.
        only_correct: Normalise it over the correct rollouts of a group only; the others get no advantage from it.
    """

    name: str
    only_correct: bool = False


OUTCOME = Channel("outcome")
"""The channel of terms that name none."""


@dataclass(frozen=True)
class Term:
    """One named part of a reward.

    Attributes:
        name: The name it is logged under.
        fn: A pure function of the episode so far.
        weight: Factor of its value.
        channel: The terms it is normalised with.
        why: Says in one line, for people, how the value came about.
    """

    name: str
    fn: TermFunction
    weight: float = 1.0
    channel: Channel = OUTCOME
    why: Callable[[Episode], str] | None = None


@dataclass(frozen=True)
class GroupTerm:
    """A part of a reward that needs all rollouts of a task.

    An environment, which knows one episode, pays 0.0 for it; a rollout pays it with the last turn of each episode.

    Attributes:
        name: The name it is logged under.
        fn: A pure function of the finished episodes of a group; returns one value for each.
        weight: Factor of its values.
        channel: The terms it is normalised with.
    """

    name: str
    fn: GroupFunction
    weight: float = 1.0
    channel: Channel = OUTCOME


@dataclass(frozen=True)
class Reward:
    """A named, weighted sum of terms. An environment pays the change of each term at each step.

    The first step pays from 0, so an episode's step rewards add up to the value of its last state, for any terms.

    Attributes:
        name: The name it is chosen and recorded under.
        terms: Terms of a single episode.
        group_terms: Terms that compare an episode with its group.
        tool_terms: Names of the terms that reward or penalise the use of tools.
        needs: Its requirements: `"boxes"` of the evidence, the `"transform"` of the image, a `"judge"` of
            tool calls, `"probing"` of the policy's answer. `"group"` follows from `group_terms`.
        robust: It claims that no cheat earns more from `tool_terms` than an honest look at a wrong place.
        gate: A channel: of the outcome's advantage, a turn with a call gets only the sign that its call has there.
        source: Where the formula comes from.
        second_hand: Names of the terms whose formula or weight is known from descriptions by others only.
    """

    name: str
    terms: tuple[Term, ...]
    group_terms: tuple[GroupTerm, ...] = ()
    tool_terms: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    robust: bool = False
    gate: str = ""
    source: str = ""
    second_hand: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = self.names
        if not names or len(set(names)) != len(names):
            raise ConfigError(
                f"reward {self.name!r} has terms {list(names)}; it needs at least one, and different names."
            )
        for kind, listed in (("tool", self.tool_terms), ("second-hand", self.second_hand)):
            for name in listed:
                if name not in names:
                    raise unknown(f"{kind} term of reward {self.name!r}:", name, names)
        for need in self.needs:
            if need not in get_args(Need):
                raise unknown(f"need of reward {self.name!r}:", need, get_args(Need))
        if len({channel.name for channel in self.channels}) != len(self.channels):
            raise ConfigError(f"reward {self.name!r} has channels {self.channels}; one name must mean one channel.")
        others = [channel.name for channel in self.channels if channel != OUTCOME]
        if self.gate and self.gate not in others:
            raise unknown(f"gate of reward {self.name!r}:", self.gate, others)
        if self.group_terms and "group" not in self.needs:
            object.__setattr__(self, "needs", (*self.needs, "group"))

    def value(self, episode: Episode) -> dict[str, float]:
        """Return the weighted value of each term for the episode so far, by name; 0.0 for a group term.

        Raises:
            ConfigError: If a term fails, or gives something that is not a finite number.
        """
        values = {term.name: self._weighted(term, self._call(term, episode)) for term in self.terms}
        return values | dict.fromkeys((term.name for term in self.group_terms), 0.0)

    def group_value(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        """Return the weighted value of each group term, by name, for each finished episode of a group.

        Raises:
            ConfigError: If a term fails, or gives something else than a finite number for each episode.
        """
        found: list[dict[str, float]] = [{} for _ in episodes]
        for term in self.group_terms:
            values = list(self._call(term, episodes))
            if len(values) != len(episodes):
                raise ConfigError(
                    f"group term {term.name!r} of reward {self.name!r} gave {len(values)} values for "
                    f"{len(episodes)} episodes; it must give one for each."
                )
            for row, value in zip(found, values, strict=True):
                row[term.name] = self._weighted(term, value)
        return found

    def with_weights(self, weights: Mapping[str, float]) -> Reward:
        """Return the same reward with some weights replaced.

        Raises:
            ConfigError: If it is no mapping, a name is not one of the terms, or a weight is not a finite number.
        """
        if not isinstance(weights, Mapping):
            raise ConfigError(
                f"reward_weights is {weights!r}; it must map terms to weights, such as {{{self.names[0]!r}: 1.0}}."
            )
        for name, weight in weights.items():
            if name not in self.names:
                raise unknown(f"weight of reward {self.name!r}:", name, self.names)
            if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not math.isfinite(weight):
                raise ConfigError(f"weight {name!r} of reward {self.name!r} is {weight!r}; it must be a finite number.")

        terms = tuple(replace(term, weight=float(weights.get(term.name, term.weight))) for term in self.terms)
        group = tuple(replace(term, weight=float(weights.get(term.name, term.weight))) for term in self.group_terms)
        return replace(self, terms=terms, group_terms=group)

    @property
    def all_terms(self) -> tuple[Term | GroupTerm, ...]:
        """The terms and the group terms, in order."""
        return (*self.terms, *self.group_terms)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all terms, in order."""
        return tuple(term.name for term in self.all_terms)

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The channels of the terms, in order."""
        return tuple(dict.fromkeys(term.channel for term in self.all_terms))

    @property
    def channel_weights(self) -> tuple[float, ...]:
        """The factor of each channel's advantage.

        The sum of the absolute weights of its terms; 1 for a single channel, whose scale normalising takes away.
        """
        if len(self.channels) == 1:
            return (1.0,)
        return tuple(
            sum(abs(term.weight) for term in self.all_terms if term.channel == channel) for channel in self.channels
        )

    @property
    def gate_channels(self) -> tuple[int, int] | None:
        """The numbers of the outcome's channel and of the one that gates it; `None` without one, or if it weighs 0."""
        names = [channel.name for channel in self.channels]
        if OUTCOME.name not in names or self.gate not in names or not self.channel_weights[names.index(self.gate)]:
            return None
        return names.index(OUTCOME.name), names.index(self.gate)

    def _call(self, term: Term | GroupTerm, argument: Any) -> Any:
        try:
            return term.fn(argument)
        except CodevError:
            raise
        except Exception as error:
            raise ConfigError(f"term {term.name!r} of reward {self.name!r} raised {error!r}.") from error

    def _weighted(self, term: Term | GroupTerm, value: Any) -> float:
        if not is_number(value):
            raise ConfigError(
                f"term {term.name!r} of reward {self.name!r} gave a {type(value).__name__}; it must be a number."
            )
        weighted = term.weight * float(value) + 0.0  # never -0.0
        if not math.isfinite(weighted):
            raise ConfigError(f"term {term.name!r} of reward {self.name!r} gave {weighted}; it must be finite.")
        return weighted


def change(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return the reward of one step, by term: the value after it minus the value before it (0 before the first)."""
    return {name: value - before.get(name, 0.0) for name, value in after.items()}


def is_number(value: Any) -> bool:
    """Whether a value is one real number; a text, an array or a tensor is none."""
    return isinstance(value, (numbers.Real, np.bool_))


def about(term: Term | GroupTerm) -> str:
    """Return the first line of the docstring of a term's function: its formula. Empty without one."""
    text = inspect.getdoc(term.fn) if inspect.isroutine(term.fn) else None
    return text.splitlines()[0] if text else ""
