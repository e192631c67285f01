"""BLINK as its authors publish it: a folder for each subtask, one to four images, options as a list."""

from __future__ import annotations

import pytest
from real_data import encoded_image, own_cache, write_parquet  # noqa: F401

from codev_env.benches import BENCHES
from codev_env.errors import TaskError
from codev_env.scoring import aggregate, get_scorer
from codev_env.tasks import open_bench

CHOICES = ["the second image", "the third image"]


def row(number: int, /, **changes) -> dict:
    images = {f"image_{place}": {"bytes": encoded_image(), "path": None} for place in range(1, 4)}
    prompt = "The first image is the reference.<image> Which one is like it?\n(A) the second image\n(B) the third image"
    found = {
        "idx": f"val_Art_Style_{number}",
        "question": "Which one?",
        "sub_task": "Art_Style",
        **images,
        "image_4": None,
        "choices": CHOICES,
        "answer": "(B)",
        "prompt": prompt,
        "explanation": "because",
    }
    return found | changes


@pytest.fixture
def folder(tmp_path):
    write_parquet(tmp_path / "Art_Style" / "val-00000-of-00001.parquet", [row(1), row(2, answer="(A)")])
    depth = {"idx": "val_Relative_Depth_1", "sub_task": "Relative_Depth", "prompt": "Which is closer?"}
    one = row(1, image_2=None, image_3=None, choices=["A is closer", "B is closer"], **depth)
    write_parquet(tmp_path / "Relative_Depth" / "val-00000-of-00001.parquet", [one])
    write_parquet(tmp_path / "Art_Style" / "test-00000-of-00001.parquet", [row(3, answer="hidden")])
    return tmp_path


@pytest.mark.parametrize("split", ["val", "test"])
def test_all_subtasks_are_one_benchmark(folder, split):
    tasks = open_bench("blink", folder, split)
    assert [task.task_id for task in tasks] == [
        "blink-val_Art_Style_1",
        "blink-val_Art_Style_2",
        "blink-val_Relative_Depth_1",
    ]
    first, second, third = tasks
    assert (len(first.images), len(third.images)) == (3, 1)
    assert first.question == "The first image is the reference. Which one is like it?"
    assert (first.choices, first.answer, second.answer) == (tuple(CHOICES), CHOICES[1], CHOICES[0])
    assert (third.question, third.category, third.meta["label"]) == ("Which one?", "Relative_Depth", "B")
    assert get_scorer("official")(first, "(B)").correct and "explanation" not in first.meta
    assert aggregate("blink", zip(tasks, (True, False, True), strict=True))["overall"] == 0.75


def test_a_subtask_alone_and_the_folder_that_is_looked_for(folder, monkeypatch, tmp_path_factory):
    assert len(open_bench("blink", folder, "val", subset="Relative_Depth")) == 1
    root = tmp_path_factory.mktemp("data")
    monkeypatch.setenv("CODEV_DATA", str(root))
    assert BENCHES["blink"].find() is None
    folder.rename(root / "BLINK")
    assert BENCHES["blink"].find() == root / "BLINK"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"answer": "hidden"}, "options are A, B"),
        ({"choices": ["one"]}, "'choices' is"),
        ({"idx": ""}, "'idx' is empty"),
    ],
)
def test_bad_rows_are_named(tmp_path, changes, says):
    write_parquet(tmp_path / "Counting" / "val-00000-of-00001.parquet", [row(1), row(2, **changes)])
    with pytest.raises(TaskError, match=f"row 1: .*{says}"):
        open_bench("blink", tmp_path, "val")
