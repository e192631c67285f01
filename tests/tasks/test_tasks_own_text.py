"""Questions, options, answers and boxes of one's own rows in the forms that data sets write them."""

from __future__ import annotations

import json

import pytest
from PIL import Image

from codev_env.errors import TaskError
from codev_env.tasks import load_tasks

IMAGE = Image.new("RGB", (60, 40), (9, 0, 0))


def task(**changes):
    row = {"image": IMAGE, "question": "Which?", "answer": "cat", **changes}
    return load_tasks([row], "train", bench="dataset")[0]


@pytest.mark.parametrize("field", ["answer", "question"])
def test_a_list_of_one_is_its_text(field):
    assert getattr(task(**{field: ["cat"]}), field) == "cat"
    assert getattr(task(**{field: ("cat",)}), field) == "cat"


@pytest.mark.parametrize("field", ["answer", "question"])
@pytest.mark.parametrize("value", [["cat", "feline"], {"text": "cat"}, [], {}, [["cat", "dog"]], [{"text": "cat"}]])
def test_other_lists_and_mappings_are_refused(field, value):
    with pytest.raises(TaskError, match=rf"row 0 of the data: the {field} is .*give one text"):
        task(**{field: value})


def test_a_list_of_one_names_a_choice():
    assert task(choices=["dog", "cat"], answer=["B"]).answer == "cat"
    assert task(choices=["dog", "cat"], answer=[1]).answer == "cat"


@pytest.mark.parametrize("choices", [["A. dog", "B. cat"], ["(A) dog", "(B) cat"], ["A) dog", "B) cat"]])
@pytest.mark.parametrize("answer", ["B", "cat", "B. cat", "(B) cat", 1])
def test_letters_before_all_options_are_taken_off(choices, answer):
    found = task(choices=choices, answer=answer)
    assert (found.choices, found.answer) == (("dog", "cat"), "cat")


@pytest.mark.parametrize(
    "choices", [[["dog"], ["cat"]], [{"text": "dog"}, {"text": "cat"}], {"A": ["dog"], "B": "cat"}]
)
def test_options_that_are_no_texts_are_refused(choices):
    with pytest.raises(TaskError, match="row 0 of the data: the choices are .*expected 2 to 26 different texts"):
        task(choices=choices)


@pytest.mark.parametrize("choices", [["A. dog", "cat"], ["B. dog", "A. cat"], ["A. red", "B. red"], ["A.", "B."]])
def test_other_options_stay(choices):
    assert task(choices=choices, answer=choices[1]).choices == tuple(choices)


@pytest.mark.parametrize(
    "question",
    [
        "Which?\nA. dog\nB. cat",
        "Which?\n(A) dog\n(B) cat\nAnswer with the option's letter.",
        "Which? A. dog B. cat",
        "Which? (A) dog (B) cat",
        "<image>\nWhich?\nOptions:\nA. dog\nB. cat",
    ],
)
@pytest.mark.parametrize("choices", [["dog", "cat"], ["A. dog", "B. cat"]])
def test_options_in_the_question_are_not_asked_twice(question, choices):
    assert task(question=question, choices=choices).question == "Which?"


@pytest.mark.parametrize("question", ["Which?\nA. cat\nB. dog", "Which?\nA. dog\nB. cat\nC. cow", "Is A. Smith a cat?"])
def test_other_lists_in_the_question_stay(question):
    assert task(question=question, choices=["dog", "cat"]).question == question


def test_options_without_a_column_stay_in_the_question():
    assert task(question="Which?\nA. dog\nB. cat").question == "Which?\nA. dog\nB. cat"


@pytest.mark.parametrize("question", ["<image>\nWhich?", "<image><image> Which?", "<image>Which?"])
def test_places_of_images_before_the_question_are_taken_off(question):
    assert task(question=question).question == "Which?"


def test_a_place_inside_the_question_stays_and_a_place_alone_is_no_question():
    assert task(question="Compare <image> with it.").question == "Compare <image> with it."
    with pytest.raises(TaskError, match="row 0 of the data: the question is empty"):
        task(question="<image>\n")


@pytest.mark.parametrize(("column", "text"), [("choices", "dog,cat"), ("targets", "10,10,50,50")])
def test_a_text_instead_of_a_list_names_its_column(column, text):
    with pytest.raises(TaskError, match=rf"row 0 of the data: '{text}' is not JSON .*the column '{column}' as a list"):
        task(**{column: text})


def test_videos_are_read_alike(tmp_path):
    row = {"video": "a.mp4", "question": ["Which?"], "answer": ["cat", "feline"]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    with pytest.raises(TaskError, match=r"line 1: the answer is \['cat', 'feline'\]; give one text"):
        load_tasks(str(tmp_path / "rows.jsonl"), "test", bench="video")
