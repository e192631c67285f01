"""ZoomBench's rule before the LLM, held to values computed by hand from the grader's rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from codev_env.scoring import Score, get_scorer
from codev_env.scoring.mathruler import same_by_mathruler
from codev_env.types import Task

VECTORS = [
    *[(text, text, True) for text in ("5", "STOP", "red bus", "", "1/2", "(1, 2)", "x y")],
    # The first normalisation: space, percent, "x=", a leading point, 0.5 as a fraction.
    *[("5", text, True) for text in ("5%", " 5 ", "x=5", "N = 5", "5.0", "5.", "5.00000001")],
    *[("5", text, False) for text in ("-5", "5.1", "xyz=5", "x=y=5", "5 apples", "five", "5!", "", "50 %")],
    *[("0.5", ".5", True), ("0.5", "1/2", True), ("12", "1 2", True), ("red bus", "redbus", True)],
    # The second: case, currency, units anywhere, groups of digits, "and", "or", mixed numbers.
    *[("STOP", "stop", True), ("STOP", "Stop.", False), ("STOP", "stop sign", False), ("5", "$5", True)],
    *[("5", "5 cm", True), ("5", "5 meters", True), ("5", "5 m", False), ("7 years", "7", True), ("7", "7 days", True)],
    *[("Monday", "mon", True), ("1000", "1,000", True), ("1000", "1,00", False), ("1000", "1e3", True)],
    *[("1234567", "1,234,567", True), ("red and blue", "red , blue", True), ("a or b", "A, B", True)],
    *[("5 million", "5*10^6", True), ("5 million", "5000000", False), ("- 5", "-5", True)],
    # Parts: numbers that are equal, fractions that are the same, letters.
    *[("3.5", "3.50", True), ("3.5", "7/2", True), ("0.75", "3/4", True), ("1/2", "2/4", False), ("6/2", "3", False)],
    *[("7.75", "7 3/4", True), ("-6.25", "-7 3/4", True), ("3.5", "3.51", False), ("1/0", "2/0", False)],
    *[("B", "(B)", True), ("(B)", "b", True), ("B", "[B]", True), ("B", "B.", False), ("B", "(A)", False)],
    *[("(1.5,2)", "(1.50,2)", True), ("(1.5,2)", "[1.50,2]", False), ("(1.5,2)", "(1.50,2,3)", False)],
    *[("(1.5,2)", "1.50,2", False), ("red", "(red)", False), ("no", "(no)", True), ("if", "(if)", False)],
]


@pytest.mark.parametrize(("gold", "answer", "same"), VECTORS)
def test_the_grader_s_rules(gold, answer, same):
    assert same_by_mathruler(gold, answer) == same


@given(*[st.text(max_size=12) | st.text("0123456789.,/+-()[]% ={}", max_size=12)] * 2)
def test_any_texts_are_compared(one, other):
    assert same_by_mathruler(one, other) in (True, False)
    assert "\\" in one or same_by_mathruler(one, one)


def test_long_numbers_and_formulas_are_left_to_the_model():
    assert not same_by_mathruler("9" * 5000, "9" * 5000)
    assert not same_by_mathruler("1/" + "9" * 60, "2/" + "9" * 60)
    assert not same_by_mathruler(r"\frac{1}{2}", r"\frac12")


def task(answer: str, *choices: str) -> Task:
    return Task("t", (Image.new("RGB", (1, 1)),), "?", answer, choices, meta={"bench": "zoombench"})


@pytest.mark.parametrize(
    ("asked", "text", "right", "asks"),
    [
        (task("7"), "7 cm", True, False),
        (task("7"), "<answer>$7</answer>", True, False),
        (task("7"), "seven", True, True),
        (task("SLOW", "STOP", "SLOW"), "B", True, False),
        (task("SLOW", "STOP", "SLOW"), "(B)", True, False),
        (task("SLOW", "STOP", "SLOW"), "B. SLOW", True, True),
        (task("SLOW", "STOP", "SLOW"), "slow", True, True),  # the published answer is the letter
    ],
)
def test_zoombench_asks_a_model_only_where_the_rule_does_not_decide(asked, text, right, asks):
    seen = []
    scorer = get_scorer("official", judge=lambda task, answer: seen.append(answer) or Score(True))
    assert scorer(asked, text).correct == right
    assert bool(seen) == asks


def test_without_a_model_the_score_says_so():
    score = get_scorer("official")(task("7"), "7 cm")
    assert score.correct and "MathRuler" in score.why
    assert "LLM" in get_scorer("official")(task("7"), "seven").why
    other = Task("t", (Image.new("RGB", (1, 1)),), "?", "7", meta={"bench": "visualprobe"})
    assert not get_scorer("official")(other, "7 cm").correct
