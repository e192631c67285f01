"""Places in the image, such as "upper left" and "at the top", in the frame that is shown after a transform."""

from __future__ import annotations

import itertools

import pytest

from codev_env.tasks.frames import is_relational, turn_words
from codev_env.transforms import TRANSFORMS, transform_box

NINE = 3


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("words", [("upper", "lower", " "), ("top", "bottom", "-"), ("top", "bottom", " ")])
def test_a_corner_is_where_its_words_say(transform, words):
    top, bottom, joint = words
    for (row, up), (column, across) in itertools.product(((0, top), (2, bottom)), ((0, "left"), (2, "right"))):
        x1, y1, _, _ = transform_box((column, row, column + 1, row + 1), (NINE, NINE), transform)
        shown = f"{top if y1 < 1 else bottom}{joint}{'left' if x1 < 1 else 'right'}"
        assert turn_words(f"In the {up}{joint}{across} area", transform) == f"In the {shown} area"


@pytest.mark.parametrize(
    ("transform", "text", "turned"),
    [
        ("rotate_180", "In the upper right area of the picture", "In the lower left area of the picture"),
        ("rotate_90", "the cup on the left", "the cup at the bottom"),
        ("rotate_90", "What is at the top of the image?", "What is on the left of the image?"),
        ("rotate_90", "What is on the left of the image?", "What is at the bottom of the image?"),
        ("rotate_90", "on the right-hand side", "on the top side"),
        ("flip_horizontal", "on the right-hand side", "on the left-hand side"),
        ("rotate_90", "the leftmost car", "the bottommost car"),
        ("flip_vertical", "The topmost shelf", "The bottommost shelf"),
        ("rotate_90", "the left cup in the upper part", "the lower cup in the left part"),
        ("rotate_90", "from left to right", "from bottom to top"),
        ("rotate_90", "Is it on the left or right of the picture?", "Is it at the bottom or top of the picture?"),
        ("rotate_90", "The man on the left of the dog.", "The man below the dog."),
    ],
)
def test_places_turn(transform, text, turned):
    assert is_relational([text]) and turn_words(text, transform) == turned


@pytest.mark.parametrize(
    "text",
    [
        "All the above answers are wrong.",
        "None of the above",
        "Is that right?",
        "Who has left the room?",
        "What color is her top?",
        "a book on top of the table",
        "the bottom line",
    ],
)
def test_words_that_name_no_direction_stay(text):
    assert not is_relational([text])
    assert all(turn_words(text, transform) == text for transform in TRANSFORMS)


@pytest.mark.parametrize("text", ["the man's left hand", "Turn left", "the car on his left", "Front left"])
def test_a_left_hand_is_a_right_one_in_a_mirror_only(text):
    assert not is_relational([text])
    for transform in ("rotate_90", "rotate_180", "rotate_270"):
        assert turn_words(text, transform) == text
    for transform in ("flip_horizontal", "flip_vertical", "transpose", "transverse"):
        assert turn_words(text, transform) == text.replace("left", "right")
