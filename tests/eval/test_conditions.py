"""Conditions: what a perturbed tool shows, and a dialect without its tool."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from codev_env.dialects import dialect_names, get_dialect
from codev_env.envs.tool_free import ToolFree
from codev_env.geometry import ImageBox, image_of, overlap
from codev_env.types import Answer, Code, Invalid, Task
from codev_eval.bench.conditions import other_place, replaced

SIZE = (200, 160)
PIXELS = np.random.default_rng(0).integers(0, 256, (*SIZE[::-1], 3), dtype=np.uint8)


def task(*targets) -> Task:
    return Task("t", (Image.fromarray(PIXELS),), "q", "a", targets=targets)


@st.composite
def boxes(draw):
    x1, y1 = draw(st.integers(0, SIZE[0] - 2)), draw(st.integers(0, SIZE[1] - 2))
    return x1, y1, draw(st.integers(x1 + 1, SIZE[0])), draw(st.integers(y1 + 1, SIZE[1]))


@given(boxes(), st.integers(0, 99))
@settings(max_examples=40)
def test_another_place_lies_inside_and_away_from_what_was_shown(box, seed):
    place = other_place(task(), box, np.random.default_rng(seed))
    assert 0 <= place[0] < place[2] <= SIZE[0] and 0 <= place[1] < place[3] <= SIZE[1]
    if (box[2] - box[0]) < SIZE[0] // 3 and (box[3] - box[1]) < SIZE[1] // 3:
        assert overlap(place, box) == 0
        assert (place[2] - place[0], place[3] - place[1]) == (box[2] - box[0], box[3] - box[1])


def test_another_place_avoids_the_targets_too():
    for seed in range(20):
        place = other_place(task((100, 0, 200, 160)), (0, 0, 40, 40), np.random.default_rng(seed))
        assert overlap(place, (100, 0, 200, 160)) == 0 and overlap(place, (0, 0, 40, 40)) == 0


def test_replaced_images_keep_their_shape_and_lose_their_content():
    shown = PIXELS[20:60, 30:90]
    box = (30, 20, 90, 60)
    rng = np.random.default_rng(0)
    assert (replaced("mask", shown, task(), box, rng) == 127).all()
    noise = replaced("noise", shown, task(), box, rng)
    assert noise.shape == shown.shape and noise.dtype == np.uint8 and 20 < noise.std() < 80
    other = replaced("other", shown, task(), box, rng)
    assert other.shape == shown.shape and not (other == shown).all()


def test_what_replaces_is_a_function_of_the_seed():
    first, same, different = (
        replaced("other", PIXELS[:40, :40], task(), (0, 0, 40, 40), np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    assert (first == same).all() and not (first == different).all()


@pytest.mark.parametrize("name", dialect_names())
def test_every_dialect_can_do_without_its_tool(name):
    inner = get_dialect(name)
    free = ToolFree(inner)
    assert free.parse(inner.write(Answer("7"), think="x")) == Answer("7")
    assert isinstance(free.parse(inner.write(inner.crop((0, 0, 9, 9)))), Invalid)
    assert isinstance(inner.parse(inner.write(inner.crop((0, 0, 9, 9)))), Code)
    assert "your answer" in free.system_prompt() and "no tools" in free.system_prompt()
    assert free.stop == inner.stop and free.first_message(task()) == inner.first_message(task())


def test_another_place_is_on_the_image_that_was_shown():
    images = (Image.new("RGB", (20, 20), "red"), Image.fromarray(PIXELS))
    album = Task("t", images, "q", "a", targets=((0, 0, 20, 20), ImageBox((100, 0, 200, 160), 1)))
    shown = ImageBox((0, 0, 40, 40), 1)
    for seed in range(20):
        place = other_place(album, shown, np.random.default_rng(seed))
        assert image_of(place) == 1 and (place[2] - place[0], place[3] - place[1]) == (40, 40)
        assert overlap(place, shown) == overlap(place, (100, 0, 200, 160)) == 0
    other = replaced("other", PIXELS[:40, :40], album, shown, np.random.default_rng(0))
    assert not (other == (255, 0, 0)).all()
