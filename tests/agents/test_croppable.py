"""Agents in a dialect that can crop the first image alone, and no small boxes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from small_tasks import SmallTasks

from codev_agents import DecorativeCrop, LazyCrop, Oracle, RandomCrop, run_episode
from codev_agents.cheats import crop_plan
from codev_env.dialects import get_dialect
from codev_env.dialects.dialect import Dialect
from codev_env.envs.image_tool import ImageToolEnv
from codev_env.envs.tool_free import ToolFree
from codev_env.geometry import ImageBox, image_of


class TwoImages(SmallTasks):
    """Two images; the targets are on the second one."""

    def __getitem__(self, index):
        task = super().__getitem__(index)
        targets = tuple(ImageBox(box, 1) for box in task.targets)
        return dataclasses.replace(task, images=(*task.images, task.image.rotate(180)), targets=targets)


@pytest.mark.parametrize(("dialect", "shown"), [("codev", {0, 1}), ("deepeyes", {0})])
def test_agents_crop_the_images_that_a_dialect_can_crop(dialect, shown):
    env = ImageToolEnv(TwoImages(), dialect=dialect)
    for agent in (Oracle(), DecorativeCrop(), RandomCrop(), LazyCrop()):
        played = [run_episode(env, agent, options={"index": index}) for index in range(4)]
        boxes = [box for t in played for turn in t.turns for box in turn.crop_boxes]
        assert all(turn.error is None for t in played for turn in t.turns)
        if isinstance(agent, Oracle):
            assert all(t.is_correct for t in played) and set(map(image_of, boxes)) == {1} & shown
        else:
            assert len(boxes) == 4 and set(map(image_of, boxes)) <= shown
    env.close()


def test_plans_of_crops_grow_boxes_that_a_dialect_cannot_show():
    env = ImageToolEnv(SmallTasks(), dialect="deepeyes")
    plan = crop_plan(lambda task, rng: [(40, 40, 46, 46)])
    (turn,) = plan(SmallTasks()[0], env.dialect, np.random.default_rng(0))
    env.reset(options={"index": 0})
    assert env.step(turn)[4]["crop_boxes"] == ((28, 28, 59, 59),)
    env.close()


def test_a_dialect_without_its_tool_is_cropped_like_the_dialect():
    inner = get_dialect("deepeyes")
    free = ToolFree(inner)
    told = [name for name in Dialect.__annotations__ if name != "tags"]  # tags are of the class
    assert {name: getattr(free, name) for name in told} == {name: getattr(inner, name) for name in told}
    env = ImageToolEnv(TwoImages(), dialect=free)
    assert run_episode(env, RandomCrop(), options={"index": 1}).turns[0].kind == "invalid"
    env.close()
