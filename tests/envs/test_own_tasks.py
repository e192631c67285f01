"""Tasks of a user's own task set that are wrong are refused when they are played, by field and value."""

from __future__ import annotations

import dataclasses

import gymnasium as gym
import pytest
from PIL import Image

from codev_env.errors import TaskError
from codev_env.tasks.wrappers import wrap_tasks
from codev_env.types import Task

IMAGE = Image.new("RGB", (100, 80), "red")
GOOD = Task("one", (IMAGE,), "Which letter?", "a", ("a", "b"), targets=((10, 10, 30, 30),))


class Own:
    """A task set of one item."""

    name, source = "own", "real"

    def __init__(self, item):
        self.item = item

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int):
        return self.item

    def index_of(self, task_id: str) -> int:
        return 0


def start(item) -> dict:
    """Return the first observation."""
    env = gym.make("codev_env:CodeV-VStar-v0", data=Own(item))
    try:
        return env.reset(seed=0)[0]
    finally:
        env.close()


@pytest.mark.parametrize(
    "changes", [{}, {"images": [IMAGE], "choices": (), "targets": [[10, 10, 30.5, 30]]}, {"answer": ""}]
)
def test_a_good_task_is_played(changes):
    first = start(dataclasses.replace(GOOD, **changes))
    assert "Which letter?" in first["text"] and [image.shape for image in first["images"]] == [(80, 100, 3)]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"images": IMAGE}, "images is <PIL.Image.Image .*; it must be a tuple of PIL images"),
        ({"images": "a.png"}, "images is 'a.png'; it must be a tuple of PIL images"),
        ({"images": ("a.png",)}, r"images is \('a.png',\); it must be a tuple of PIL images"),
        ({"question": 3}, "question is 3; it must be a text"),
        ({"answer": 3, "choices": ()}, "answer is 3; it must be a text"),
        ({"answer": None, "choices": ()}, "answer is None; it must be a text"),
        ({"answer": "c"}, r"answer is 'c'; it must be one of the choices \('a', 'b'\)"),
        ({"choices": "ab"}, "choices is 'ab'; it must be a tuple of texts"),
        ({"targets": (10, 10, 30, 30)}, r"targets is \(10, 10, 30, 30\); it must be boxes \(x1, y1, x2, y2\)"),
        ({"targets": ((10, 10, 30),)}, r"targets is \(\(10, 10, 30\),\); it must be boxes"),
        ({"targets": ((30, 10, 10, 30),)}, r"targets is .*; it must be boxes .* with x1 < x2 and y1 < y2"),
        ({"targets": ((10, 10, float("nan"), 30),)}, "targets is .*nan.*; it must be boxes"),
    ],
)
def test_a_wrong_field_is_named_with_its_value(changes, said):
    with pytest.raises(TaskError, match=f"task 'one': {said}"):
        start(dataclasses.replace(GOOD, **changes))


def test_an_item_that_is_no_task_is_named():
    with pytest.raises(TaskError, match="a task is {'question': 'q'}; it must be a codev_env.types.Task"):
        start({"question": "q"})


def test_a_wrong_task_is_refused_before_it_is_turned():
    with pytest.raises(TaskError, match="task 'one': images is 'a.png'"):
        wrap_tasks(Own(dataclasses.replace(GOOD, images="a.png")), "orientation")[0]
