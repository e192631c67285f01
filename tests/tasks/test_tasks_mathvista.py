"""MathVista: choices as given, types, precision, and the split whose answers are not public."""

from __future__ import annotations

import json

import pytest
from real_data import encoded_image, open_mathvista, own_cache, write_parquet  # noqa: F401

from codev_env.errors import ConfigError, TaskError


def row(pid: str, /, **changes) -> dict:
    metadata = {
        "category": "math-targeted-vqa",
        "context": "geometry diagram",
        "grade": "high school",
        "img_height": 48,
        "img_width": 64,
        "language": "english",
        "skills": ["geometry reasoning"],
        "source": "Geometry3K",
        "split": "testmini",
        "task": "geometry problem solving",
    }
    return {
        "pid": pid,
        "question": "Find x.",
        "image": f"images/{pid}.jpg",
        "decoded_image": {"bytes": encoded_image(int(pid)), "path": None},
        "choices": None,
        "unit": None,
        "precision": None,
        "answer": "1.2",
        "question_type": "free_form",
        "answer_type": "float",
        "metadata": metadata,
        "query": "Hint: … Question: Find x.",
        **changes,
    }


def rows() -> list[dict]:
    return [
        row("1", precision=1.0, unit="cm"),
        row("2", question_type="multi_choice", answer_type="text", choices=["3", "√2", "3"], answer="√2"),
        row("3", answer="[0, 4]", answer_type="list", metadata={**row("3")["metadata"], "task": "textbook qa"}),
        row("4", answer="7", answer_type="integer"),
    ]


@pytest.fixture
def folder(tmp_path):
    write_parquet(tmp_path / "data" / "testmini-00000-of-00001-725687bf7a18d64b.parquet", rows())
    write_parquet(tmp_path / "data" / "test-00000-of-00002-6b81bd7f7e2065e6.parquet", [row("9", answer="")])
    return tmp_path


def test_tasks(folder):
    tasks = open_mathvista(folder)
    assert [task.task_id for task in tasks] == [f"mathvista-{i}" for i in range(1, 5)]
    assert [task.answer for task in tasks] == ["1.2", "√2", "[0, 4]", "7"]
    assert [task.choices for task in tasks] == [(), ("3", "√2", "3"), (), ()]
    keys = ("question_type", "answer_type", "precision", "unit")
    assert [tuple(task.meta[key] for key in keys) for task in tasks] == [
        ("free_form", "float", 1, "cm"),
        ("multi_choice", "text", None, None),
        ("free_form", "list", None, None),
        ("free_form", "integer", None, None),
    ]
    task = tasks[0]
    assert (task.meta["bench"], task.category, task.source) == ("mathvista", "geometry problem solving", "real")
    assert (task.meta["metadata"]["grade"], task.meta["query"]) == ("high school", "Hint: … Question: Find x.")
    assert (task.meta["pid"], task.image.getpixel((30, 30))) == ("1", (1, 0, 7))
    json.dumps(dict(task.meta), allow_nan=False)


def test_questions_name_the_unit_and_the_form_of_the_answer(folder, tmp_path):
    assert [task.question for task in open_mathvista(folder)] == [
        "Find x. (Unit: cm)\nAnswer with a number with 1 decimal.",
        "Find x.",
        "Find x.\nAnswer with a list, such as [1, 2, 3] or [1.2, 1.3].",
        "Find x.\nAnswer with an integer.",
    ]
    choices = {"question_type": "multi_choice", "answer_type": "text", "choices": ["3", "4"], "answer": "3"}
    others = [
        row("1"),
        row("2", answer_type="text", unit="None"),
        row("3", precision=2.0),
        row("4", unit="$", **choices),
    ]
    path = write_parquet(tmp_path / "others" / "testmini.parquet", others)
    assert [task.question for task in open_mathvista(path)] == [
        "Find x.",
        "Find x.",
        "Find x.\nAnswer with a number with 2 decimals.",
        "Find x. (Unit: $)",
    ]


def test_both_names_of_the_split(folder):
    assert len(open_mathvista(folder, "testmini")) == len(open_mathvista(folder, "test")) == 4
    with pytest.raises(TaskError, match="no split 'train', only 'test', 'testmini'"):
        open_mathvista(folder, "train")


def test_answers_that_are_not_public(folder):
    with pytest.raises(TaskError, match="row 0: 'answer' is empty. The answers to the split test are not public"):
        open_mathvista(folder / "data" / "test-00000-of-00002-6b81bd7f7e2065e6.parquet")


def test_subset_is_a_task(folder):
    assert len(open_mathvista(folder, subset="textbook qa")) == 1
    with pytest.raises(ConfigError, match="Did you mean 'textbook qa'"):
        open_mathvista(folder, subset="textbook")


def test_json_form(tmp_path):
    (tmp_path / "images").mkdir()
    data = {}
    for entry in rows():
        (tmp_path / entry["image"]).write_bytes(entry.pop("decoded_image")["bytes"])
        data[entry["pid"]] = entry
    (tmp_path / "testmini.json").write_text(json.dumps(data))
    tasks = open_mathvista(tmp_path)
    assert [task.answer for task in tasks] == ["1.2", "√2", "[0, 4]", "7"]
    assert tasks[2].image.getpixel((30, 30)) == (3, 0, 7)
    (tmp_path / "images" / "4.jpg").unlink()
    with pytest.raises(TaskError, match=r"entry '4': the image .*images/4\.jpg is missing"):
        open_mathvista(tmp_path)[3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"question_type": "multi"}, "row 1: 'question_type' is 'multi'; expected one of multi_choice, free_form"),
        ({"answer_type": "number"}, "row 1: 'answer_type' is 'number'"),
        ({"precision": 1.5}, "row 1: 'precision' is 1.5; expected a whole number"),
        ({"question": ""}, "row 1: 'question' is empty"),
        ({"pid": "1"}, "row 1: the id 'mathvista-1' occurs twice, first in .*row 0"),
        ({"question_type": "multi_choice", "choices": ["1", "2"]}, "row 1: 'answer' is '1.2', but the choices are '1'"),
        ({"question_type": "multi_choice", "choices": None}, "row 1: 'choices' is None; expected 2 to 26 texts"),
    ],
)
def test_bad_rows(tmp_path, change, message):
    path = write_parquet(tmp_path / "testmini.parquet", [row("1", precision=0.0), row("2", **change)])
    with pytest.raises(TaskError, match=message):
        open_mathvista(path)
    with pytest.warns(UserWarning, match="left out 1 of 2"):
        assert len(open_mathvista(path, on_error="skip")) == 1


@pytest.mark.parametrize("choices", [5, "12"])
def test_choices_that_are_no_list_are_refused(tmp_path, choices):
    bad = {**row("1"), "question_type": "multi_choice", "choices": choices, "answer": "1"}
    (tmp_path / "testmini.json").write_text(json.dumps({"1": {**bad, "decoded_image": None}}))
    with pytest.raises(TaskError, match="'choices' is .*; expected 2 to 26 texts"):
        open_mathvista(tmp_path)


def test_nothing_there(tmp_path):
    with pytest.raises(TaskError, match="none of the files that are expected here: testmini"):
        open_mathvista(tmp_path)
    write_parquet(tmp_path / "test.parquet", rows())
    with pytest.raises(TaskError, match="has no file of testmini"):
        open_mathvista(tmp_path)
