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


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.kind)
def test_a_view_keeps_a_small_part_of_the_contrast(part):
    task = SceneTaskSet(part.with_overrides({"noise": 0}), "test")[0]
    x1, y1, x2, y2 = task.targets[0]
    sharp = np.asarray(task.image.convert("L"), float)[y1 + 2 : y2 - 2, x1 + 10 : x2 - 2]
    view = task.image.resize((70, 70), Image.Resampling.BICUBIC).resize((560, 560), Image.Resampling.BICUBIC)
    seen = np.asarray(view.convert("L"), float)[y1 + 8 : y2 - 8, x1 + 18 : x2 - 8]
    assert sharp.std() > 8
    assert np.abs(seen - np.median(seen)).mean() < 20


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
