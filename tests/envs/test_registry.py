from __future__ import annotations

import importlib
import inspect
import pickle
import subprocess
import sys
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.utils.env_checker import check_env, data_equivalence

import codev_env
from codev_env.errors import ConfigError
from codev_env.registration import env_id_of

ARGS: dict[str, Any] = {"data": "synthetic", "scenes": "toy", "max_turns": 4}
ACTIONS = [
    "<think>look</think><code>\n```python\nshow(image.crop((10, 20, 90, 120)))\nprint('hello')\n```\n</code>",
    "nothing to read here",
    "<think>done</think><answer>A</answer>",
]
SECTIONS = [
    "Description",
    "Action Space",
    "Observation Space",
    "Starting State",
    "Rewards",
    "Episode End",
    "Information",
    "Arguments",
    "Version History",
]

every_env = pytest.mark.parametrize("env_id", codev_env.ENV_IDS)


def play(env: gym.Env, seed: int) -> list[Any]:
    seen: list[Any] = [env.reset(seed=seed)]
    seen += [env.step(action) for action in ACTIONS]
    return seen


@every_env
def test_check_env_has_nothing_to_say(env_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gym.make(env_id, **ARGS)
        check_env(env.unwrapped)
        play(env, 0)
        env.close()


@every_env
def test_the_same_seed_and_actions_give_the_same_episode(env_id: str) -> None:
    envs = [gym.make(env_id, **ARGS) for _ in range(2)]
    episodes = [play(env, 7) for env in envs]
    assert data_equivalence(episodes[0], episodes[1], exact=True)
    assert data_equivalence(play(envs[0], 7), episodes[0], exact=True)
    assert not data_equivalence(play(envs[1], 8), episodes[0])


@every_env
def test_pickled_environments_play_the_same(env_id: str) -> None:
    env = gym.make(env_id, **ARGS).unwrapped
    before = play(env, 7)
    copy = pickle.loads(pickle.dumps(env))
    assert type(copy) is type(env)
    assert data_equivalence(play(copy, 7), before, exact=True)


@every_env
def test_the_spec_survives_json(env_id: str) -> None:
    env = gym.make(env_id, limits={"wall_s": 3.0}, reward_weights={"tool": 0.1}, **ARGS)
    assert env.spec is not None
    again = gym.make(EnvSpec.from_json(env.spec.to_json()))
    assert again.spec == env.spec
    assert data_equivalence(play(again, 7), play(env, 7), exact=True)


@every_env
@pytest.mark.parametrize("mode", ["rgb_array", "ansi", "human"])
def test_every_render_mode(env_id: str, mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    env = gym.make(env_id, render_mode=mode, **ARGS)
    env.reset(seed=0)
    frames = [env.render()]
    for action in ACTIONS:
        env.step(action)
        frames.append(env.render())
    printed = capsys.readouterr().out
    if mode == "rgb_array":
        assert {frame.shape for frame in frames} == {(640, 960, 3)}  # type: ignore[union-attr]
        assert all(np.any(a != b) for a, b in zip(frames, frames[1:], strict=False))
    elif mode == "ansi":
        assert "hello" in str(frames[1]) and "end (answer)" in str(frames[-1])
        assert printed == ""
    else:
        assert frames == [None] * 4
        assert "hello" in printed and "end (answer)" in printed


@every_env
def test_the_docstring_has_the_sections_of_a_gymnasium_page(env_id: str) -> None:
    kind = load_env_creator(gym.spec(env_id).entry_point)
    text = inspect.getdoc(kind) or ""
    found = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    assert found == SECTIONS
    arguments = text.split("## Arguments")[1]
    for name in inspect.signature(kind).parameters:
        assert f"`{name}`" in arguments, name


@every_env
def test_the_docstring_lists_the_id(env_id: str) -> None:
    text = inspect.getdoc(load_env_creator(gym.spec(env_id).entry_point)) or ""
    assert f"`{env_id}`" in text.split("## Action Space")[0]


@every_env
def test_unknown_arguments_are_refused(env_id: str) -> None:
    with pytest.raises(TypeError, match="colour"):
        gym.make(env_id, colour="red", **ARGS)


def test_importing_the_package_is_light() -> None:
    heavy = "torch, transformers, PIL, cv2, matplotlib, RestrictedPython, codev_env.envs, codev_env.sandbox"
    code = f"import codev_env, sys; print([m for m in {heavy.split(', ')!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_import_by_the_id_alone() -> None:
    importlib.import_module("codev_env")
    assert set(codev_env.ENV_IDS) <= set(gym.registry)


def test_a_benchmark_leads_to_its_id() -> None:
    assert env_id_of("hrbench4k") == "codev_env:CodeV-HRBench4K-v0"
    with pytest.raises(ConfigError, match="Did you mean 'hrbench4k'"):
        env_id_of("hrbench4")
