"""Contact sheets: what is on them, bad input."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from PIL import Image

from codev_env.errors import ConfigError
from codev_env.tasks import SCENES, SceneTaskSet
from codev_env.types import Task
from codev_eval.data.sheet import _font, _font_of, _system_fonts, _wrap, sheet

TOY = SceneTaskSet(SCENES["toy"], "test")
MARK = np.array((225, 20, 60))


class Tasks(list):
    name, source = "given", "real"

    def index_of(self, task_id: str) -> int:
        return [task.task_id for task in self].index(task_id)


def task(**changes) -> Task:
    image = Image.new("RGB", (400, 300), (90, 120, 90))
    return dataclasses.replace(Task("t", (image,), "What is it?", "a mug", targets=((100, 50, 120, 90),)), **changes)


def marked(page: Image.Image) -> np.ndarray:
    return (np.asarray(page) == MARK).all(2)


def test_a_target_is_outlined_and_enlarged():
    page = sheet(Tasks([task()]), [0], per_row=1, width=428)
    # One cell of 400 pixels, so the image has its own size, below the gap of 14 pixels.
    found = marked(page)[14 : 14 + 300, 14 : 14 + 400]
    rows, columns = np.flatnonzero(found.any(1)), np.flatnonzero(found.any(0))
    assert (columns[0], rows[0], columns[-1], rows[-1]) == (96, 46, 123, 93)
    assert not found[50:90, 100:120].any()
    assert np.asarray(page)[14 + 70, 14 + 110].tolist() == [90, 120, 90]
    assert marked(page)[14 + 300 :, : 14 + 120].any()


def test_without_targets_there_is_no_outline():
    assert not marked(sheet(Tasks([task(targets=())]), [0], per_row=1, width=428)).any()


def test_rows():
    one = sheet(TOY, [3], per_row=3, width=900)
    row = sheet(TOY, [3, 4, 5], per_row=3, width=900)
    rows = sheet(TOY, range(3, 8), per_row=3, width=900)
    assert one.width == row.width == rows.width == 900
    assert row.height >= one.height and rows.height > 1.6 * one.height
    assert np.array_equal(np.asarray(one)[14:300, 14:280], np.asarray(row)[14:300, 14:280])
    assert np.asarray(one)[14:300, 320:].min() == 255


def test_long_texts_make_a_sheet_higher_and_are_not_cut_off():
    choices = ("a mug", "x" * 400, "word " * 80, "ein Übergrößenträger")
    long = sheet(Tasks([task(choices=choices, question="why " * 200)]), [0], per_row=1, width=428)
    assert long.height > sheet(Tasks([task()]), [0], per_row=1, width=428).height + 400
    page = np.asarray(long)
    assert (page[-14:] == 255).all() and (page[:, -14:] == 255).all()


def test_wrapped_lines_fit_and_keep_the_text():
    for text in ("one two three " * 9, "x" * 300, "a " + "y" * 90 + " b"):
        lines = _wrap(text, 150)
        assert all(_font().getlength(line) <= 150 for line in lines)
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize("size", [(3000, 20), (20, 3000), (1, 1), (27, 27)])
def test_images_of_any_shape(size):
    box = (0, 0, max(1, size[0] // 2), max(1, size[1] // 2))
    page = sheet(Tasks([task(images=(Image.new("RGB", size),), targets=(box,))]), [0], per_row=1, width=300)
    assert page.width == 300


@pytest.mark.parametrize(
    ("indices", "per_row", "message"), [([], 3, "no tasks"), ([0], 0, "tasks per row"), ([0], 9, "200")]
)
def test_bad_arguments(indices, per_row, message):
    with pytest.raises(ConfigError, match=message):
        sheet(TOY, indices, per_row, width=900)


def test_letters_beyond_ascii_are_drawn_where_a_font_has_them():
    text, font = _font_of("plain")
    assert (text, font) == ("plain", _font())
    text, font = _font_of("Größe \ue8ff in")  # a letter for private use, which no font has
    assert text.startswith("Gr") and text.endswith("e ? in")
    if _system_fonts():  # of a machine with DejaVu or Noto
        assert text.startswith("Größe") and font in _system_fonts()
    drawn = {
        language: np.asarray(sheet(Tasks([task(question=language)]), [0], per_row=1, width=428)) for language in "öü"
    }
    assert bool(_system_fonts()) == (not np.array_equal(drawn["ö"], drawn["ü"]))
