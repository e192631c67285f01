"""Rows in memory as data: lists of dicts, data frames, data sets of Hugging Face."""

from __future__ import annotations

import io
import pickle
import sys
import types

import gymnasium as gym
import numpy as np
import pytest
from PIL import Image
from real_data import encoded, encoded_image, own_cache  # noqa: F401

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


def test_a_data_frame_of_polars(monkeypatch):
    class DataFrame:  # as that of polars, which this machine need not have
        def to_dicts(self):
            return rows()

    monkeypatch.setitem(sys.modules, "polars", types.SimpleNamespace(DataFrame=DataFrame))
    assert red(load_tasks(DataFrame(), "train", bench="dataset")[1]) == 20


def test_lists_that_look_alike_are_not_confused():
    first = load_tasks(rows((10,)), "train", bench="dataset")
    assert red(first[0]) == 10
    assert red(load_tasks(rows((30,)), "train", bench="dataset")[0]) == 30


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGBA", "CMYK", "I;16"])
def test_images_of_any_mode(mode):
    one = rows()[:1]
    one[0]["image"] = Image.new(mode, (60, 40))
    assert load_tasks(one, "train", bench="dataset")[0].image.mode == "RGB"


GREY = Image.new("RGB", (60, 40), (200, 200, 200))


@pytest.mark.parametrize(
    "image",
    [
        Image.new("I", (60, 40), 200 * 257),
        Image.new("I;16B", (60, 40), 200 * 257),
        GREY.convert("HSV"),
        GREY.convert("YCbCr"),
        GREY.convert("RGBA").convert("RGBa"),
        GREY.convert("LA").convert("La"),
        GREY.quantize(2).convert("PA"),
        Image.new("LAB", (60, 40)),
    ],
    ids=lambda image: image.mode,
)
def test_images_of_modes_that_png_lacks(image):
    shown = load_tasks([{**rows()[0], "image": image}], "train", bench="dataset")[0].image
    assert shown.mode == "RGB"
    assert image.mode == "LAB" or shown.getpixel((3, 3)) == (200, 200, 200)


def test_an_image_that_pillow_cannot_encode_is_a_bad_task():
    cut = Image.open(io.BytesIO(encoded_image(1)[:100]))
    tasks = load_tasks([{**rows()[0], "image": cut}], "train", bench="dataset", on_error="skip")
    with pytest.raises(TaskError, match="row 0 of the data: the image .* cannot be encoded .* Convert it to RGB"):
        tasks[0]


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_images_are_turned_upright_once(kind, orientation, loaded):
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = Image.new("RGB", (60, 40))
    stored.paste("red", (0, 0, 30, 20))
    data = encoded(stored, kind, exif=exif, **({"lossless": True} if kind == "WEBP" else {}))
    image = Image.open(io.BytesIO(data))
    if loaded:
        image.load()

    def shown(image):
        return load_tasks([{**rows()[0], "image": image}], "train", bench="dataset")[0].image

    assert shown(image).size == ((40, 60) if orientation >= 5 else (60, 40))
    assert shown(image) == shown(data) == shown(shown(image))
    assert shown(data).getexif().get(0x0112, 1) == 1


def test_missing_values_of_a_frame_are_none():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame([{**rows()[0], "category": "colour"}, {**rows()[1], "targets": None}])
    tasks = load_tasks(table, "train", bench="dataset")
    assert [task.category for task in tasks] == ["colour", ""]
    assert tasks[1].targets == ()


def test_a_frame_read_from_parquet_is_what_the_file_is(tmp_path):
    pandas, path = pytest.importorskip("pandas"), tmp_path / "rows.parquet"
    pytest.importorskip("pyarrow")
    row = {**rows()[0], "image": encoded_image(1), "choices": ["a", "b"], "note": {"tags": ["x"]}, "times": [0.5, 1.0]}
    several = [row | {"targets": [[5.0, 5.0, 9.0, 9.0], [1.0, 2.0, 3.0, 4.0]]}, row | {"targets": None, "note": None}]
    pandas.DataFrame(several).to_parquet(path)
    table = pandas.read_parquet(path)
    assert isinstance(table["targets"][0][0], np.ndarray)
    tasks, same = (load_tasks(data, "train", bench="dataset") for data in (table, str(path)))
    assert list(tasks) == list(same)
    assert (tasks[0].choices, tasks[0].targets) == (("a", "b"), ((5, 5, 9, 9), (1, 2, 3, 4)))
    assert (tasks[0].meta["note"], tasks[0].meta["times"], tasks[1].targets) == ({"tags": ["x"]}, [0.5, 1.0], ())


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("targets", np.array([[5, 5, 9, 9]]), ((5, 5, 9, 9),)),
        ("targets", [tuple(np.float32([5, 5, 9, 9]))], ((5, 5, 9, 9),)),
        ("targets", {"boxes": [np.int64([5, 5, 9, 9])]}, ((5, 5, 9, 9),)),
        ("targets", float("nan"), ()),
        ("choices", np.array(["a", "b"]), ("a", "b")),
        ("choices", np.array(["a", "b"], dtype=object), ("a", "b")),
        ("choices", float("nan"), ()),
        ("answer", np.int64(1), "b"),
        ("answer", np.str_("a"), "a"),
        ("category", np.float64("nan"), ""),
        ("transform", np.array(["rotate_90"]), ("rotate_90",)),
    ],
)
def test_arrays_and_numbers_of_numpy_are_lists_and_numbers(field, value, expected):
    row = {**rows()[0], "choices": ["a", "b"], field: value}
    columns = {"targets": "targets.boxes"} if isinstance(value, dict) else {}
    task = load_tasks([row], "train", bench="dataset", columns=columns)[0]
    assert getattr(task, field) == expected


@pytest.mark.parametrize("name", ["NA", "NaT"])
def test_missing_values_of_pandas_are_none_in_lists_of_rows_too(name):
    missing = getattr(pytest.importorskip("pandas"), name)
    task = load_tasks(
        [{**rows()[0], "targets": missing, "choices": missing, "note": [missing]}], "train", bench="dataset"
    )[0]
    assert (task.targets, task.choices, task.meta["note"]) == ((), (), [None])


def test_an_array_of_pixels_is_refused_as_what_it_is():
    with pytest.raises(TaskError, match=r"the image is array\(.*expected a path, bytes, base64 text, or a PIL image"):
        load_tasks([{**rows()[0], "image": np.zeros((40, 60, 3), np.uint8)}], "train", bench="dataset")[0]


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        ([], TaskError, "no rows"),
        ([1], TaskError, "row 0 of the data is 1; expected a mapping"),
        (7, ConfigError, "data is a int; give a path, a list of dicts"),
        ([{"question": "?"}], TaskError, "has no column for 'image'"),
        ([{"question": "?", "answer": "a", "video": "a.mp4"}], TaskError, "image.*--bench video"),
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


def saved_set(tmp_path):
    """A data set on disk, whose selections have the same files, with a broken image in row 1."""
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {
            "image": datasets.Image(decode=False),
            "question": datasets.Value("string"),
            "answer": datasets.Value("string"),
        }
    )
    broken = {"bytes": encoded_image(1)[:60], "path": None}
    listed = [
        {"image": broken if n == 1 else {"bytes": encoded_image(n), "path": None}, "question": f"{n}?", "answer": "a"}
        for n in range(10)
    ]
    datasets.Dataset.from_list(listed, features=features).save_to_disk(str(tmp_path / "saved"))
    return datasets.load_from_disk(str(tmp_path / "saved"))


def test_selections_of_one_data_set_are_not_confused(tmp_path):
    whole = saved_set(tmp_path)
    halves = whole.train_test_split(test_size=0.5, seed=0)
    orders = [whole.select(range(2, 5)), whole.select(range(7, 10)), whole.select([9, 3, 7]), *halves.values()]
    sets = [load_tasks(order, "train", bench="dataset") for order in orders]
    for order, tasks in zip(orders, sets, strict=True):
        assert [tasks[n].question for n in range(len(tasks)) if order[n]["question"] != "1?"] == [
            question for question in order["question"] if question != "1?"
        ]


def test_findings_of_one_selection_are_none_of_another(tmp_path, own_cache):  # noqa: F811
    whole = saved_set(tmp_path)
    first, last = whole.select(range(5)), whole.select(range(5, 10))
    assert [bad.row for bad in load_tasks(first, "train", bench="dataset").validate().bad] == [1]
    assert len(load_tasks(last, "train", bench="dataset", on_error="skip")) == 5
    with pytest.warns(UserWarning, match="left out 1 of 5 rows"):
        assert len(load_tasks(first, "train", bench="dataset", on_error="skip")) == 4
