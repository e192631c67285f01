"""The part that adapters of language-model libraries share: one episode at a time, and the sums of its rewards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
from gymnasium.error import ClosedEnvironmentError, UnregisteredEnv

from codev_env.envs.image_tool import unwrap
from codev_env.locks import ForkLock
from codev_env.registration import why_not_made
from codev_env.types import Answer, Code, Observation, StopReason

_Idle = tuple[Any, gym.Env[Any, Any]]
"""An idle environment, after the arguments that made it: kept, so that no other object gets their addresses."""

_lock = ForkLock()
_idle: dict[Hashable, list[_Idle]] = {}


class EpisodeRunner:
    """Plays episodes of one environment and sums the rewards of the running one, by term.

    Libraries make an object per trajectory; `close` keeps the environment, with its tasks loaded, for the next one that
    is made with the same arguments in this process. A library that cancels an episode may close it while a turn is
    still running in a thread; the environment is kept from the next episode until that turn has ended.

    Args:
        env: The id of an environment of this package, any other Gymnasium id with its module, or a function that makes
            one.
        options: Arguments of the environment, as for `gymnasium.make`.

    Raises:
        gymnasium.error.UnregisteredEnv: No environment has the id.
        gymnasium.error.ClosedEnvironmentError: `reset`, `step`, `conclude` or `cut_off` after `close`.
    """

    def __init__(self, env: str | Callable[..., gym.Env[Any, Any]] = "CodeV-VStar-v0", **options: Any) -> None:
        self._key: Hashable = _key([env, options])
        self._made_by = (env, options)
        self._calls, self._closed, self._state = 0, False, threading.Lock()
        self.env = _take(self._key) or _make(env, options)
        self.base = unwrap(self.env)
        self._begin({})

    def reset(self, *, index: int | None = None, task_id: str | None = None, seed: int | None = None) -> Observation:
        """Start an episode: of a task by index or by identifier, else of one that is drawn.

        Returns:
            `{"text": str, "images": tuple of uint8 arrays of shape (height, width, 3)}`.
        """
        named = {"index": None if index is None else int(index), "task_id": task_id}
        chosen = {name: value for name, value in named.items() if value is not None}
        with self._call():
            observation, info = self.env.reset(seed=seed, options=chosen or None)
            self._begin(info)
        return observation

    def step(self, text: str) -> Observation:
        """Take one turn of the model, its raw text."""
        with self._call():
            observation, _, terminated, truncated, info = self.env.step(text)
            if truncated and not self.base.episode.done:  # a wrapper ended it, as `TimeLimit` does
                ending = self.base.cut_off("max_turns")
                terms = {name: value + ending[name] for name, value in info["reward_terms"].items()}
                info = {**info, "stop_reason": "max_turns", "reward_terms": terms}
            self._add(info["reward_terms"])
            self.info, self.done = info, terminated or truncated
            self.turns += 1
            self.tool_calls += info["action_kind"] == "code"
        return observation

    def conclude(self, text: str) -> None:
        """End the episode with the text of a model that calls no tool: an answer, or none."""
        if self.done:
            return
        if isinstance(self.base.dialect.parse(text), Answer):
            self.step(text)
        else:
            self.cut_off("no_answer")

    def cut_off(self, reason: StopReason) -> None:
        """End the episode for a reason outside it, such as a budget of tokens; it counts as truncated."""
        if self.done:
            return
        with self._call():
            self._add(self.base.cut_off(reason))
            self.info, self.done = {**self.info, "stop_reason": reason}, True

    def code_turn(self, code: str) -> str:
        """Write the turn that runs a program, in the dialect of the environment."""
        return self.base.dialect.write(Code(code))

    @property
    def reward(self) -> float:
        """The reward of the episode so far; at its end the reward of the trajectory."""
        return sum(self.reward_terms.values())

    @property
    def turn_reward(self) -> float:
        """The reward of the last turn, as the environment gave it; 0 at the start."""
        return sum(self.info["reward_terms"].values())

    def summary(self) -> dict[str, float]:
        """Return the numbers to log: the reward and its terms, whether the answer is right and a look faithful."""
        return {
            "reward": self.reward,
            **{f"reward_{name}": value for name, value in self.reward_terms.items()},
            "correct": float(self.info["is_correct"]),
            "faithful": float(self.info["is_faithful"]),
            "turns": float(self.turns),
            "tool_calls": float(self.tool_calls),
        }

    def close(self) -> None:
        """Give the environment back, or let a turn that is running do so when it ends; no other call may follow."""
        with self._state:
            now = not self._closed and not self._calls
            self._closed = True
        if now:
            self._give_back()

    @contextmanager
    def _call(self) -> Iterator[None]:
        """Count a call into the environment; the last one after `close` gives the environment back."""
        with self._state:
            if self._closed:
                raise ClosedEnvironmentError(
                    "this episode was closed, and its environment may be another one's by now."
                )
            self._calls += 1
        try:
            yield
        finally:
            with self._state:
                self._calls -= 1
                last = self._closed and not self._calls
            if last:
                self._give_back()

    def _give_back(self) -> None:
        if not self.done:
            self.base.break_off()
        with _lock:
            _idle.setdefault(self._key, []).append((self._made_by, self.env))

    def _begin(self, info: dict[str, Any]) -> None:
        self.info, self.done, self.turns, self.tool_calls = info, False, 0, 0
        self.reward_terms: dict[str, float] = {}

    def _add(self, terms: dict[str, float]) -> None:
        for name, value in terms.items():
            self.reward_terms[name] = self.reward_terms.get(name, 0.0) + value


def _key(value: Any) -> Hashable:
    """Return a key that is equal for equal plain values, and for any other object that cannot be hashed only its own.

    The text of an object is no key: those of two data sets or data frames may be equal.
    """
    if isinstance(value, dict):
        return dict, frozenset((name, _key(entry)) for name, entry in value.items())
    if isinstance(value, list | tuple):
        return type(value), tuple(map(_key, value))
    try:
        hash(value)
    except TypeError:
        return "object", id(value)
    return type(value), value


def _take(key: Hashable) -> gym.Env[Any, Any] | None:
    with _lock:
        found = _idle.pop(key, [])
        taken = found.pop()[1] if found else None
        if found:
            _idle[key] = found
        return taken


def _make(env: str | Callable[..., gym.Env[Any, Any]], options: dict[str, Any]) -> gym.Env[Any, Any]:
    if callable(env):
        return env(**options)
    try:
        return gym.make(env if ":" in env else f"codev_env:{env}", **options)
    except UnregisteredEnv as error:
        raise type(error)(why_not_made(env, error)) from error
