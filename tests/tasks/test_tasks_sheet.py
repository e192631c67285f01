"""Contact sheets: what is on them, the command, bad input."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from PIL import Image

from codev_env.errors import ConfigError
from codev_env.tasks import SCENES, SceneTaskSet
from codev_env.tasks.sheet import _font, _wrap, main, sheet
from codev_env.types import Task

TOY = SceneTaskSet(SCENES["toy"], "test")
MARK = np.array((225, 20, 60))


class Tasks(list):
    name, source = "given", "real"

    def index_of(self, task_id: str) -> int:
        return [task.task_id for task in self].index(task_id)


def task(**changes) -> Task:
    image = Image.new("RGB", (400, 300), (90, 120, 90))
    return dataclasses.replace(Task("t", (image,), "What is it?", "a mug", targets=((100, 50, 120, 90),)), **changes)


def marked(picture: Image.Image) -> np.ndarray:
    return (np.asarray(picture) == MARK).all(2)


def test_a_target_is_outlined_and_enlarged():
    picture = sheet(Tasks([task()]), [0], columns=1, width=428)
    # One cell of 400 pixels, so the image has its own size, below the gap of 14 pixels.
    found = marked(picture)[14 : 14 + 300, 14 : 14 + 400]
    rows, columns = np.flatnonzero(found.any(1)), np.flatnonzero(found.any(0))
    assert (columns[0], rows[0], columns[-1], rows[-1]) == (96, 46, 123, 93)
    assert not found[50:90, 100:120].any()
    assert np.asarray(picture)[14 + 70, 14 + 110].tolist() == [90, 120, 90]
    assert marked(picture)[14 + 300 :, : 14 + 120].any()


def test_without_targets_there_is_no_outline():
    assert not marked(sheet(Tasks([task(targets=())]), [0], columns=1, width=428)).any()


def test_columns_and_rows():
    one = sheet(TOY, [3], columns=3, width=900)
    row = sheet(TOY, [3, 4, 5], columns=3, width=900)
    rows = sheet(TOY, range(3, 8), columns=3, width=900)
    assert one.width == row.width == rows.width == 900
    assert row.height >= one.height and rows.height > 1.6 * one.height
    assert np.array_equal(np.asarray(one)[14:300, 14:280], np.asarray(row)[14:300, 14:280])
    assert np.asarray(one)[14:300, 320:].min() == 255


def test_long_texts_make_a_sheet_higher_and_are_not_cut_off():
    choices = ("a mug", "x" * 400, "word " * 80, "ein Übergrößenträger")
    long = sheet(Tasks([task(choices=choices, question="why " * 200)]), [0], columns=1, width=428)
    assert long.height > sheet(Tasks([task()]), [0], columns=1, width=428).height + 400
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
    picture = sheet(Tasks([task(images=(Image.new("RGB", size),), targets=(box,))]), [0], columns=1, width=300)
    assert picture.width == 300


@pytest.mark.parametrize(("indices", "columns", "message"), [([], 3, "no tasks"), ([0], 0, "columns"), ([0], 9, "200")])
def test_bad_arguments(indices, columns, message):
    with pytest.raises(ConfigError, match=message):
        sheet(TOY, indices, columns, width=900)


def test_command_writes_a_file(tmp_path, capsys):
    out = tmp_path / "new" / "sheet.png"
    assert main(["--scenes", "toy", "--n", "4", "--columns", "2", "--width", "600", "--out", str(out)]) == 0
    assert str(out) in capsys.readouterr().out
    with Image.open(out) as written:
        assert np.array_equal(written, sheet(TOY, range(4), 2, 600))


def test_command_options(tmp_path, vstar):
    out = str(tmp_path / "sheet.png")
    small = ["--n", "2", "--columns", "2", "--width", "500", "--out", out]
    assert main(["--scenes", "toy", "--seed", "3", *small]) == 0
    with Image.open(out) as first:
        chosen = np.asarray(first)
    assert main(["--scenes", "toy", "--seed", "4", *small]) == 0
    with Image.open(out) as second:
        assert not np.array_equal(chosen, np.asarray(second))
    assert main(["--scenes", "documents", "--difficulty", "0", "--subset", "counting", *small]) == 0
    assert main(["--data", str(vstar), "--bench", "vstar", "--subset", "relative_position", *small]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--n", "0"], "--n is 0"),
        (["--start", "5000"], "the set has 1000 tasks"),
        (["--start", "1", "--seed", "2"], "not both"),
        (["--difficulty", "3"], "difficulty is 3.0"),
        (["--scenes", "toys"], "unknown scene preset"),
    ],
)
def test_bad_commands(arguments, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        main(["--scenes", "toy", *arguments, "--out", str(tmp_path / "sheet.png")])


def test_a_file_that_cannot_be_written(tmp_path):
    with pytest.raises(ConfigError, match=r"--out .* cannot be written"):
        main(["--scenes", "toy", "--n", "1", "--columns", "1", "--out", str(tmp_path / "sheet.unknown")])
