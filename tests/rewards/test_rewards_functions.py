"""Rewards of the user's own: functions, paths to functions, and what goes wrong with them."""

from __future__ import annotations

import pickle

import gymnasium as gym
import numpy as np
import pytest
from reward_episodes import answer, episode, look, region, task

import codev_env  # noqa: F401 - registers the environments
from codev_agents import Oracle, run_episode
from codev_env.errors import ConfigError
from codev_env.rewards import get_reward
from codev_env.types import Episode

T = task()


def brief(episode: Episode) -> float:
    """1 for a right answer, less 0.1 for every turn."""
    return episode.is_correct - 0.1 * len(episode.steps)


def parts(episode: Episode) -> dict[str, float]:
    return {"right": episode.is_correct, "turns": np.float32(-0.25 * len(episode.steps))}


class Scaled:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __call__(self, episode: Episode) -> float:
        return self.scale * episode.is_correct


def changing(episode: Episode) -> dict[str, float]:
    return {"a": 0.0, "b": 0.0} if episode.steps else {"a": 0.0}


def growing(episode: Episode) -> float | dict[str, float]:
    return {"a": 1.0} if episode.steps else 0.0


PLAYED = episode(T, look(region()), answer())


def test_a_number_is_one_term_of_the_functions_name() -> None:
    assert get_reward(brief).name == "brief"
    assert get_reward(brief).value(PLAYED) == {"brief": pytest.approx(0.8)}
    assert get_reward(brief, {"brief": 2.0}).value(PLAYED) == {"brief": pytest.approx(1.6)}


def test_a_dict_is_a_term_for_each_name() -> None:
    reward = get_reward(parts)
    assert reward.names == ("right", "turns")
    assert reward.value(PLAYED) == {"right": 1.0, "turns": -0.5}
    assert get_reward(parts, {"turns": 0.5}).value(PLAYED)["turns"] == -0.25


def test_other_callables() -> None:
    assert get_reward(Scaled(3.0)).value(PLAYED) == {"Scaled": 3.0}
    assert get_reward(lambda episode: 1).value(PLAYED) == {"reward": 1.0}


def test_a_path_names_the_reward_so_that_records_can_be_explained() -> None:
    reward = get_reward(f"{__name__}:parts")
    assert reward.name == f"{__name__}:parts" and reward.names == ("right", "turns")


@pytest.mark.parametrize("reward", [brief, parts, Scaled(2.0), f"{__name__}:parts"])
def test_they_survive_pickling(reward) -> None:
    made = get_reward(reward)
    assert pickle.loads(pickle.dumps(made)).value(PLAYED) == made.value(PLAYED)


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda episode: episode.steps[-1] and 1.0, "IndexError.*without steps.*begin it with"),
        (lambda episode: None, "returned None; it must return a number, or a dict"),
        (lambda episode: "1.0", "must return a number"),
        (lambda episode: {}, "must return a number"),
        (lambda episode: {"a": "x"}, "must return a number"),
        (lambda episode: {1: 1.0}, "must return a number"),
        (lambda episode: np.zeros(2), "must return a number"),
        (lambda: 1.0, "TypeError"),
        (Scaled, "is a class"),
    ],
)
def test_what_cannot_be_a_reward_says_why(fn, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        get_reward(fn)


@pytest.mark.parametrize(
    ("fn", "message"),
    [(changing, r"\['a', 'b'\].*but \['a'\]"), (growing, "gave a dict; it must be a number")],
)
def test_names_must_not_change(fn, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        get_reward(fn).value(PLAYED)


def test_an_environment_pays_by_it() -> None:
    env = gym.make("CodeV-VStar-v0", data="synthetic", scenes="toy", reward=parts, reward_weights={"turns": 2.0})
    _, info = env.reset(options={"index": 0})
    assert info["reward_terms"] == {"right": 0.0, "turns": 0.0}
    trajectory = run_episode(env, Oracle(), options={"index": 0})
    assert trajectory.reward_terms == {"right": 1.0, "turns": -1.0}
    assert trajectory.reward_name == "parts"


def test_a_path_keeps_a_specification_serialisable() -> None:
    env = gym.make("CodeV-VStar-v0", data="synthetic", scenes="toy", reward=f"{__name__}:brief")
    again = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert again.unwrapped.reward == env.unwrapped.reward
