"""V*Bench from disk: both forms, and errors for invalid data."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from codev_env.errors import CodevError, ConfigError, TaskError
from codev_env.scoring import is_correct
from codev_env.tasks import VStarTaskSet, load_tasks
from codev_env.types import TaskSet

ATTRIBUTES = "direct_attributes"


def test_folder_form(vstar):
    tasks = load_tasks(str(vstar), "test")
    assert isinstance(tasks, TaskSet)
    assert (len(tasks), tasks.source) == (4, "real")
    task = tasks[3]
    assert task.task_id == "relative_position-sa_9"
    assert (task.category, task.source) == ("relative_position", "real")
    assert task.question == "Is the mug on the left or right side of the dog?"
    assert task.answer == "The mug is on the left side of the dog."
    assert sorted(task.choices) == [
        "The mug is on the left side of the dog.",
        "The mug is on the right side of the dog.",
    ]
    assert task.targets == ((0, 0, 50, 60), (200, 100, 221, 131))
    assert (task.image.mode, task.image.size) == ("RGB", (320, 240))
    assert [tasks.index_of(tasks[i].task_id) for i in range(4)] == [0, 1, 2, 3]
    json.dumps(dict(task.meta))


def test_order_of_options_is_shuffled_stable_and_seeded(tmp_path, add_row):
    for number in range(40):
        add_row(tmp_path, ATTRIBUTES, f"sa_{number}", size=(64, 64))
    tasks = VStarTaskSet(tmp_path)
    positions = [tasks[i].choices.index(tasks[i].answer) for i in range(40)]
    assert set(positions) == {0, 1, 2, 3}
    again, other = VStarTaskSet(tmp_path), VStarTaskSet(tmp_path, seed=1)
    assert [again[i].choices for i in range(40)] == [tasks[i].choices for i in range(40)]
    assert [other[i].choices for i in range(40)] != [tasks[i].choices for i in range(40)]
    before = tasks[tasks.index_of(f"{ATTRIBUTES}-sa_7")].choices
    (tmp_path / ATTRIBUTES / "sa_1.json").unlink()
    (tmp_path / ATTRIBUTES / "sa_1.jpg").unlink()
    fewer = VStarTaskSet(tmp_path)
    assert fewer[fewer.index_of(f"{ATTRIBUTES}-sa_7")].choices == before


def question(stem: str, label: str = "B", **fields) -> str:
    text = (
        "What is the color of the mug?\n(A) The mug is blue.\n(B) The mug is red.\n(C) The mug is green.\n"
        "(D) The mug is white.\nAnswer with the option's letter from the given choices directly."
    )
    row = {
        "text": text,
        "label": label,
        "category": ATTRIBUTES,
        "question_id": "0",
        "image": f"{ATTRIBUTES}/{stem}.jpg",
    }
    return json.dumps({**row, **fields}) + "\n"


def test_hugging_face_form(vstar):
    (vstar / ATTRIBUTES / "sa_2.json").unlink()
    (vstar / "test_questions.jsonl").write_text(question("sa_1") + "\n" + question("sa_2", "D"))
    tasks = load_tasks(str(vstar), "test")
    assert len(tasks) == 2
    with_boxes, without = tasks[0], tasks[1]
    assert with_boxes.question == "What is the color of the mug?"
    assert with_boxes.choices == ("The mug is blue.", "The mug is red.", "The mug is green.", "The mug is white.")
    assert (with_boxes.answer, without.answer) == ("The mug is red.", "The mug is white.")
    assert is_correct(with_boxes, "B") and is_correct(without, "(D)")
    assert with_boxes.targets == ((10, 20, 40, 60),)
    assert without.targets == ()


def test_hugging_face_form_with_all_on_one_line(vstar):
    row = question("sa_1", "A", text="What is it? (A) left of (the) dog (B) right Answer with the option's letter.")
    (vstar / "test_questions.jsonl").write_text(row)
    task = load_tasks(str(vstar), "test")[0]
    assert (task.question, task.choices, task.answer) == (
        "What is it?",
        ("left of (the) dog", "right"),
        "left of (the) dog",
    )


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\x85"])
def test_hugging_face_form_with_separators_of_lines_inside_a_text(vstar, character):
    text = f"What{character}is it? (A) red (B) blue Answer with the option's letter."
    row = json.dumps(json.loads(question("sa_1", "A", text=text)), ensure_ascii=False)
    (vstar / "test_questions.jsonl").write_bytes(f"{row}\r\n{row.replace('sa_1', 'sa_2')}".encode())
    tasks = load_tasks(str(vstar), "test")
    assert [task.question for task in tasks] == [f"What{character}is it?"] * 2


def test_subset_is_a_category(vstar):
    assert len(load_tasks(str(vstar), "test", subset=ATTRIBUTES)) == 3
    with pytest.raises(ConfigError, match="Did you mean 'relative_position'"):
        load_tasks(str(vstar), "test", subset="relative_positions")


def test_images_are_decoded_only_when_asked_for(vstar):
    path = vstar / ATTRIBUTES / "sa_2.jpg"
    path.write_bytes(path.read_bytes()[:2000])
    tasks = VStarTaskSet(vstar)
    assert tasks[0].image.size == (320, 240)
    with pytest.raises(TaskError, match=r"sa_2\.jpg.*broken.*[Dd]ownload"):
        tasks[1]


def test_a_repaired_image_is_read_again(vstar):
    path = vstar / ATTRIBUTES / "sa_1.jpg"
    tasks = VStarTaskSet(vstar)
    assert np.asarray(tasks[0].image).std() > 1
    Image.new("RGB", (320, 240), "white").save(path)
    assert np.asarray(tasks[0].image).min() > 250


def test_out_of_range(vstar):
    tasks = VStarTaskSet(vstar)
    with pytest.raises(IndexError):
        tasks[4]
    with pytest.raises(TaskError, match="no task 'nope'"):
        tasks.index_of("nope")
    assert len([task.task_id for task in tasks]) == 4


def test_hidden_and_other_files_do_not_matter(vstar):
    (vstar / ATTRIBUTES / ".DS_Store").write_bytes(b"\0")
    (vstar / ATTRIBUTES / "._sa_1.jpg").write_bytes(b"\0")
    (vstar / "README.md").write_text("hello")
    assert len(VStarTaskSet(vstar)) == 4


# ---- bad data


@pytest.mark.parametrize("split", ["test", "train"])
def test_no_such_folder(tmp_path, split):
    with pytest.raises(TaskError, match=r"nothing_here: no such file or folder.*direct_attributes"):
        load_tasks(str(tmp_path / "nothing_here"), split)


def test_a_file_of_another_kind(tmp_path):
    (tmp_path / "README.md").write_text("hello")
    with pytest.raises(TaskError, match=r"README.md: is no Parquet or TSV file.*direct_attributes"):
        load_tasks(str(tmp_path / "README.md"), "test")


def test_empty_folder(tmp_path):
    with pytest.raises(TaskError, match="no questions.*direct_attributes/"):
        load_tasks(str(tmp_path), "test")


@pytest.mark.parametrize("split", ["train", "val"])
def test_only_the_test_split_exists(vstar, split):
    with pytest.raises(TaskError, match=f"no split '{split}', only 'test'"):
        load_tasks(str(vstar), split)


def test_missing_image(vstar):
    (vstar / ATTRIBUTES / "sa_2.jpg").unlink()
    with pytest.raises(TaskError, match=r"sa_2\.json: there is no image.*Download"):
        VStarTaskSet(vstar)


def test_missing_json(vstar):
    (vstar / ATTRIBUTES / "sa_2.json").unlink()
    with pytest.raises(TaskError, match=r"sa_2\.jpg: there is no JSON file"):
        VStarTaskSet(vstar)


def test_two_images_of_one_name(vstar):
    Image.new("RGB", (9, 9)).save(vstar / ATTRIBUTES / "sa_2.png")
    with pytest.raises(TaskError, match="sa_2.* has the same name"):
        VStarTaskSet(vstar)


def test_not_an_image(vstar):
    (vstar / ATTRIBUTES / "sa_2.jpg").write_text("<html>not found</html>")
    with pytest.raises(TaskError, match=r"sa_2\.jpg: is not an image"):
        VStarTaskSet(vstar)


@pytest.mark.parametrize("text", ["", "{", "nan,", "[" * 100_000, "\ufeff{'a': 1}"])
def test_not_json(vstar, text):
    (vstar / ATTRIBUTES / "sa_2.json").write_text(text, encoding="utf-8")
    with pytest.raises(TaskError, match=r"sa_2\.json: is not JSON"):
        VStarTaskSet(vstar)


def test_not_utf8(vstar):
    (vstar / ATTRIBUTES / "sa_2.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(TaskError, match=r"sa_2\.json: cannot be read as UTF-8"):
        VStarTaskSet(vstar)


def test_json_that_is_no_object(vstar):
    (vstar / ATTRIBUTES / "sa_2.json").write_text("[1]")
    with pytest.raises(TaskError, match=r"sa_2\.json: holds a list"):
        VStarTaskSet(vstar)


@pytest.mark.parametrize("key", ["bbox", "question", "options"])
def test_field_missing(vstar, key):
    path = vstar / ATTRIBUTES / "sa_2.json"
    row = json.loads(path.read_text())
    del row[key]
    path.write_text(json.dumps(row))
    with pytest.raises(TaskError, match=rf"sa_2\.json: has no '{key}'"):
        VStarTaskSet(vstar)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("bbox", []),
        ("bbox", None),
        ("bbox", [1, 2, 3, 4]),
        ("bbox", [[1, 2, 3]]),
        ("bbox", [["1", 2, 3, 4]]),
        ("bbox", [[1, 2, 0, 4]]),
        ("bbox", [[1, 2, 3, -4]]),
        ("bbox", [[1, 2, float("nan"), 4]]),
        ("bbox", [[1, 2, True, 4]]),
        ("question", ""),
        ("question", 3),
        ("options", []),
        ("options", ["only one"]),
        ("options", ["same", "same"]),
        ("options", "red"),
        ("options", ["red", 3]),
    ],
)
def test_field_of_the_wrong_kind(vstar, key, value, add_row):
    add_row(vstar, ATTRIBUTES, "sa_2", **{key: value})
    with pytest.raises(TaskError, match=rf"sa_2\.json: '{key}'.*expected"):
        VStarTaskSet(vstar)


@pytest.mark.parametrize(
    "box", [[300, 10, 50, 50], [10, 200, 50, 50], [-5, 0, 20, 20], [0, -5, 20, 20], [900, 900, 9, 9]]
)
def test_box_outside_the_image(vstar, box, add_row):
    add_row(vstar, ATTRIBUTES, "sa_2", bbox=[[1, 1, 5, 5], box])
    with pytest.raises(TaskError, match=r"sa_2\.json: the box .* outside the image, which is 320x240"):
        VStarTaskSet(vstar)


def test_box_that_stands_out_by_rounding_is_clipped(vstar, add_row):
    add_row(vstar, ATTRIBUTES, "sa_2", bbox=[[-0.4, 200.0, 320.9, 40.6]])
    assert VStarTaskSet(vstar)[1].targets == ((0, 200, 320, 240),)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1: is not JSON"),
        ("{}\n", "line 1: has no 'text'"),
        (question("sa_1", label="E"), "line 1: 'label' is 'E'"),
        (question("sa_1", category="colors"), "line 1: 'category' is 'colors'"),
        (question("sa_77"), r"line 1: the image .*sa_77\.jpg is missing"),
        (question("sa_1", text="What is it?"), "has the options none"),
        (question("sa_1", text="What is it?\n(A)\n(B) red"), "an option without text"),
        (question("sa_1") * 2, "line 2: .* occurs twice"),
        ("\n", "no questions"),
    ],
)
def test_bad_question_file(vstar, line, message):
    (vstar / "test_questions.jsonl").write_text(line)
    with pytest.raises(TaskError, match=message):
        VStarTaskSet(vstar)


def test_a_name_that_is_too_long_for_a_file_is_a_missing_image(vstar):
    (vstar / "test_questions.jsonl").write_text(question("x" * 3000))
    with pytest.raises(TaskError, match=r"line 1: the image .* is missing"):
        VStarTaskSet(vstar)


def test_errors_are_the_projects_own(tmp_path):
    with pytest.raises(CodevError):
        load_tasks(str(tmp_path / "x"), "test")
