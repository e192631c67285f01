"""Scenes whose detail no down-scaled view holds: what they promise, and the expert that crops them."""

from __future__ import annotations

from collections import Counter

import gymnasium as gym
import numpy as np
import pytest
from PIL import Image

from codev_agents.scripted import Oracle
from codev_env.errors import ConfigError
from codev_env.tasks import SCENES, SceneTaskSet
from codev_env.tasks.generators import fine

PARTS = SCENES["glance"].parts


def test_a_thousand_test_tasks_of_two_kinds():
    tasks = SceneTaskSet(SCENES["glance"], "test")
    assert len(tasks) >= 1000
    assert {tasks[i].meta["kind"] for i in range(16)} == {part.kind for part in PARTS}
    assert tasks[0].image.size == (560, 560)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.kind)
def test_answers_are_about_equally_frequent(part):
    answers = Counter(SceneTaskSet(part, "test")._draw(i).answer for i in range(36))
    assert len(answers) >= 6
    assert max(answers.values()) <= 36 * 0.45


def in_view(part, task) -> float:
    """The largest trace, in levels of grey, that a panel's detail leaves in a view of an eighth of the side."""
    item = task.meta["objects"][0]
    detail = np.asarray(part.picture(item)[0].convert("L"), np.float32)[:, 8:] - item["plate"]
    assert np.abs(detail).max() > 30, "a crop shows it"
    return float(np.abs(np.asarray(Image.fromarray(detail).resize((4, 4), Image.Resampling.BICUBIC))).max())


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.kind)
def test_a_view_shows_nothing_of_the_detail(part, monkeypatch):
    part = part.with_overrides({"noise": 0})
    tasks = [SceneTaskSet(part, "test")[index] for index in range(6)]
    assert max(in_view(part, task) for task in tasks) < 3
    monkeypatch.setattr(fine, "_blurred", np.zeros_like)
    assert min(in_view(part, task) for task in tasks) > 5, "what is left without its low frequencies taken out"


def test_the_oracle_is_right_and_faithful():
    env = gym.make("codev_env:CodeV-VStar-v0", data="synthetic", scenes="glance")
    for index in range(2):
        agent, done = Oracle(snap=56), False
        observation, _ = env.reset(options={"index": index})
        agent.reset(env)
        while not done:
            observation, _, terminated, truncated, info = env.step(agent.act(observation))
            done = terminated or truncated
        assert info["is_correct"] and info["is_faithful"]
    env.close()


def test_values_that_are_not_allowed_are_named():
    with pytest.raises(ConfigError, match="noise"):
        PARTS[0].with_overrides({"noise": 90})
