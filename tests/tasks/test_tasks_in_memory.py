"""Rows in memory as data: lists of dicts, data frames, data sets of Hugging Face."""

from __future__ import annotations

import pickle

import gymnasium as gym
import numpy as np
import pytest
from PIL import Image

import codev_env  # noqa: F401 - registers the environments
from codev_env.errors import ConfigError, TaskError
from codev_env.tasks import load_tasks


def rows(colours=(10, 20)):
    return [
        {
            "image": Image.new("RGB", (60, 40), (colour, 0, 0)),
            "question": "Which?",
            "answer": "a",
            "targets": [5, 5, 9, 9],
        }
        for colour in colours
    ]


def red(task):
    return task.image.getpixel((3, 3))[0]


def frame(kind):
    if kind == "list":
        return rows()
    if kind == "frame":
        return pytest.importorskip("pandas").DataFrame(rows())
    datasets = pytest.importorskip("datasets")
    listed = datasets.Dataset.from_list(rows())
    return listed if kind == "dataset" else datasets.DatasetDict({"training": listed})


@pytest.mark.parametrize("kind", ["list", "frame", "dataset", "dataset dict"])
def test_an_environment_over_rows_in_memory(kind):
    env = gym.make("CodeV-Dataset-v0", data=frame(kind), split="train")
    observation, info = env.reset(options={"index": 1})
    assert (observation["images"][0][0, 0, 0], info["source"]) == (20, "real")
    assert env.unwrapped.task.targets == ((5, 5, 9, 9),)
    copied = pickle.loads(pickle.dumps(env.unwrapped))
    assert np.array_equal(copied.reset(options={"index": 1})[0]["images"][0], observation["images"][0])


def test_lists_that_look_alike_are_not_confused():
    first = load_tasks(rows((10,)), "train", bench="dataset")
    assert red(first[0]) == 10
    assert red(load_tasks(rows((30,)), "train", bench="dataset")[0]) == 30


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGBA", "CMYK", "I;16"])
def test_images_of_any_mode(mode):
    one = rows()[:1]
    one[0]["image"] = Image.new(mode, (60, 40))
    assert load_tasks(one, "train", bench="dataset")[0].image.mode == "RGB"


def test_missing_values_of_a_frame_are_none():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame([{**rows()[0], "category": "colour"}, {**rows()[1], "targets": None}])
    tasks = load_tasks(table, "train", bench="dataset")
    assert [task.category for task in tasks] == ["colour", ""]
    assert tasks[1].targets == ()


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        ([], TaskError, "no rows"),
        ([1], TaskError, "row 0 of the data is 1; expected a mapping"),
        (7, ConfigError, "data is a int; give a path, a list of dicts"),
        ([{"question": "?"}], TaskError, "has no column for 'image'"),
        ([{**rows()[0], "question": ""}], TaskError, "row 0 of the data: the question is empty"),
    ],
)
def test_what_is_no_data_is_refused(data, error, words):
    with pytest.raises(error, match=words):
        gym.make("CodeV-Dataset-v0", data=data)


def test_benchmarks_read_files():
    with pytest.raises(ConfigError, match="bench='dataset'"):
        load_tasks(rows(), "test", bench="vstar")
    with pytest.raises(ConfigError, match="CodeV-Dataset-v0"):
        gym.make("CodeV-VStar-v0", data=rows())


def test_own_data_has_no_default():
    with pytest.raises(ConfigError, match=r"CodeV-Dataset-v0 is for data of your own.*data='rows.jsonl'"):
        gym.make("CodeV-Dataset-v0")
    assert gym.make("CodeV-Dataset-v0", data="synthetic")
