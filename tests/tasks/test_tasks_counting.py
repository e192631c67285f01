"""Generated counting scenes: the targets are all objects that count."""

from __future__ import annotations

import dataclasses
import json
import pickle
import re
from collections import Counter

import numpy as np
import pytest

from codev_env.errors import ConfigError
from codev_env.scoring import is_correct
from codev_env.tasks import SceneTaskSet, load_tasks
from codev_env.tasks.generators import drawing
from codev_env.tasks.generators.counting import CATEGORIES, CountingOptions, plural
from codev_env.tasks.generators.search import COLORS

SMALL = CountingOptions(sizes=((800, 600), (600, 800)), distractors=(5, 20), count=(1, 6), photo_share=0)


def counted(task) -> list[dict]:
    """Find the objects that a question asks for, by its words alone."""
    what = re.fullmatch(r"How many (.+) with a letter or digit on them are in the image\?", task.question)[1]
    *color, noun = what.split()
    shapes = [shape for shape in drawing.SHAPES if plural(shape) == noun] or list(drawing.SHAPES)
    assert len(shapes) == 1 or noun == "objects"
    assert set(color) <= set(COLORS)
    objects = task.meta["objects"]
    return [o for o in objects if o["shape"] in shapes and (not color or o["color"] == color[0])]


@pytest.mark.parametrize("category", CATEGORIES)
def test_answer_is_the_number_of_targets(category):
    answers, near = Counter(), 0
    for task in SceneTaskSet(SMALL.only(category), "train", size=50):
        found = counted(task)
        assert task.answer == str(len(found)) == str(len(task.targets))
        assert task.targets == tuple(tuple(item["box"]) for item in found)
        assert task.meta["targets"] == list(range(len(found)))
        assert is_correct(task, task.answer)
        if task.choices:
            assert len(set(task.choices)) == 4 and task.answer in task.choices and "0" not in task.choices
            assert task.meta["question_type"] == "multi_choice"
        else:
            assert (task.meta["question_type"], task.meta["answer_type"]) == ("free_form", "integer")
        look = found[0]
        near += any(
            (o["color"] == look["color"]) != (o["shape"] == look["shape"]) for o in task.meta["objects"][len(found) :]
        )
        answers[task.answer] += 1
        answers[bool(task.choices)] += 1
        width, height = task.image.size
        assert all(0 <= x1 < x2 <= width and 0 <= y1 < y2 <= height for x1, y1, x2, y2 in task.targets)
    assert len(answers) == 8 and (near > 40 or category != "color_and_shape")


def test_more_to_count_than_there_is_room_for():
    with pytest.raises(ConfigError, match=r"'distractors' is .* places for them"):
        dataclasses.replace(SMALL, count=(1, 100))
    with pytest.raises(ConfigError, match="'count' is"):
        dataclasses.replace(SMALL, count=(0, 3))


def test_targets_shrink_and_distractors_grow_with_difficulty():
    levels = [CountingOptions().at_difficulty(d) for d in (0, 0.25, 0.5, 0.75, 1)]
    for easier, harder in zip(levels, levels[1:], strict=False):
        assert harder.target_share < easier.target_share
        assert harder.distractors > easier.distractors
    shares = []
    for options in (levels[0], levels[2], levels[4]):
        small = dataclasses.replace(options, sizes=((2048, 1536),), photo_share=0)
        boxes = [box for task in SceneTaskSet(small, "test", size=3) for box in task.targets]
        shares.append(np.mean([(x2 - x1) * (y2 - y1) for x1, y1, x2, y2 in boxes]))
    assert shares[0] > shares[1] > shares[2]


def test_options():
    assert CountingOptions().with_overrides(json.loads(json.dumps(dataclasses.asdict(SMALL)))) == SMALL
    assert pickle.loads(pickle.dumps(SMALL)) == SMALL
    tasks = load_tasks("synthetic", "val", scenes=SMALL, subset="color")
    assert {tasks[i].category for i in range(5)} == {"color"}
    with pytest.raises(ConfigError, match="unknown category of counting scenes"):
        SMALL.only("size")
