"""Directions in the frame that is shown: words turn with the image, and the answer stays true to the pixels."""

from __future__ import annotations

import pytest

from codev_env.errors import ConfigError
from codev_env.tasks import SceneTaskSet, load_tasks, wrap_tasks
from codev_env.tasks.frames import is_relational, turn_words
from codev_env.tasks.generators.search import position
from codev_env.tasks.scenes import parse_scenes
from codev_env.transforms import TRANSFORMS


@pytest.mark.parametrize(
    ("transform", "text", "turned"),
    [
        ("flip_horizontal", "The cat is on the left side of the dog.", "The cat is on the right side of the dog."),
        ("flip_vertical", "The cat is on the left side of the dog.", "The cat is on the left side of the dog."),
        ("rotate_180", "above", "below"),
        ("rotate_90", "left", "below"),
        ("rotate_90", "above", "left"),
        ("rotate_270", "left", "above"),
        ("rotate_90", "Is A on the left or right side of B?", "Is A below or above B?"),
        ("rotate_90", "Is A above or below B?", "Is A on the left or right side of B?"),
        ("rotate_90", "The cat is above the dog.", "The cat is on the left side of the dog."),
        ("rotate_90", "The cat is to the left of the dog.", "The cat is below the dog."),
        ("transpose", "left and above", "above and left"),
        ("flip_horizontal", "What color is the leftover?", "What color is the leftover?"),
        ("flip_horizontal", "Which is the right answer, left or right?", "Which is the right answer, right or left?"),
        ("flip_horizontal", "Is the right cup a right-angled one?", "Is the left cup a right-angled one?"),
    ],
)
def test_words_turn(transform, text, turned):
    assert turn_words(text, transform) == turned


def test_what_is_relational():
    assert is_relational(["Where?", "left"])
    assert not is_relational(["What is the color of the cup?", "red"])
    assert not is_relational(["Choose the right option.", "a right triangle", "right angles", "the Right choices"])


@pytest.mark.parametrize("variant", TRANSFORMS)
def test_the_answer_is_true_in_the_frame_that_is_shown(variant):
    tasks = SceneTaskSet(parse_scenes("vstar", "test", "relative_position").options, "test", 6)
    shown = wrap_tasks(tasks, {"transforms": [variant], "frame": "shown"})
    upright = wrap_tasks(tasks, [variant])
    for index in range(6):
        task = shown[index]
        centres = [((x1 + x2) / 2, (y1 + y2) / 2, 0) for x1, y1, x2, y2 in task.targets]
        axis = 0 if task.answer in ("left", "right") else 1
        assert task.answer == position(centres[0], centres[1], axis)
        assert task.answer in task.choices and task.transform == ()
        assert task.meta["shown_transform"] == variant
        assert (upright[index].answer, upright[index].transform) == (tasks[index].answer, (variant,))


def test_other_questions_stay():
    tasks = load_tasks(
        "synthetic", "test", subset="direct_attributes", wrap={"transforms": ["rotate_90"], "frame": "shown"}
    )
    assert tasks[0].transform == ("rotate_90",) and "frame" not in tasks[0].meta


def test_unknown_frame():
    with pytest.raises(ConfigError, match="frame"):
        load_tasks("synthetic", "test", wrap={"transforms": ["rotate_90"], "frame": "mirrored"})
