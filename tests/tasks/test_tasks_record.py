"""Rows with boxes on several images, and the column that only a pushed data set has; a stranger may have written it."""

from __future__ import annotations

import json

import pytest
from PIL import Image

from codev_env.errors import TaskError
from codev_env.geometry import image_of
from codev_env.provenance.codes import PixelCode
from codev_env.tasks import load_tasks
from codev_env.tasks.readers.rowset import MOST_IMAGES

PAIR = [Image.new("RGB", size) for size in ((40, 30), (200, 100))]


def rows(**fields):
    return [{"image": PAIR, "question": "Which?", "answer": "2", **fields}]


def opened(**fields):
    return load_tasks(rows(**fields), "test", bench="dataset")


@pytest.mark.parametrize("boxes", [None, "xyxy", "xywh", "normalized"])
def test_a_fifth_number_names_the_image_of_a_box(boxes):
    given = [[0.1, 0.5, 0.5, 1, 1]] if boxes == "normalized" else [[20, 50, 100, 100 - 50 * (boxes == "xywh"), 1]]
    if boxes == "xywh":
        given[0][2] = 80
    (task,) = load_tasks(rows(targets=given), "test", bench="dataset", reader={"boxes": boxes})
    assert [(image_of(box), tuple(box)) for box in task.targets] == [(1, (20, 50, 100, 100))]


def test_boxes_on_several_images_are_no_reason_to_ask_for_their_form():
    (task,) = opened(targets=[[1, 2, 30, 20], [150, 60, 199, 99, 1], [0, 0, 0, 0, 1]])
    assert [image_of(box) for box in task.targets] == [0, 1]


@pytest.mark.parametrize(
    ("box", "says"),
    [
        ([1, 2, 3, 4, 2], "image 2"),
        ([1, 2, 3, 4, 0.5], "fifth number"),
        ([1, 2, 3, 4, -1], "fifth number"),
        ([1, 2, 3, 4, "1"], "fifth number"),
        ([150, 60, 199, 99, 0], "outside the image"),
        ([1, 2, 3, 4, 0, 0], "4 numbers|expected"),
    ],
)
def test_bad_image_numbers_are_refused(box, says):
    with pytest.raises(TaskError, match=says):
        load_tasks(rows(targets=[box]), "test", bench="dataset", reader={"boxes": "xyxy"})[0]


def test_a_task_has_no_more_images_than_provenance_distinguishes():
    assert len(PixelCode((PAIR[0].size,) * MOST_IMAGES).images) == MOST_IMAGES
    several = [{**rows()[0], "image": PAIR[:1] * count} for count in (MOST_IMAGES, MOST_IMAGES + 1)]
    tasks = load_tasks(several, "test", bench="dataset")
    assert len(tasks[0].images) == MOST_IMAGES
    with pytest.raises(TaskError, match="row 1 of the data: the task has 127 images, but at most 126"):
        tasks[1]


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({"shown": 0}, "shown"),
        ({"shown": 3}, "2 images"),
        ({"shown": True}, "shown"),
        ({"shown": "1"}, "shown"),
        ({"times": [0.0]}, "2 images"),
        ({"times": [1.0, 0.5]}, "rising"),
        ({"times": [0.0, float("nan")]}, "rising"),
        ({"times": "ab"}, "rising"),
        ({"source": "dream"}, "source"),
        ({"source": ["real"]}, "source"),
        ({"meta": []}, "meta"),
        ({"images": []}, "codev_task"),
        ([], "codev_task"),
        ("{" * 9999, "JSON"),
    ],
)
def test_a_record_that_push_does_not_write_is_refused(record, says):
    cell = record if isinstance(record, str) else json.dumps(record)
    tasks = opened(codev_task=cell)
    with pytest.raises(TaskError, match=says):
        tasks[0]


def test_a_record_may_be_empty_and_its_numbers_are_finite():
    assert opened(codev_task="")[0].meta["bench"] == "dataset"
    (task,) = opened(codev_task='{"meta": {"a": NaN, "b": [Infinity]}, "source": "generated", "shown": 1}')
    assert task.meta == {"a": None, "b": [None]} and (task.source, task.shown) == ("generated", 1)


def test_a_bad_first_record_does_not_decide_the_source():
    listed = [{**rows()[0], "codev_task": text} for text in ("[1]", '{"source": "generated"}')]
    assert load_tasks(listed, "test", bench="dataset").source == "generated"
