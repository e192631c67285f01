"""Numbers in answers: signs, groups, powers, percent, currency, units, fractions, comparisons and ranges all count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from codev_env.scoring import get_scorer, is_correct, maths
from codev_env.scoring.numbers import read
from codev_env.types import Task

PIXEL = Image.new("RGB", (1, 1))
needs_maths = pytest.mark.skipif(not maths.installed(), reason="math-verify is not installed")


def task(answer: str, choices: tuple[str, ...] = ()) -> Task:
    return Task("t", (PIXEL,), "?", answer, choices)


SAME = [
    ("-5", "−5"),
    ("-5", "–5"),
    ("-5", "－5"),
    ("-5", "- 5"),
    ("−5", "-5.0"),
    ("5", "+5"),
    ("5", "= 5"),
    ("5", '"5"'),
    ("5", "(5)"),
    ("5", "$5$"),
    ("5", r"\(5\)"),
    ("5", "|-5|"),
    ("5", "*5*"),
    ("25", "5²"),
    ("25", "5^2"),
    ("120", "5!"),
    ("2000", "2×10³"),
    ("2000", "2 x 10^3"),
    ("2000", "2e3"),
    ("0.002", "2·10⁻³"),
    ("1000", "10^3"),
    ("1234567.5", "1,234,567.5"),
    ("1234567", "1 234 567"),
    ("1234567", "1\u202f234\u202f567"),
    ("1234567", "1'234'567"),
    ("1234567", "1.234.567"),
    ("0.5", "½"),
    ("5.5", "5½"),
    ("5.5", "5 1/2"),
    ("-5.5", "-5 1/2"),
    ("-0.5", "−1/2"),
    ("50%", "50 %"),
    ("50%", "50"),
    ("50%", "50 percent"),
    ("45°", "45"),
    ("45", "45°"),
    ("$5", "5"),
    ("5", "$5.00"),
    ("€5", "5 €"),
    ("-$5", "$-5"),
    ("5 cm", "5cm"),
    ("5 cm", "5.0 cm"),
    ("5 m²", "5 m^2"),
    ("5 km/h", "5km/h"),
    ("5 million", "5,000,000"),
    ("<5", "< 5"),
    ("≤5", "<=5"),
    ("±5", "+/-5"),
    ("3-5", "3–5"),
    ("3-5", "3 to 5"),
    ("[1, 2)", "[1,2)"),
    ("[1, 2]", "1, 2"),
    ("x-5", "x − 5"),
    ("a+b", "a + b"),
    ("x²", "x^2"),
    ("-x", "−x"),
    ("a mug", "- a mug"),
    ("C++", "c++"),
    ("x-ray", "x ray"),
    ("covid-19", "covid 19"),
    ("12:30", "12:30"),
]
DIFFERENT = [
    ("5", "−5"),
    ("5", "–5"),
    ("5", "－5"),
    ("5", "- 5"),
    ("5", "⁻5"),
    ("-5", "5"),
    ("-5", "|-5|"),
    ("5", "<5"),
    ("5", "< 5"),
    ("5", ">5"),
    ("5", "≤5"),
    ("5", "≥ 5"),
    ("5", "≈5"),
    ("5", "~5"),
    ("5", "≠5"),
    ("5", "±5"),
    ("5", "+/-5"),
    ("5", "5!"),
    ("5", "5 !"),
    ("5", "!5"),
    ("5", "5+"),
    ("5", "5-"),
    ("5", "√5"),
    ("5", "¬5"),
    ("5", "5'"),
    ("5", "5%"),
    ("50", "50%"),
    ("50", "50 percent"),
    ("50", "50‰"),
    ("50%", "0.5%"),
    ("$5", "€5"),
    ("$5", "5%"),
    ("5", "5²"),
    ("52", "5²"),
    ("23", "²³"),
    ("52", "5₂"),
    ("51/2", "5½"),
    ("5", "5½"),
    ("103", "10³"),
    ("25", "√25 or so"),
    ("5 cm", "5 m"),
    ("5 mW", "5 MW"),
    ("5", "5 cm"),
    ("5 cm", "-5 cm"),
    ("x2", "x²"),
    ("x+5", "x-5"),
    ("x+5", "x 5"),
    ("a+b", "a-b"),
    ("a+b", "a b"),
    ("C", "C++"),
    ("3/5", "3:5"),
    ("3 5", "3+5"),
    ("3*5", "3+5"),
    ("3 5", "3-5"),
    ("[1, 2)", "(1, 2]"),
    ("[1, 2]", "(1, 2)"),
    ("3-5", "3-6"),
    ("3-5", "-2"),
    ("8", "3-5"),
    ("2", "5-3"),
    ("1060820", "1060,820"),
    ("0123", "0,123"),
    ("1.5", "1,5 or 2"),
    ("5", "5.0.0"),
    ("-5", "--5"),
    ("5", "-|5|"),
    ("|5|", "-|5|"),
    ("5", "-(5)"),
    ("5", "-+5"),
    ("5", "+-5"),
    ("√5", "-√5"),
    ("-5", "-5!"),
    ("5", "5i"),
    ("-1/2", "1/2"),
    ("x", "-x"),
    ("x", "−x"),
    ("2x", "-2x"),
    ("1/2", "−½"),
]

# Texts without digits have signs as well.
SAME_SIGNS = [
    ("x > y", "x>y"),
    ("x = y", "$x = y$"),
    ("x/y", "x / y"),
    ("x*y", "x * y"),
    ("n!", "n !"),
    ("f'(x)", "f’(x)"),
    ("x'", "x′"),
    ("A → B", "A -> B"),
    ("A → B", "A => B"),
    ("A ← B", "A <- B"),
    ("y = (a+b)", "y = a+b"),
    ("(a+b)+c", "a+b+c"),
    ("C#", "c#"),
    ("C#", "C♯"),
    ("A-", "A−"),
    ("A-", "A-."),
    ("C++", "C++."),
    ("café", "cafe\u0301"),
    ("की", "की!"),
    ("❤ red", "❤️ red"),
    ("1", "1️⃣"),
]
DECORATED = [
    ("red", "red!"),
    ("red mug", "**red** mug"),
    ("a red mug", "a *red* mug"),
    ("red", "- red"),
    ("red", "* red"),
    ("red", "• red"),
    ("red", "| red |"),
    ("red", "<red>"),
    ("red", "‘red’"),
    ("red", "== red =="),
    ("red", "✓ red"),
    ("red", "red 😊"),
    ("红", "红！"),
    ("y", "= y"),
    ("Coca-Cola", "Coca-Cola®"),
    ("don't", "don’t"),
    ("the dogs bowl", "the dogs' bowl"),
    ("rock 'n' roll", "rock n roll"),
    ("mug(s)", "mug s"),
    ("red (dark) mug", "red dark mug"),
    ("约翰·史密斯", "约翰 史密斯"),
]
DIFFERENT_SIGNS = [
    ("A > B", "A < B"),
    ("> average", "< average"),
    ("A ≥ B", "A ≤ B"),
    ("a != b", "a = b"),
    ("red != blue", "red = blue"),
    ("price ↑", "price ↓"),
    ("price ↑", "price"),
    ("A → B", "A ← B"),
    ("A → B", "A ↔ B"),
    ("A -> B", "A <- B"),
    ("A -> B", "A > B"),
    ("x/y", "x*y"),
    ("x/y", "x y"),
    ("x*y", "x y"),
    ("a:b", "a b"),
    ("A & B", "A | B"),
    ("|x|", "x"),
    ("~p", "p"),
    ("x%", "x"),
    ("n!", "n"),
    ("x'", "x"),
    ("x''", "x'"),
    ("f'(x)", "f(x)"),
    ("♂ male", "♀ male"),
    ("▲ 5%", "▼ 5%"),
    ("5😀", "5😢"),
    ("price in €", "price in £"),
    ("US$", "US"),
    ("B♭", "B"),
    ("(1+2)*3", "1+2*3"),
    ("(a+b)*c", "a+(b*c)"),
    ("(a+b)/c", "a+b/c"),
    ("(x+1)/2", "(x+1)*2"),
    ("x-(y-z)", "x-y-z"),
    ("2(a+b)", "2a+b"),
    ("(n+1)!", "n+1!"),
    (r"\sqrt{x}+1", r"\sqrt{x+1}"),
    ("A-", "A"),
    ("A+", "A"),
    ("A+", "A-"),
    ("A*", "A"),
    ("O-", "O"),
    ("AB-", "AB"),
    ("Cl-", "Cl"),
    ("C#", "C"),
    ("C#", "C++"),
    ("F#", "F"),
    ("की", "कि"),
    ("हाँ", "हा"),
    ("চাল", "চুল"),
    ("கா", "கி"),
    ("ਹਾਂ", "ਹੁਂ"),
    ("x̄", "x"),
]


@pytest.mark.parametrize(("gold", "answer"), SAME)
def test_the_same_quantity_in_other_writing(gold, answer):
    assert is_correct(task(gold), answer)
    assert is_correct(task(gold), f"The answer is {answer}")


@pytest.mark.parametrize(("gold", "answer"), DIFFERENT)
def test_no_sign_is_dropped(gold, answer):
    assert not is_correct(task(gold), answer)
    assert not is_correct(task(gold), f"<answer>{answer}</answer>")


@pytest.mark.parametrize(("gold", "answer"), SAME_SIGNS + DECORATED)
def test_the_same_text_in_other_writing(gold, answer):
    assert is_correct(task(gold), answer)
    assert is_correct(task(gold), f"The answer is {answer}")


@pytest.mark.parametrize(("one", "other"), DIFFERENT_SIGNS)
def test_no_sign_of_a_text_is_dropped(one, other):
    for gold, answer in ((one, other), (other, one)):
        assert not is_correct(task(gold), answer)
        assert not is_correct(task(gold), f"The answer is {answer}.")
        assert not is_correct(task(gold), f"<answer>{answer}</answer>")


@needs_maths
@pytest.mark.parametrize(
    ("gold", "answer"), [pair for pair in DIFFERENT if pair not in {("5", "5 cm"), ("2", "5-3"), ("3/5", "3:5")}]
)
def test_mathematics_drops_none_either(gold, answer):
    assert not get_scorer("answer")(task(gold), answer).correct


@needs_maths
@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("0.5", "50%", True),
        ("50%", "0.5", True),
        ("50", r"50\%", False),
        ("0.5", r"25\% + 25\%", True),
        ("50", r"25\% + 25\%", False),
        ("5", r"\sqrt{25}", True),
        ("5", "√25", True),
        ("-5", "√25", False),
        ("5", r"\pm 5", False),
        ("5", r"\neg 5", False),
        ("5", r"\lt 5", False),
        ("5", r"\ge 5", False),
        ("5", r"$\approx 5$", False),
        ("5", r"\left|-5\right|", True),
        ("-5", r"\left|-5\right|", False),
        ("-5", "|-5| + 0", False),
        ("5", "|-5| + 0", True),
        ("2x", "x²", False),
        ("x^2", "x²", True),
        ("x", "x²", False),
        ("2", "2×3", False),
        ("6", "2×3", True),
        ("x<5", "x < 5.0", True),
        ("x<5", "x = 5", False),
    ],
)
def test_mathematics_reads_what_is_written(gold, answer, right):
    assert get_scorer("answer")(task(gold), answer).correct is right


def test_choices_are_told_apart_by_their_signs():
    choices = ("5", "-5", "<5", "5%", "5²")
    for gold in choices:
        assert [is_correct(task(c, choices), gold) for c in choices] == [c == gold for c in choices]
        assert is_correct(task(gold, choices), f"B. {gold}") is (gold == "-5")
    assert is_correct(task("-5", choices), "−5")
    assert is_correct(task("50%", ("50%", "60%")), "50")
    assert not is_correct(task("50%", ("50%", "$50")), "50"), "it fits two options"


@pytest.mark.parametrize(
    ("choices", "gold", "right", "wrong"),
    [
        (
            ("x > y", "x < y", "x = y"),
            "x > y",
            ["x > y", "A", "A. x > y", "A. So x>y."],
            ["A. x < y", "(A) x = y", "x < y"],
        ),
        (("up ↑", "up ↓"), "up ↑", ["up ↑", "A. up ↑"], ["up ↓", "A. up ↓"]),
        (("p", "~p"), "p", ["p", "A. p"], ["~p", "A. ~p"]),
        (("C", "C#", "Java"), "C#", ["C#", "B", "B. C#", "B. It is C#."], ["A. C#", "B. C"]),
        (("A+", "A-", "A"), "A-", ["A-", "A-.", "The answer is A-.", "B. The grade is A-."], ["A+", "B. A+", "A"]),
        (("O-", "O", "AB"), "O", ["O", "B. O"], ["O-", "B. The type is O-."]),
        (
            ("red", "blue"),
            "red",
            ["A. It's red!", "A. red—yes"],
            ["A. It is blue—yes", "A. blue-", "A. blue*", "A. red/blue"],
        ),
    ],
)
def test_choices_are_told_apart_by_the_signs_of_texts(choices, gold, right, wrong):
    assert [answer for answer in right if not is_correct(task(gold, choices), answer)] == []
    assert [answer for answer in wrong if is_correct(task(gold, choices), answer)] == []


@given(st.integers(-(10**12), 10**12))
def test_every_writing_of_an_integer_has_its_value(number):
    for text in (f"{number}", f"{number:,}", f"{number}.0", f"{number:+}", f"{number:,}".replace("-", "−")):
        found = read(text)
        assert found is not None
        assert found.value == number


@given(st.text(alphabet="0123456789 +-−.,/^²½%$°<>|!()[]xe×", max_size=24), st.integers(-99, 99))
def test_nothing_but_a_quantity_of_the_same_value_is_right(text, number):
    found = read(text)
    if is_correct(task(str(number)), text) and found is not None:
        assert found.value == pytest.approx(number)
        assert not found.relation


@pytest.mark.parametrize(
    "text", ["1" * 5000, "1e999", "9^999999999", "200!", "1/0", "nan", "|" * 5000, "5" + "!" * 5000]
)
def test_what_is_no_finite_number_is_none(text):
    assert read(text) is None
