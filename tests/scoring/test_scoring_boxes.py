r"""Answers with words around a `\boxed{}`, with reasons on further lines, and digits and spaces of other scripts."""

from __future__ import annotations

import time

import pytest
from PIL import Image

from codev_env.scoring import get_scorer, is_correct
from codev_env.scoring.maths import installed
from codev_env.scoring.numbers import read
from codev_env.types import Task

COLORS = ("red", "blue", "green", "white")
SCORERS = ["rules", "answer", *(["math-verify"] if installed() else [])]


def task(answer: str, choices: tuple[str, ...] = ()) -> Task:
    return Task("t", (Image.new("RGB", (1, 1)),), "?", answer, choices)


@pytest.mark.parametrize("name", SCORERS)
@pytest.mark.parametrize(
    "answer",
    [
        r"The mug is blue. \boxed{B}",
        "The mug is blue.\n\n\\boxed{\\text{B}}",
        r"It is not red, so $\boxed{B}$ is right.",
        r"\boxed{B} blue",
        r"\boxed{B} \boxed{B}",
        r"- \boxed{\text{(B) blue}}",
        "B\n\nThe mug is not red but blue.",
        "**B**\nThe handle is blue.",
        "Answer: B\nThe mug is blue.",
        "The handle is seen from the left.\nThe answer is B.",
        "B\nblue",
        "\u200bB\ufeff",
    ],
)
def test_a_box_or_a_line_names_the_option(name, answer):
    scorer = get_scorer(name)
    assert scorer(task("blue", COLORS), answer).correct
    assert not any(scorer(task(gold, COLORS), answer).correct for gold in ("red", "green", "white"))


@pytest.mark.parametrize("gold", COLORS)
@pytest.mark.parametrize(
    "answer",
    [
        r"A. or \boxed{B}",
        r"not \boxed{B}",
        r"It isn't \boxed{B}",
        r"\boxed{B} or A",
        r"\boxed{B} is wrong",
        r"\boxed{A} and \boxed{B}",
        r"It is blue: \boxed{}",
        "A\nB",
        "B\nA\nC",
        "B\nAnswer: A",
        "The mug is red.\nIt is B, I guess",
        "not\nB",
        "B. or\nC",
        "Either A\nor B",
        "B\nor C",
        "B\nand (A)",
        "B. blue\nOr maybe **A**",
        "B\nPerhaps red.",
        "The answer is B\nor, possibly, A. red",
        "or B",
        "or\nB\nfoo",
    ],
)
def test_several_or_denied_options_are_none(gold, answer):
    assert not is_correct(task(gold, COLORS), answer)


@pytest.mark.parametrize("answer", ["B\nor blue", "B\nand the mug is blue", "B\nOr is it? No.", "B\nand A is wrong"])
def test_a_further_line_may_go_on_about_the_option(answer):
    assert [gold for gold in COLORS if is_correct(task(gold, COLORS), answer)] == ["blue"]


@pytest.mark.parametrize("name", SCORERS)
@pytest.mark.parametrize(
    ("gold", "right", "wrong"),
    [
        ("5", r"The sum is \boxed{5}.", r"The sum is \boxed{6}."),
        ("5", r"2 + 3 = 5, so \boxed{5}", r"2 + 3 = 5, so -\boxed{5}"),
        ("-5", r"-\boxed{5}", r"\boxed{5}"),
        ("-5", r"It is $\boxed{-5}$", r"It is $\boxed{5}$"),
        ("50%", r"It is \boxed{50\%}", r"\boxed{50} million"),
        ("50%", r"\boxed{50}\%", r"\boxed{5}\%"),
        ("50", r"- \boxed{50}", r"\boxed{50}\%"),
        ("25", r"\boxed{5}^2", r"\boxed{5}"),
        ("5", r"x = \boxed{5}", r"\boxed{5} or 6"),
        ("5", r"\therefore \boxed{5}", r"\pm \boxed{5}"),
        ("5", "$$5$$", r"< \boxed{5}"),
        ("25 cm", r"$25\,\text{cm}$", r"$25\,\text{mm}$"),
        ("1000", r"1{,}000", r"1{,}001"),
        ("15", "١٥", "١٦"),
        ("1.5", "१.५", "٢٫٥"),
    ],
)
def test_numbers_in_boxes_keep_the_signs_beside_them(name, gold, right, wrong):
    scorer = get_scorer(name)
    assert scorer(task(gold), right).correct
    assert not scorer(task(gold), wrong).correct


def test_digits_of_other_scripts_are_numbers_but_raised_ones_are_not():
    assert read("٣٫٥").value == 3.5 and read("１２").value == 12 and read("²³") is None


@pytest.mark.parametrize("part", ["\\boxed{", "\\boxed{B}", "\\boxed{{", "B\n", "- "])
def test_long_answers_take_linear_time(part):
    text = part * (200_000 // len(part))
    start = time.process_time()
    is_correct(task("blue", COLORS), text)
    is_correct(task("5"), text)
    assert time.process_time() - start < 5


@pytest.mark.parametrize("choices", [("550", "(550)", "850"), ("Two, and one more.", "Two and one more.", "None")])
def test_of_options_that_differ_in_signs_alone_the_one_that_is_written_so(choices):
    for choice in choices:
        assert [is_correct(task(gold, choices), choice) for gold in choices] == [gold == choice for gold in choices]


@pytest.mark.parametrize("end", ["", ".", ",", "?", " .", ";"])
def test_a_stop_at_the_end_changes_no_hyphen(end):
    assert is_correct(task("L-A vs L-B"), f"L-A vs L-B{end}")
    assert is_correct(task("type A-B"), f"The answer is type A-B{end}")
    assert is_correct(task("A-"), f"A-{end}") and not is_correct(task("A"), f"A-{end}")
