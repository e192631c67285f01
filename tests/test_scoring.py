"""Scoring: which answers count as right."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from codev_env.scoring import is_correct
from codev_env.types import Task

PIXEL = Image.new("RGB", (1, 1))
COLORS = ("green", "red", "dark red", "blue")


def task(answer: str, choices: tuple[str, ...] = ()) -> Task:
    return Task(task_id="t", images=(PIXEL,), question="?", answer=answer, choices=choices)


@pytest.mark.parametrize(
    "answer",
    [
        "B",
        "b",
        "(B)",
        "B.",
        "B)",
        "B:",
        " B \n",
        "[B]",
        "B. red",
        "(B) red",
        "B) Red.",
        "B: red",
        "(B). red",
        "B.\nred",
        "red",
        " RED! ",
        "Red.",
        "The answer is B",
        "The answer is (B) red.",
        "Answer: B",
        "Final answer: red",
        "Option B",
        "**B**",
        "<answer>B</answer>",
        "<answer>\\boxed{B}</answer>",
        "\\boxed{\\text{B}}",
        "B. It is red.",
        "B. A ripe apple's red",
        "The final answer is: B",
        "The answer is: option B",
        "$\\boxed{B}$",
    ],
)
def test_usual_forms_of_the_right_option(answer):
    assert is_correct(task("red", COLORS), answer)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        " ",
        "A",
        "E",
        "Z.",
        "A or B",
        "B or A",
        "A, B",
        "A B C D",
        "B, A",
        "(A) (B)",
        "B. A.",
        "B. or C.",
        "B. Or maybe (C)",
        "B. green",
        "B. red or green",
        "B. red, green, dark red, blue",
        "B. dark red",
        "red green",
        "red or green",
        "green, red, dark red, blue",
        "not B",
        "B is wrong",
        "Because",
        "A red mug",
        "dark red",
        "bred",
        "B red",
        "BB",
        "\x00",
        "(",
        "<answer></answer>",
    ],
)
def test_anything_else_is_wrong(answer):
    assert not is_correct(task("red", COLORS), answer)


@pytest.mark.parametrize("gold", COLORS)
@pytest.mark.parametrize(
    "answer", ["A or B", "A and B", "A/B", "A|B", "A. or B.", "(A) or (B)", "A; B", "A,B,C,D", "AB"]
)
def test_naming_several_options_is_never_correct(gold, answer):
    assert not is_correct(task(gold, COLORS), answer)


@pytest.mark.parametrize("letter", ["B", "(B)", "Ｂ", "𝐁", "Ⓑ", "（B）", "[B]", "{B}"])
@pytest.mark.parametrize(
    "form",
    [
        "{}",
        "{}.",
        "{},",
        "{}!",
        "{}。",
        "**{}**",
        "**{}**.",
        "*{}*,",
        "`{}`",
        "`{}`.",
        "__{}__",
        "“{}”.",
        "${}$",
        "${}$.",
    ],
)
def test_a_letter_may_be_emphasised_and_end_with_a_stop(letter, form):
    assert is_correct(task("red", COLORS), form.format(letter))
    assert is_correct(task("red", COLORS), f"The correct answer is {form.format(letter)}")


@pytest.mark.parametrize(
    "answer",
    [
        "**B**. red",
        "**B.** red",
        "**B)** red",
        "**(B)** red",
        "`B`. red",
        "`B`: red",
        "$B$. red",
        "[B] red",
        r"\text{B}",
        r"\text{B}.",
        r"\textbf{B}. red",
        r"$\text{B}$. red",
        r"\(B\).",
        r"\[B\]",
        r"The answer is \boxed{B}.",
        r"\boxed{\textbf{(B)}}.",
        "<answer>**B**.</answer>",
        "**Answer:** B",
        "**Answer**: **B**.",
        "**The answer is** B",
        "### Answer: B",
        "The answer is: **B. red**.",
        "> red",
        "→ red",
        "`red`.",
    ],
)
def test_a_letter_may_be_written_in_markdown_or_latex(answer):
    assert is_correct(task("red", COLORS), answer)


@pytest.mark.parametrize("gold", COLORS)
@pytest.mark.parametrize(
    "answer",
    [
        "**A** or **B**.",
        "**A**, **B**",
        "**A** **B**",
        "**A.** **B.**",
        "`A` `B`.",
        "`A`. `B`",
        "$A$$B$",
        "$A$, $B$.",
        r"\text{A}\text{B}",
        r"\boxed{A}, \boxed{B}.",
        "A. or **B**",
        "A. or `B`",
        "A. or $B$",
        r"A. or \boxed{B}",
        "A. or Ｂ",
        "（A）（B）",
        "A、B",
        "A。 B。",
        "[A] [B]",
        "**Answer:** A or B",
        "**A**? ",
        "not **A**",
        "**A** is wrong",
        "The answer is **not** A.",
        "**A** red mug",
        "**Because**.",
        r"\text{Because}.",
        "**",
        "`",
        "$$",
    ],
)
def test_emphasis_makes_no_letter_of_several_or_of_none(gold, answer):
    assert not is_correct(task(gold, COLORS), answer)


@pytest.mark.parametrize(("gold", "answer"), [("average", "> average"), ("red", "-> red")])
def test_a_quote_or_an_arrow_may_lead_to_an_answer(gold, answer):
    assert is_correct(task(gold), answer)
    assert not is_correct(task(answer), gold)


def test_a_letter_before_the_sign_of_another_option_contradicts_itself():
    choices = (">", "<", "=")
    assert is_correct(task(">", choices), "A. >")
    assert not is_correct(task(">", choices), "A. <")
    assert not is_correct(task(">", choices), "A. =")


def test_a_choice_within_another_choice_does_not_contradict_it():
    assert is_correct(task("dark red", COLORS), "C. The mug is dark red.")


def test_sentences_as_choices():
    choices = ("The cat is on the left side of the dog.", "The cat is on the right side of the dog.")
    t = task(choices[1], choices)
    assert is_correct(t, "the cat is on the right side of the dog")
    assert is_correct(t, "B. The cat is on the right side of the dog")
    assert not is_correct(t, "The cat is on the left side of the dog.")
    assert not is_correct(t, "right")


def test_a_letter_is_read_as_a_letter_before_a_text():
    choices = ("B", "K")
    assert is_correct(task("K", choices), "B")
    assert not is_correct(task("B", choices), "B")
    assert is_correct(task("K", choices), "K")
    assert is_correct(task("B", choices), "A")


def test_choices_of_punctuation_only():
    choices = ("+", "-")
    assert is_correct(task("-", choices), "-")
    assert not is_correct(task("-", choices), "+")
    assert not is_correct(task("-", choices), "")


def test_numbers_as_choices_keep_their_signs_and_points():
    choices = ("5", "-5", "0.5")
    assert is_correct(task("-5", choices), "-5")
    assert not is_correct(task("5", choices), "-5")
    assert not is_correct(task("5", choices), "0.5")
    assert is_correct(task("0.5", choices), "C. 0.5")


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("3", "3"),
        ("3", " 3. "),
        ("3", "3.0"),
        ("3", "The answer is 3"),
        ("3", "<answer>3</answer>"),
        ("1000", "1,000"),
        ("1,000", "1000.0"),
        ("0.5", "1/2"),
        ("0.5", ".5"),
        ("-2", "-2.00"),
        ("50%", "50"),
        ("2e3", "2000"),
        ("red mug", "Red   mug!"),
        ("STOP", "stop"),
        ("x-ray", "x ray"),
    ],
)
def test_open_answers_that_mean_the_same(gold, answer):
    assert is_correct(task(gold), answer)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("3", "4"),
        ("3", "3 4"),
        ("3", "0 1 2 3 4 5"),
        ("3", "3 or 4"),
        ("3", "-3"),
        ("3", "33"),
        ("3", "three"),
        ("3", ""),
        ("1.5", "15"),
        ("15", "1.5"),
        ("1/0", "1"),
        ("3", "nan"),
        ("3", "inf"),
        ("3", "9" * 5000),
        ("3", "1e999"),
        ("red", "redder"),
        ("2", "²³"),
    ],
)
def test_open_answers_that_do_not(gold, answer):
    assert not is_correct(task(gold), answer)


TEXTS = st.one_of(
    st.text(),
    st.text(alphabet="ABCD .,():;orand<>/{}\\*$-0123456789e\n", max_size=40),
    st.lists(
        st.sampled_from(["A", "(B)", "C.", "red", "green", "or", "<answer>", "\\boxed{", "}", "**", "the answer is"])
    ).map(" ".join),
)


@given(TEXTS, st.sampled_from([(), COLORS, ("1", "2"), ("A", "B"), ("+", "-")]), TEXTS)
def test_no_text_crashes_it(answer, choices, gold):
    assert is_correct(task(choices[0] if choices else gold, choices), answer) in (True, False)


@given(TEXTS)
def test_at_most_one_option_is_right(answer):
    assert sum(is_correct(task(gold, COLORS), answer) for gold in COLORS) <= 1


@given(st.text(min_size=1))
@example(":\x1f\x1b")
@example("。")
def test_the_gold_answer_itself_is_right(gold):
    assert is_correct(task(gold), gold)


@given(st.integers(0, 25), st.integers(1, 26))
def test_the_letter_of_each_position(index, count):
    choices = tuple(f"choice number {i}" for i in range(count))
    gold = choices[index % count]
    letter = chr(ord("A") + index % count)
    assert all(is_correct(task(gold, choices), form) for form in (letter, f"({letter})", f"{letter}. {gold}", gold))


@given(st.from_regex(r"[0-9]{1,9}(\.[0-9]{1,4})?", fullmatch=True))
def test_numbers_equal_themselves_in_other_writing(number):
    assert is_correct(task(number), f"{float(number):,.4f}")


@pytest.mark.parametrize(
    "text",
    [
        "(" * 20000,
        "A" * 20000,
        "answer" + " " * 50000,
        "B" + " " * 50000 + ".x",
        "**" * 20000,
        "<answer>" * 5000,
        "the answer is " * 2000,
        "1," * 10000,
        "-." * 10000,
        "`" * 20000 + "x",
        "=" * 20000,
        "a(b+c)" * 5000,
        r"\text{" * 5000,
    ],
)
def test_long_answers_are_judged_too(text):
    assert not is_correct(task("red", COLORS), text)
    assert not is_correct(task("red"), text)
