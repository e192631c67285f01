"""V*Bench as a Parquet file with the images in it."""

from __future__ import annotations

import pytest
from real_data import encoded_image, own_cache, write_parquet  # noqa: F401

from codev_env.errors import TaskError
from codev_env.tasks import load_tasks
from codev_env.tasks.readers.vstar import open_vstar


def row(number: int, **changes):
    question = "What is the material of the glove?\n(A) rubber\n(B) cotton\n(C) kevlar\n(D) leather"
    if number % 2:
        question = "Is the mug on the left or right side of the dog?\n(A) left\n(B) right"
    fixed = {
        "image": {"bytes": encoded_image(number), "path": f"sa_{number}.jpg"},
        "text": question + "\nAnswer with the option's letter from the given choices directly.",
        "category": ("direct_attributes", "relative_position")[number % 2],
        "question_id": str(number),
        "label": "AB"[number % 2],
    }
    return fixed | changes


@pytest.fixture
def folder(tmp_path):
    write_parquet(tmp_path / "data" / "test-00000-of-00001.parquet", [row(i) for i in range(4)])
    return tmp_path


def test_rows_become_tasks(folder):
    tasks = load_tasks(str(folder), "test")
    assert (len(tasks), tasks.name, tasks.source) == (4, "vstar", "real")
    task = tasks[1]
    assert (task.task_id, task.category, task.targets) == ("relative_position-1", "relative_position", ())
    assert (task.question, task.choices, task.answer) == (
        "Is the mug on the left or right side of the dog?",
        ("left", "right"),
        "right",
    )
    assert task.image.getpixel((20, 20)) == (1, 0, 7)
    assert (task.meta["bench"], task.meta["question_type"], task.meta["label"]) == ("vstar", "multi_choice", "B")
    assert tasks.index_of("direct_attributes-2") == 2


def test_a_file_a_category_and_a_folder(folder):
    file = folder / "data" / "test-00000-of-00001.parquet"
    assert len(open_vstar(file)) == len(open_vstar(file.parent)) == 4
    assert {task.category for task in open_vstar(folder, subset="direct_attributes")} == {"direct_attributes"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": "E"}, "row 2: 'label' is 'E', but the options are A, B, C, D"),
        ({"text": "What is it?"}, "row 2: 'text' is 'What is it.'; expected a question and options"),
        ({"category": "colors"}, "row 2: 'category' is 'colors'; expected one of"),
        ({"question_id": ""}, "row 2: 'question_id' is empty"),
        ({"question_id": "0"}, "row 2: the id 'direct_attributes-0' occurs twice"),
    ],
)
def test_bad_rows(tmp_path, change, message):
    path = write_parquet(tmp_path / "v.parquet", [row(i, **(change if i == 2 else {})) for i in range(4)])
    with pytest.raises(TaskError, match=message):
        open_vstar(path)
    with pytest.warns(UserWarning, match="left out 1 of 4"):
        assert len(open_vstar(path, on_error="skip")) == 3


def test_other_columns_are_told(tmp_path):
    path = write_parquet(tmp_path / "v.parquet", [{"image": row(0)["image"], "question": "?"}])
    with pytest.raises(TaskError, match="has no column 'text'"):
        open_vstar(path)
