"""Boxes that are not in pixels are recognised, and read where their form is given."""

from __future__ import annotations

import json

import pytest
from PIL import Image

from codev_env.errors import TaskError
from codev_env.tasks.readers.dataset import open_dataset


def rows_with(boxes, size=(400, 200), exif=None):
    """Rows in memory, each with an image of a size and a box."""
    image = Image.new("RGB", size, "grey")
    return [{"image": image, "question": "Which?", "answer": "a", "targets": box} for box in boxes]


@pytest.mark.parametrize("box", [[0.1, 0.1, 0.2, 0.2], [0, 0, 1, 1], [0.5, 0.25, 1.0, 0.5], [[0.1, 0.2, 0.3, 0.4]]])
def test_shares_of_the_image_are_asked_about(box):
    with pytest.raises(TaskError, match=r"looks like shares of the image.*boxes='normalized' \(--reader boxes=norm"):
        open_dataset(rows_with([box]))
    assert open_dataset(rows_with([box]), boxes="xyxy")[0].targets


@pytest.mark.parametrize(
    "box", [[0.1, 0.1, 1.0001, 0.9], [-0.002, 0.1, 0.5, 0.6], [[10, 10, 20, 20], [0, 0.5, 1.1, 1]]]
)
def test_shares_that_rounding_takes_beyond_the_image_are_asked_about(box):
    with pytest.raises(TaskError, match="looks like shares of the image"):
        open_dataset(rows_with([box]))


def test_normalized_boxes_become_pixels():
    tasks = open_dataset(rows_with([[0.25, 0.5, 0.5, 1.0], [[0, 0, 1, 1]]]), boxes="normalized")
    assert [task.targets for task in tasks] == [((100, 100, 200, 200),), ((0, 0, 400, 200),)]
    with pytest.raises(TaskError, match=r"\[10, 10, 20, 20\] is not \[x1, y1, x2, y2\] from 0 to 1"):
        open_dataset(rows_with([[10, 10, 20, 20]]), boxes="normalized")


def test_boxes_to_a_thousand_become_pixels():
    assert open_dataset(rows_with([[250, 500, 500, 1000]]), boxes="thousand")[0].targets == ((100, 100, 200, 200),)
    with pytest.raises(TaskError, match="from 0 to 1000"):
        open_dataset(rows_with([[250, 500, 500, 1001]]), boxes="thousand")


def test_boxes_to_a_thousand_are_asked_about_where_they_leave_the_image():
    with pytest.raises(TaskError, match=r"on an image of 400x200 pixels.*boxes='thousand'"):
        open_dataset(rows_with([[10, 10, 20, 20], [250, 500, 500, 990]]))


def test_boxes_to_a_thousand_are_asked_about_where_all_images_are_larger():
    boxes = [[10, 10, 200, 300], [500, 500, 700, 990], [800, 100, 960, 200]]
    with pytest.raises(TaskError, match="boxes='thousand'"):
        open_dataset(rows_with(boxes, (1600, 1300)))
    assert len(open_dataset(rows_with(boxes, (1600, 1300)), boxes="xyxy")) == 3
    assert len(open_dataset(rows_with(boxes, (1000, 1000)))) == 3
    assert len(open_dataset(rows_with([*boxes, [10, 10, 1200, 900]], (1600, 1300)))) == 4


def test_sides_instead_of_corners_are_asked_about():
    with pytest.raises(TaskError, match=r"has no area.*boxes='xywh' \(--reader boxes=xywh\)"):
        open_dataset(rows_with([[100, 50, 20, 20]]))
    assert open_dataset(rows_with([[100, 50, 20, 20]]), boxes="xywh")[0].targets == ((100, 50, 120, 70),)


def test_bad_rows_do_not_hide_the_form_of_the_others(tmp_path):
    Image.new("RGB", (400, 200)).save(tmp_path / "a.png")
    boxes = [[0.1, 0.1, 0.2, 0.2], [10, 10, 50, 50]]
    lines = [json.dumps({"image": "a.png", "question": "?", "answer": "a", "targets": box}) for box in boxes]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    with pytest.warns(UserWarning, match="left out 1 of 2 rows.*shares of the image"):
        tasks = open_dataset(tmp_path / "rows.jsonl", on_error="skip")
    assert tasks[0].targets == ((10, 10, 50, 50),)


@pytest.mark.parametrize(("frame", "targets"), [("shown", ((100, 0, 200, 400),)), ("stored", ((0, 0, 200, 200),))])
def test_shares_follow_the_orientation_of_the_file(tmp_path, frame, targets):
    image, exif = Image.new("RGB", (400, 200), "grey"), Image.Exif()
    exif[0x0112] = 6  # turned to 200x400 when shown
    image.save(tmp_path / "a.jpg", exif=exif)
    rows = [{"image": str(tmp_path / "a.jpg"), "question": "?", "answer": "a", "targets": [0.5, 0, 1, 1]}]
    if frame == "stored":
        rows[0]["targets"] = [0, 0, 0.5, 1]
    assert open_dataset(rows, boxes="normalized", frame=frame)[0].targets == targets
    # A portrait photograph is stored as landscape: boxes on its lower half are inside.
    assert open_dataset([{**rows[0], "targets": [10, 300, 60, 380]}])[0].targets == ((10, 300, 60, 380),)
