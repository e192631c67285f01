"""Other notation of the same answer counts; another unit, date, code, order or option does not."""

from __future__ import annotations

import json

import pytest
from fake_judge_server import FakeJudgeServer, Reply, completion
from PIL import Image

from codev_env.scoring import get_scorer, is_correct, llm, maths
from codev_env.types import Task

PIXEL = Image.new("RGB", (1, 1))
COLORS = ("red", "blue", "green", "white")
needs_maths = pytest.mark.skipif(not maths.installed(), reason="math-verify is not installed")


def task(answer: str, choices: tuple[str, ...] = (), **meta: str) -> Task:
    return Task("t", (PIXEL,), "?", answer, choices, meta=meta)


@pytest.mark.parametrize(
    "answer",
    [
        "(B)blue",
        "B.blue",
        "B)blue",
        "B:blue",
        "B - blue",
        "B — blue",
        "B—blue",
        "B, blue",
        "B; blue",
        "B、blue",
        "**B** - blue",
        "Option B is correct",
        "Option B is the correct answer.",
        "B is the answer",
        "(B) is the right answer.",
        "**B** is correct.",
        "blue is the answer",
        "B. blue is correct",
        "So the answer is B.",
        "So, the answer is: **B**",
        "Therefore, the correct answer is B.",
        "Thus the best option is (B) blue",
        "I think the answer is B",
        "I think that the answer is blue",
        "My answer is B",
        "The best answer is B",
        "答案是B",
        "答案：B",
        "答案是：B。",
        "正确答案是 (B)",
        "所以答案为B",
        "选B",
        "故选：B。",
        "选项B",
    ],
)
def test_an_option_is_read_in_every_usual_form(answer):
    assert is_correct(task("blue", COLORS), answer)
    assert not is_correct(task("red", COLORS), answer)


@pytest.mark.parametrize("answer", ["- B", "* B", "+ (B)", "• **B**", "Answer - B", "The answer is:\n\n- B."])
def test_an_option_may_be_the_item_of_a_list(answer):
    assert [gold for gold in COLORS if is_correct(task(gold, COLORS), answer)] == ["blue"]


@pytest.mark.parametrize("answer", ["- A\n- B", "- A or B", "A. - B", "A - B", "not - B", "-B", "B - A"])
def test_items_of_a_list_are_not_one_option(answer):
    assert not any(is_correct(task(gold, COLORS), answer) for gold in COLORS)
    assert is_correct(task("b", ("-b", "b")), "- b")


@pytest.mark.parametrize("gold", COLORS)
@pytest.mark.parametrize(
    "answer",
    [
        "B, red",
        "(B)red",
        "B.red",
        "B - red",
        "B, A",
        "B - A",
        "A.B",
        "B, blue or red",
        "B - blue, A - red",
        "A or B is correct",
        "Neither A nor B is correct",
        "A is wrong, B is correct",
        "(A) is wrong. (B) is correct.",
        "A. B is correct",
        "So the answer is A or B.",
        "So the answer is B. Or A.",
        "Therefore, the answer is not B.",
        "I think the answer is B or C",
        "答案不是B",
        "答案是A或B",
        "选A或B",
        "If B is correct",
        "B is not correct",
        "Is B correct",
        "E.g. this",
        "A.M.",
        "A-frame",
        "B, because of all colors",
    ],
)
def test_a_looser_form_does_not_make_one_option_of_two(gold, answer):
    assert not is_correct(task(gold, COLORS), answer)


def test_a_dash_or_stop_before_a_number_may_belong_to_it():
    choices = ("5", "-5", ".5")
    assert not is_correct(task("5", choices), "A - 5")
    assert not is_correct(task("5", choices), "A.5")
    assert is_correct(task("5", ("5", "6")), "A - 5")


@pytest.mark.parametrize("answer", ["A. red", "A) red", "(A) red", "A: red", "The answer is A. red", "A is correct."])
def test_a_letter_without_options_may_have_its_text_beside_it(answer):
    assert is_correct(task("A"), answer)
    assert not is_correct(task("B"), answer)


@pytest.mark.parametrize("answer", ["A. B", "A. or B", "(A) (B)", "A. red (B) blue", "A red", "A or B", "A. (B) is so"])
def test_a_letter_without_options_is_not_one_of_several(answer):
    assert not is_correct(task("A"), answer)
    assert not is_correct(task("a"), "a. red")


@pytest.mark.parametrize(
    ("letter", "right"), [("A", False), ("B", True), ("(A)", False), ("B. 2", True), ("C", False), ("2", True)]
)
def test_of_two_options_with_one_text_the_letter_decides(letter, right):
    assert is_correct(task("2", ("2", "2", "3"), label="B"), letter) is right


def test_without_a_letter_of_the_right_one_both_of_them_are_right():
    for meta in ({}, {"label": "C"}, {"label": "blue"}):
        assert is_correct(task("2", ("2", "2", "3"), **meta), "A")
        assert is_correct(task("2", ("2", "2", "3"), **meta), "B")


@pytest.mark.parametrize("bench", ["treebench", "mme-realworld-lite", "blink", "o3bench", "hrbench4k"])
def test_the_letter_decides_by_official_rules_too(bench):
    both = task("2", ("2", "2", "3"), label="B", bench=bench)
    assert [get_scorer("official")(both, letter).correct for letter in "ABC"] == [False, True, False]


OTHERS = [
    ("$5", "5 km"),
    ("$5", "5 m"),
    ("$5", "5 cents"),
    ("$5", r"5 \text{ km}"),
    ("$5", r"$5 \text{ km}$"),
    ("$100", "100 people"),
    ("€100", "100 people"),
    ("30°", "30 cm"),
    ("30°", "30 %"),
    ("5%", "5 cm"),
    ("50%", "0.5 cm"),
    ("5 cm", "5 apples"),
    ("5 km/h", "5 m/s"),
    ("2020-01-05", "2014"),
    ("2014", "2020-01-05"),
    ("2020/01/05", "404"),
    ("12/25/2020", "0.000237623762"),
    ("12/25/2020", "25/12/2020"),
    ("1/2/2020", "1.2.2020"),
    ("10:30", "1/3"),
    ("10:30", "10:30 pm"),
    ("10:30 am", "10:30 pm"),
    ("1/3", "10:30"),
    ("1/3", "10:30 pm"),
    ("7:05", "7:5"),
    ("16:9", "1.7777777777777777"),
    ("555-123-4567", "-4135"),
    ("(555) 123-4567", "63698"),
    ("192.168.0.1", "0"),
    ("7", "8 = 7"),
    ("7", "$8 = 7$"),
    ("7", r"\boxed{8 = 7}"),
    ("7", "8 = 7 cm"),
    ("7", "x = 8 = 7"),
    ("10", "2x = 10"),
    ("5", "$4$ $5$"),
    ("5", "4 $5$"),
    ("5", r"\(4\) \(5\)"),
    ("1, 2", "2, 1"),
    ("1, 1, 2", "1, 2"),
    ("1, 2", "2, 1, 1"),
    ("[1, 2]", "[2, 1]"),
    ("1; 2", "2; 1"),
    ("A,B", "B,A"),
    ("x, y", "y, x"),
    ("1/2, 1/3", r"$\frac{1}{3}, \frac{1}{2}$"),
    ("007", "7"),
    ("0123", "123"),
    ("0123", "+123"),
    ("00", "0"),
    ("2E3", "2000"),
    ("1E5", "100000"),
    ("1E5", "1e05"),
    ("5 MB", "5 Mb"),
    ("5 Gb", "5 GB"),
    ("5 MBps", "5 Mbps"),
    ("5K", "5"),
    ("12A", "12"),
    ("2x", "2"),
    ("2xy", "2"),
    ("3D", "3"),
    ("5", "5K"),
    ("5", "5 K"),
    ("5", "5 bn"),
]


@pytest.mark.parametrize(("gold", "answer"), OTHERS)
def test_another_unit_date_code_or_order_is_wrong(gold, answer):
    names = ["rules", "answer", *(["math-verify"] if maths.installed() else [])]
    for name in names:
        assert not get_scorer(name)(task(gold), answer).correct, name


def test_a_factorial_is_its_value_as_mathematics_only():
    assert not is_correct(task("3!"), "6")
    assert is_correct(task("3!"), "3 !")
    assert is_correct(task("6"), "3!")


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("7:00", "07:00"),
        ("10:30 AM", "10:30am"),
        ("10:30 AM", "10:30 a.m."),
        ("2:3", "2 : 3"),
        ("2020-01-05", "2020/01/05"),
        ("2020-01-05", "2020-1-5"),
        ("12/25/2020", "12/25/2020."),
        ("3.0x10^8", "3.0 × 10^{8}"),
        ("3.0x10^8", r"$3.0 \times 10^{8}$"),
        ("25", "5^{2}"),
        ("$5", "5 dollars"),
        ("$5", "5 USD"),
        ("30°", r"30^\circ"),
        ("30°", "30º"),
        ("7B", "7b"),
        ("45 mph", "45 MPH"),
        ("30°", r"$30^{\circ}$"),
        ("5", "I think the answer is 5."),
        ("007", "007"),
        ("007", "The answer is 007."),
        ("2E3", "2e3"),
        ("12/5", "24/10"),
        ("12 kg", "12 Kg"),
        ("5 KB", "5 kB"),
    ],
)
def test_other_notation_of_the_same_is_right(gold, answer):
    assert is_correct(task(gold), answer)


@needs_maths
@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("60 km/h", "60"),
        ("10 m/s^2", "10"),
        ("5 cm", "5"),
        ("7", "3+4 = 7"),
        ("7", "$x = 3+4 = 7$"),
        ("5", "x_1 = 5"),
        ("5", "f(2) = 5"),
        ("0.5", "$1/2$, $0.5$"),
        ("1/2, 1/3", r"$\frac{1}{2}, \frac{1}{3}$"),
        ("[1, 2, 3]", "(1, 2, 3)"),
        (r"\{1, 2\}", r"\{2, 1\}"),
        ("3!", "6"),
    ],
)
def test_mathematics_still_reads_what_is_equal(gold, answer):
    assert get_scorer("answer")(task(gold), answer).how == "math-verify"
    assert get_scorer("answer")(task(gold), answer).correct


@pytest.fixture
def fresh():
    llm.forget()
    yield
    llm.forget()


def _asked(gold: str, answer: str) -> bool:
    """Ask a model that finds everything the same, and return whether it was asked."""

    def same(request):
        check = json.loads(request["messages"][1]["content"])["check"]
        return Reply(completion(json.dumps({"check": check, "same": True})))

    with FakeJudgeServer(same) as server:
        score = get_scorer("answer", model="toy", base_url=server.url)(task(gold), answer)
        assert score.correct is (score.how == "llm")
        return bool(server.requests)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("1000", "1K"),
        ("20 C", "20°"),
        ("10:30", "half past ten"),
        ("2020-01-05", "January 5, 2020"),
        ("60 km/h", "60 kph"),
        ("x^2", "x^3"),
        ("1, 2", "2, 1"),
        ("5", "<6"),
    ],
)
def test_a_model_is_asked_where_only_the_notation_may_differ(fresh, gold, answer):
    pytest.importorskip("openai")
    assert _asked(gold, answer)


@needs_maths
@pytest.mark.parametrize(
    ("gold", "answer"), [("5", "6"), ("0.6", "0.64"), ("5", "The answer is 6."), ("5", "$6$"), ("1,000", "1.0e4")]
)
def test_no_model_is_asked_about_two_plain_numbers(fresh, gold, answer):
    pytest.importorskip("openai")
    assert not _asked(gold, answer)
