"""Units, signs and ranges in words, formulas as right answers, and options named by text and letter."""

from __future__ import annotations

import pytest
from PIL import Image

from codev_env.scoring import get_scorer, is_correct, maths
from codev_env.types import Task

COLORS = ("red", "blue", "green")


def right(gold: str, answer: str, choices: tuple[str, ...] = ()) -> bool:
    return is_correct(Task("t", (Image.new("RGB", (1, 1)),), "?", gold, choices), answer)


@pytest.mark.parametrize(
    ("gold", "same", "others"),
    [
        ("5 cm", ("5 centimeters", "5 Centimetres"), ("5 meters", "5 inches", "50 millimeters")),
        ("5 hours", ("5 h", "5 hrs", "5 hour"), ("5 minutes", "5")),
        ("12 ft", ("12 feet", "12 foot"), ("12 inches",)),
        ("5 m", ("5 meters", "5 metres"), ("5 M", "5 million", "5 minutes")),
        ("90° clockwise", ("90 degrees clockwise", "90° Clockwise"), ("90 clockwise", "90 degrees", "90% clockwise")),
        ("20% more", ("20 percent more", "20 % more"), ("20 more", "20 degrees more", "20 percentage more")),
        ("90 km/h", ("90 km/h",), ("90 kilometers", "90 hours")),
        ("-5", ("minus 5", "Negative 5"), ("5", "minus -5", "not minus 5")),
        ("10-20", ("from 10 to 20", "between 10 and 20"), ("from 10 to 30", "between 10 and 20 or 30", "10 and 20")),
        ("5%-7%", ("between 5% and 7%",), ("between 5 and 7 cm",)),
        ("$3$", ("3", "$3$", "\\boxed{3}", "3.0"), ("4", "$", "")),
        ("\\boxed{\\text{left}}", ("left", "\\text{left}"), ("right", "boxed")),
        ("\\(x^2\\)", ("x^2", "$x^2$"), ("x2", "x")),
        ("$5", ("5", "$5"), ("5 cm",)),
    ],
)
def test_open_answers(gold, same, others):
    assert [answer for answer in same if not right(gold, answer)] == []
    assert [answer for answer in others if right(gold, answer)] == []


@pytest.mark.parametrize(
    "answer", ["blue (B)", "**blue** (B)", "Blue [b].", "The answer is blue (B).", "The correct letter is B"]
)
def test_an_option_may_be_named_by_its_text_and_then_its_letter(answer):
    assert right("blue", answer, COLORS) and not right("red", answer, COLORS)


@pytest.mark.parametrize(
    "answer", ["red (B)", "blue (A)", "blue (D)", "A or blue (B)", "blue or green (B)", "not blue (B)"]
)
def test_text_and_letter_must_agree(answer):
    assert [color for color in COLORS if right(color, answer, COLORS)] == []


@pytest.mark.parametrize(
    "lead", ["Antwort: ", "Respuesta：", "Réponse : ", "Risposta: ", "Resposta: ", "Ответ: ", "答え：", "정답: "]
)
def test_other_languages_may_lead_to_the_answer(lead):
    assert right("blue", f"{lead}B", COLORS) and right("blue", f"{lead}**(B) blue**", COLORS) and right("5", f"{lead}5")
    assert not any(right(color, f"{lead}A / B", COLORS) for color in COLORS)


@pytest.mark.parametrize(
    ("gold", "same", "others"),
    [
        ("∞", ("∞", "$∞$"), ("-∞", "−∞", "- ∞")),
        ("\\infty", ("\\infty", "$\\infty$"), ("-\\infty", "$-\\infty$", "-$\\infty$")),
        (
            "\\frac{1}{2}",
            ("$\\frac{1}{2}$",),
            ("-\\frac{1}{2}", "- \\frac{1}{2}", "-$\\frac{1}{2}$", "−\\(\\frac{1}{2}\\)"),
        ),
        ("\\sqrt{2}", ("\\sqrt{2}",), ("-\\sqrt{2}", "-\\boxed{\\sqrt{2}}", "$-\\sqrt{2}$")),
        ("-\\pi", ("−\\pi", "-$\\pi$", "-\\boxed{\\pi}"), ("\\pi", "$\\pi$")),
        ("x\\pi", ("$x\\pi$",), ("x-\\pi", "x - \\pi")),
        ("sin x", ("$sin x$",), ("-sin x", "−sin x")),
        ("x sin y", (), ("x-sin y", "x - sin y")),
        ("sqrt(2)", (), ("-sqrt(2)",)),
        ("ab", ("$ab$",), ("-ab", "-$ab$")),
        ("x", ("$x$", "- x"), ("-$x$", "-**x**", "-[x]", "-\\boxed{x}")),
        ("5", ("$5$", "- **5**"), ("-$5$", "-\\(5\\)", "-**5**", "-`5`", "-[5]", "-{5}", '-"5"', "˗5", "$5$ million")),
        ("-5", ("-$5$", "-\\(5\\)", "−\\boxed{5}", "➖5"), ("$5$", "- - 5")),
        ("[1, 2]", ("[1,2]",), ("-[1, 2]",)),
        ("tan", ("- tan", "Tan."), ()),
        ("wi-fi", ("wi fi", "Wi-Fi"), ()),
        ("no", ("- no", "— no"), ()),
    ],
)
def test_a_minus_before_a_formula_or_a_mark_counts(gold, same, others):
    scorers = [get_scorer(name) for name in ("rules", "answer") if name == "rules" or maths.installed()]
    task = Task("t", (Image.new("RGB", (1, 1)),), "?", gold)
    assert [answer for answer in same for scorer in scorers if not scorer(task, answer).correct] == []
    assert [answer for answer in others for scorer in scorers if scorer(task, answer).correct] == []


@pytest.mark.parametrize(
    ("gold", "same", "others"),
    [
        (
            "1234.56",
            ("1.234,56", "1 234,56", "1\u202f234,56", "1,234.56"),
            ("1,234,56", "1.234,5,6", "1.234,561", "1.23456"),
        ),
        ("1234567", ("12,34,567", "1.234.567", "1,234,567"), ("12,34,56", "1,2,34,567", "1 234,567")),
        ("1.5", ("1.5",), ("1,5",)),
        ("0,5", ("0,5", "0, 5"), ("0.5",)),
        ("-1234.5 €", ("−1.234,5 €",), ("1.234,5 €",)),
        ("5 cm²", ("5\\text{ cm}^{2}", "5 cm^2", "5 cm^{2}"), ("5 cm", "5 cm^{3}")),
        ('5"', ("5″", "5''"), ("5", "5′")),
        ("5", ("5",), ("5″", "5''", "5′")),
    ],
)
def test_numbers_of_other_places(gold, same, others):
    assert [answer for answer in same if not right(gold, answer)] == []
    assert [answer for answer in others if right(gold, answer)] == []
