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


COLOURS = {"A": "red", "B": None, "C": "blue", "D": "green"}


@pytest.mark.parametrize(
    ("choices", "answer", "expected"),
    [
        (COLOURS, "C", "blue"),
        (COLOURS, "(d)", "green"),
        (COLOURS, 2, "blue"),
        ({"A": "", "B": "red", "C": "blue"}, "B", "red"),
        ({"b": "blue", "a": "red"}, "b", "blue"),
        ({"(A)": "red", "(B)": "blue"}, "B", "blue"),
        ({"1": "red", "2": "blue", "3": "green"}, "2", "blue"),
        ({"1": "red", "2": "blue", "3": "green"}, 2, "blue"),
        ({"1": "red", "2": "blue", "3": "green"}, 2.0, "blue"),
        ({"1": "red", "2": "blue", "3": "green"}, "B", "blue"),
        ({"01": "red", "02": "", "03": "green"}, "3", "green"),
        ({"1": "10 cm", "2": "20 cm"}, "2", "20 cm"),
        ({str(n): f"c{n}x" for n in range(12)}, 2, "c2x"),
        ({str(n): f"c{n}x" for n in range(12)}, "C", "c2x"),
        ({"second": "red", "first": "blue"}, "first", "blue"),
        ({f"option_{n}": f"c{n}x" for n in range(12)}, "C", "c2x"),
    ],
)
def test_a_mapping_is_read_by_its_keys(choices, answer, expected):
    found = task(choices=choices, answer=answer)
    assert found.answer == expected
    assert set(found.choices) == {text for text in choices.values() if text}
    again = task(choices=json.dumps(choices), answer=answer)
    assert (again.choices, again.answer) == (found.choices, found.answer)


@pytest.mark.parametrize("answer", ["B", 1])
def test_an_option_that_is_left_out_is_no_answer(answer):
    with pytest.raises(TaskError, match="nor a letter A, C, D nor a number 0, 2, 3"):
        task(choices=COLOURS, answer=answer)


@pytest.mark.parametrize(
    ("answer", "expected"), [("A", "red"), ("C", "blue"), ("D", "green"), (2, "blue"), ("3", "green")]
)
def test_columns_of_options_keep_their_letters_and_numbers(answer, expected):
    row = {"image": IMAGE, "question": "Which?", "answer": answer, **COLOURS}
    found = load_tasks([row], "train", bench="dataset", columns={"choices": list("ABCD")})[0]
    assert (found.choices, found.answer) == (("red", "blue", "green"), expected)


@pytest.mark.parametrize(
    ("choices", "answer", "words"),
    [
        (["1", "0", "3", "2"], 0, "may be a number of a choice from 0 or a value like the choice '0'"),
        (["1", "0", "3", "2"], 0.0, "may be a number of a choice from 0 or a value like the choice '0'"),
        ({"A": "1", "B": "0"}, 0, "may be a number of a choice from 0 or a value like the choice '0'"),
        ({"1": "2", "2": "3"}, "2", "the key of one choice and the text of another"),
        ({"A": "B", "B": "A"}, "A", "the key of one choice and the text of another"),
        (["B. red", "A. blue"], "A", "the letter of 'B. red' by its place, but 'A. blue' opens with it"),
        ({"a": "red", "A": "blue"}, "a", "expected 2 to 26 different texts"),
    ],
)
def test_an_answer_that_may_mean_two_choices_is_refused(choices, answer, words):
    with pytest.raises(TaskError, match=f"row 0 of the data: .*{words}"):
        task(choices=choices, answer=answer)


@pytest.mark.parametrize(
    ("choices", "answer", "expected"),
    [
        (["4", "7", "3", "9"], 0, "4"),
        (["0", "1", "2"], 1, "1"),
        (["1", "0"], "0", "0"),
        ({"1": "1", "2": "2"}, 2, "2"),
        (["A. red", "cat"], "A", "A. red"),
    ],
)
def test_an_answer_that_means_one_choice_in_every_reading(choices, answer, expected):
    assert task(choices=choices, answer=answer).answer == expected


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


def test_a_video_may_have_one_target_and_no_number_for_it():
    from codev_env.tasks.readers.video import VideoLimits, VideoReader

    row = {"video": "a.mp4", "question": "Which?", "answer": "cat"}
    target = {"seconds": 1.0, "box": [1.0, 2.0, 3.0, 4.0]}
    for written in (target, [target], json.dumps(target)):
        draft = VideoReader("video", VideoLimits()).read({**row, "targets": written}, "line 1")
        assert draft.meta["evidence"] == [target]
    with pytest.raises(TaskError, match="line 1: a target is 5; expected"):
        VideoReader("video", VideoLimits()).read({**row, "targets": 5}, "line 1")


def test_videos_are_read_alike(tmp_path):
    row = {"video": "a.mp4", "question": ["Which?"], "answer": ["cat", "feline"]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    with pytest.raises(TaskError, match=r"line 1: the answer is \['cat', 'feline'\]; give one text"):
        load_tasks(str(tmp_path / "rows.jsonl"), "test", bench="video")


@pytest.mark.parametrize("choices", [{"A": "", "B": "dog", "C": "cat"}, ["red", "dog", "cat"]])
def test_options_of_videos_are_read_alike(tmp_path, choices):
    from codev_env.tasks.readers.video import VideoLimits, VideoReader

    draft = VideoReader("video", VideoLimits()).read(
        {"video": "a.mp4", "question": "Which?", "answer": "C", "choices": choices}, "line 1"
    )
    assert (draft.answer, draft.choices[-2:]) == ("cat", ("dog", "cat"))


@pytest.mark.parametrize(
    ("written", "choices", "answer"),
    [
        ("<answer> 3 </answer>", None, "3"),
        ("<ANSWER>red\n</ANSWER>", None, "red"),
        ("<answer> B </answer>", ["red", "blue"], "blue"),
        ("see <answer>3</answer>", None, "see <answer>3</answer>"),
        ("<answer>3</answer><answer>4</answer>", None, "<answer>3</answer><answer>4</answer>"),
    ],
)
def test_answers_in_the_tags_of_a_model_are_taken_out_of_them(written, choices, answer):
    assert task(answer=written, choices=choices).answer == answer


def test_an_answer_of_tags_alone_is_empty():
    with pytest.raises(TaskError, match="the answer is empty"):
        task(answer="<answer> </answer>")
