from __future__ import annotations

import json
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st

import codev_env  # noqa: F401
from codev_env.adapters.crop import CropWrapper, encode, scaled
from codev_env.dialects import dialect_names
from codev_env.errors import ConfigError

SMALL: dict[str, Any] = {"scene_side": 8, "crop_side": 4, "question_size": 12}
BOX: dict[str, Any] = {"grid": None, "sizes": (0.25, 0.75)}


def make(max_turns: int = 3, *, crops: dict[str, Any] | None = None, **options: Any) -> CropWrapper:
    env = gym.make("CodeV-VStar-v0", data="synthetic", scenes="toy", max_turns=max_turns, **options)  # 672 x 672
    return CropWrapper(env, **SMALL, **(crops or {}))


def action_for(env: CropWrapper, index: int = 0) -> np.ndarray:
    """The action of four numbers that crops the middle of a target, as small as it goes."""
    x1, y1, x2, y2 = env.unwrapped.task.targets[index]
    middle = np.array([x1 + x2, y1 + y2]) / 2 / env.unwrapped.task.image.size
    return np.array([*(2 * middle - 1), -1, -1], np.float32)


@pytest.mark.parametrize("crops", [{}, BOX, {"answer": "oracle"}], ids=["grid", "box", "oracle"])
def test_check_env_has_nothing_to_say(crops: dict[str, Any]) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        check_env(make(crops=crops))
    # It says so of every wrapper.
    assert [str(w.message) for w in said if "different from the unwrapped version" not in str(w.message)] == []


@pytest.mark.parametrize(
    ("grid", "sizes", "action", "box"),
    [
        (2, (0.5,), 0, (0, 0, 336, 336)),
        (2, (0.5,), 1, (336, 0, 672, 336)),
        (2, (0.5,), 2, (0, 336, 336, 672)),
        (2, (0.25, 0.5), 0, (84, 84, 252, 252)),
        (2, (0.25, 0.5), 1, (0, 0, 336, 336)),
        (3, (0.5,), 0, (0, 0, 336, 336)),  # moved inside, as large as told
        (3, (0.5,), 8, (336, 336, 672, 672)),
        (1, (1.0,), 0, (0, 0, 672, 672)),
        (None, (0.25, 0.75), (0, 0, -1, -1), (252, 252, 420, 420)),
        (None, (0.25, 0.75), (0, 0, 1, -1), (84, 252, 588, 420)),
        (None, (0.25, 0.75), (-1, 1, -1, 0), (0, 336, 168, 672)),
        (None, (0.25, 0.75), (9, 0, -1, -1), (504, 252, 672, 420)),  # policies may reach out of the space
    ],
)
def test_what_an_action_crops(grid: int | None, sizes: tuple[float, ...], action: Any, box: Any) -> None:
    env = make(crops={"grid": grid, "sizes": sizes})
    env.reset(options={"index": 0})
    assert env.box(action) == box
    _, _, _, _, info = env.step(np.array(action))
    assert info["crop_boxes"] == (box,)


@pytest.fixture(scope="module")
def any_box() -> CropWrapper:
    env = make(crops={"grid": None, "sizes": (0.0001, 1.0)})
    env.reset(options={"index": 0})
    return env


@given(action=st.lists(st.floats(-2, 2, width=32), min_size=4, max_size=4))
def test_every_action_is_a_box_inside_the_image(any_box: CropWrapper, action: list[float]) -> None:
    x1, y1, x2, y2 = any_box.box(np.array(action, np.float32))
    assert 0 <= x1 < x2 <= 672 and 0 <= y1 < y2 <= 672


def test_reward_and_info_are_those_of_the_same_text() -> None:
    env, plain = make(crops=BOX), make().unwrapped
    env.reset(options={"index": 3})
    plain.reset(options={"index": 3})
    target = action_for(env)
    for action in (target, np.zeros(4), target):
        crop = plain.dialect.write(plain.dialect.crop(env.box(action)))
        _, reward, terminated, truncated, info = env.step(action)
        _, expected, _, _, expected_info = plain.step(crop)
        assert reward == expected
        assert data_equivalence(info, expected_info, exact=True)
    assert info["is_faithful"]
    assert (terminated, truncated) == (True, False)
    with pytest.raises(ResetNeeded):
        env.step(target)


def test_what_is_seen() -> None:
    env = make(crops={"grid": 2, "sizes": (0.5,)})
    first, _ = env.reset(options={"index": 1})
    image = np.asarray(env.unwrapped.task.image)
    np.testing.assert_allclose(first["scene"], scaled(image, 8))
    assert first["crop"].max() == 0 and first["box"].tolist() == [0, 0, 0, 0] and first["left"].tolist() == [1]
    np.testing.assert_array_equal(first["question"], encode(env.unwrapped.task.question, 12))
    second, *_ = env.step(1)
    np.testing.assert_allclose(second["crop"], scaled(np.ascontiguousarray(image[:336, 336:]), 4))
    assert second["box"].tolist() == [0.5, 0, 1, 0.5]
    assert second["left"].tolist() == pytest.approx([2 / 3])
    assert second in env.observation_space
    np.testing.assert_array_equal(first["scene"], second["scene"])
    assert not np.shares_memory(first["scene"], second["scene"])


def test_scaling_takes_means() -> None:
    image = np.zeros((4, 8, 3), np.uint8)
    image[:2, :4] = 255
    image[2:, 6:, 0] = 255
    small = scaled(image, 2)
    assert small[:, :, 0].tolist() == pytest.approx(np.array([[1, 0], [0, 0.5]]), abs=0.01)
    assert small[:, :, 1].tolist() == pytest.approx(np.array([[1, 0], [0, 0]]), abs=0.01)


@given(st.text(max_size=60), st.integers(1, 40))
def test_questions_are_vectors_of_length_one(text: str, size: int) -> None:
    vector = encode(text, size)
    assert vector.shape == (size,) and vector.dtype == np.float32
    assert np.abs(vector).max() <= 1
    # Directions may cancel out where there are few dimensions.
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5) or not vector.any()
    np.testing.assert_array_equal(vector, encode(text, size))


def test_questions_that_differ_in_words_or_order_differ() -> None:
    def likeness(a: str, b: str) -> float:
        return float(encode(a, 256) @ encode(b, 256))

    asked = "What digit is on the red circle?"
    assert likeness(asked, "what digit is on the RED circle") == pytest.approx(1, abs=1e-5)
    assert likeness(asked, "What digit is on the blue circle?") < 0.9
    assert likeness(asked, "Who wrote this?") < 0.5
    assert likeness("the red circle and the blue cross", "the blue circle and the red cross") < 0.95
    assert not encode("?!", 8).any()


def test_the_oracle_answers_after_the_last_crop() -> None:
    env = make(max_turns=2, crops={"grid": None, "sizes": (0.15, 0.75), "answer": "oracle"})
    env.reset(options={"index": 0})
    observation, reward, terminated, truncated, info = env.step(action_for(env))
    assert (terminated, truncated) == (True, False)
    assert info["stop_reason"] == "answer" and info["is_correct"] and info["is_faithful"]
    assert info["reward_terms"] == pytest.approx({"outcome": 1.0, "format": 0.3, "tool": 0.5})
    assert reward == pytest.approx(1.8)
    assert len(info["crop_boxes"]) == 1 and observation["left"].tolist() == [0]


def test_a_function_answers_from_the_last_crop() -> None:
    shown = []

    def read(task: Any, crop: np.ndarray) -> str:
        shown.append(crop)
        return "no idea"

    env = make(crops={"grid": 2, "sizes": (0.5,), "answer": read})
    env.reset(options={"index": 0})
    env.step(0)
    assert shown == []
    _, _, terminated, _, info = env.step(3)
    np.testing.assert_array_equal(shown[0], np.asarray(env.unwrapped.task.image)[336:, 336:])
    assert terminated and not info["is_correct"] and info["stop_reason"] == "answer"


@pytest.mark.parametrize("dialect", dialect_names())
def test_every_dialect_shows_the_box(dialect: str) -> None:
    env = make(dialect=dialect, crops={"grid": 2, "sizes": (0.5,)})
    env.reset(options={"index": 0})
    assert env.step(3)[4]["crop_boxes"] == ((336, 336, 672, 672),)


def test_processes_step_as_one_process_does() -> None:
    ours, theirs = SyncVectorEnv([make] * 2), AsyncVectorEnv([make] * 2)
    try:
        assert data_equivalence(ours.reset(seed=5), theirs.reset(seed=5), exact=True)
        for _ in range(4):
            actions = ours.action_space.sample()
            assert data_equivalence(ours.step(actions), theirs.step(actions), exact=True)
    finally:
        ours.close()
        theirs.close()


def test_the_spec_survives_json() -> None:
    env = make(crops={"grid": 4, "sizes": (0.5,)})
    assert env.spec is not None
    text = env.spec.to_json()
    again = gym.make(EnvSpec.from_json(text))
    assert json.loads(text)["additional_wrappers"]
    assert again.action_space == env.action_space and again.observation_space == env.observation_space
    assert data_equivalence(again.reset(seed=2), env.reset(seed=2), exact=True)
    assert data_equivalence(again.step(7), env.step(7), exact=True)


@pytest.mark.parametrize(
    ("crops", "message"),
    [
        ({"answer": "me"}, "answer is 'me'"),
        ({"sizes": ()}, "sizes is"),
        ({"sizes": (0.0, 0.5)}, "sizes is"),
        ({"sizes": (0.5, 1.5)}, "sizes is"),
        ({"grid": None, "sizes": (0.5,)}, "least and the greatest"),
        ({"grid": 0}, "grid is 0"),
    ],
)
def test_what_cannot_be_used_says_why(crops: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(crops=crops)


def test_no_room_for_crops_and_foreign_environments_are_refused() -> None:
    with pytest.raises(ConfigError, match="max_turns is 1"):
        make(max_turns=1, crops={"answer": "oracle"})
    with pytest.raises(ConfigError, match="one of this package's"):
        CropWrapper(gym.make("CartPole-v1"))
    env = gym.make("CodeV-VStar-v0", data="synthetic", scenes="toy")
    with pytest.raises(ConfigError, match="scene_side is 0"):
        CropWrapper(env, scene_side=0)


@pytest.mark.parametrize("grid", [8, None])
def test_crops_that_are_too_small_for_a_dialect_are_enlarged(grid):
    env = make(dialect="deepeyes", crops={"grid": grid, "sizes": (0.01, 0.02)})
    env.reset(seed=0)
    *_, info = env.step(0 if grid else np.full(4, -1.0, np.float32))
    ((x1, y1, x2, y2),) = info["crop_boxes"]
    assert (x2 - x1, y2 - y1) == (31, 31)
    env.close()


@pytest.mark.parametrize(
    ("crops", "action", "said"),
    [
        ({"grid": 2, "sizes": (0.25,)}, 4, "the action is 4; it must be a number from 0 to 3"),
        ({"grid": 2, "sizes": (0.25,)}, -1, "the action is -1; it must be a number from 0 to 3"),
        ({"grid": 2, "sizes": (0.25,)}, "x", "the action is 'x'; it must be a number from 0 to 3"),
        (BOX, [0.0, 0.0, 0.0], r"the action is \[0.0, 0.0, 0.0\]; it must be four finite numbers"),
        (BOX, [0.0, 0.0, 0.0, float("nan")], "nan.*; it must be four finite numbers"),
        (BOX, None, "the action is None; it must be four finite numbers"),
    ],
)
def test_an_action_outside_its_space_is_refused(crops: dict[str, Any], action: Any, said: str) -> None:
    env = make(crops=crops)
    env.reset(seed=0)
    with pytest.raises(InvalidAction, match=said):
        env.step(action)
    assert env.box(np.array([1]) if crops is not BOX else [9, -9, 0, 0])
