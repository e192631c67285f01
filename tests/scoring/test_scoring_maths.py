"""`math-verify`: equal mathematics counts, anything else does not, and no answer can hang or end the scorer."""

from __future__ import annotations

import os
import pickle
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from codev_env.errors import ConfigError
from codev_env.scoring import Score, ScorerError, get_scorer, maths
from codev_env.types import Task

pytest.importorskip("math_verify")

PIXEL = Image.new("RGB", (1, 1))


def task(answer: str, choices: tuple[str, ...] = ()) -> Task:
    return Task("t", (PIXEL,), "?", answer, choices)


@pytest.fixture(scope="module")
def score():
    return get_scorer("math-verify", cpu_s=1.0)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("0.5", "1/2"),
        (r"\frac{1}{2}", r"\frac12"),
        (r"\frac{3}{4}", "0.75"),
        (r"\frac{3}{4}", "The answer is 3/4."),
        (r"2\sqrt{3}", r"\sqrt{12}"),
        (r"2\sqrt{3}", r"<answer>$\sqrt{12}$</answer>"),
        (r"2\sqrt{3}", r"\boxed{\sqrt{12}}"),
        ("x^2+2x+1", "(x+1)^2"),
        ("2x", "x+x"),
        ("2x", "x*2"),
        ("2x", "it is 2x"),
        ("xy", "y*x"),
        (r"2\pi", "2π"),
        ("12", "3*4"),
        ("10", "x = 10"),
        ("5", "there are 5 apples"),
        ("5", "5cm"),
        ("5", "The area is $10/2$."),
        ("5 cm", r"5 \text{cm}"),
        ("5 cm", "$5$"),
        ("[2007, 2008]", "[2007,2008]"),
        ("1000", "1,000"),
    ],
)
def test_equal(score, gold, answer):
    assert score(task(gold), answer).correct


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("5", "3 or 5"),
        ("5", "$3$ or $5$"),
        ("5", "not 5"),
        ("5", "less than $5$"),
        ("5", "it isn't $5$"),
        ("5", "3 apples, 5 pears"),
        ("5", "5 million"),
        ("5", "5x"),
        ("5", "-5"),
        ("-5", "5"),
        ("10", "sin 10"),
        ("5 cm", "5 m"),
        ("5 m", "5 mm"),
        ("x", "2x"),
        ("12", "13"),
        (r"\frac{1}{2}", r"\frac{1}{3}"),
        ("red", "9"),
        ("3 apples", "3 oranges"),
        ("5", ""),
        ("5", "$$"),
    ],
)
def test_not_equal(score, gold, answer):
    assert score(task(gold), answer).correct is False


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("ON", "NO"),
        ("ON", "$NO$"),
        ("ON", r"\boxed{NO}"),
        ("ON", "It is NO."),
        ("no", "on"),
        ("AM", "MA"),
        ("UK", "KU"),
        ("go to", "to go"),
        ("да", "ад"),
        ("日本", "本日"),
        ("की", "कि"),
        ("7B", "B7"),
        ("7 B", "B 7"),
        ("A1", "1A"),
        ("K9", "9K"),
        ("K9", "9"),
        ("2nd", "nd2"),
        ("E5", "5E"),
        ("12A", "A12"),
        ("AB-12", "BA-12"),
    ],
)
def test_words_and_codes_are_no_products_of_letters(score, gold, answer):
    assert not score(task(gold), answer).correct
    assert score(task(gold), gold.lower()).correct
    assert score(task(gold), f"It is {gold}.").correct
    assert get_scorer("answer")(task(gold), f"It is {gold}.").correct


def test_choices_and_plain_matches_are_for_the_rules(score):
    assert score(task("1/2", ("1/2", "1/3")), "B") == get_scorer("rules")(task("1/2", ("1/2", "1/3")), "B")
    assert score(task("red"), "Red.").how == "text"
    assert score(task("0.5"), "0.50").how == "number"
    assert score(task(r"\sqrt{4}"), "2").how == "math"


@pytest.mark.parametrize(
    "answer",
    [
        "$9^{9^{9^{9^{9}}}}$",
        pytest.param("$100000000!$", marks=pytest.mark.integration),
        pytest.param("$(x+y+z)^{3000}$", marks=pytest.mark.integration),
        pytest.param(r"$\sum_{i=1}^{10^{10}} i!$", marks=pytest.mark.integration),
        "${{{{{{{{{{{{{{{1}}}}}}}}}}}}}}}$",
    ],
)
def test_slow_answers_are_wrong(score, answer):
    found = score(task("7"), answer)
    assert (found.correct, found.how) == (False, "none")
    assert "CPU time" in found.why or "ended the worker" in found.why or "parse" in found.why


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("9**9**9**9**9**9", "not equal"),
        ("1" * 900, "not equal"),
        ("1" * 1_000_000, "longer than"),
        (r"\frac{" * 100 + "1", "nested deeper"),
        ("{" * 400 + "}" * 400, "nested deeper"),
        (r"\sqrt" * 150, ""),
        ("-" * 900, ""),
        ("$" * 900, ""),
        ("\x00\ud800", ""),
    ],
)
def test_hostile_answers_are_wrong(score, answer, why):
    found = score(task("7"), answer)
    assert found.correct is False
    assert why in found.why


@given(st.text(r"0123456789+-*/^(){}\$fracsqt., ", max_size=30))
@settings(max_examples=60)
def test_any_text_gets_a_score(score, text):
    assert isinstance(score(task("7"), text), Score)


def test_a_right_answer_that_does_not_parse_is_an_error(score):
    for gold in (r"\frac{", "(" * 20 + "1", "+" * 2000):
        with pytest.raises(ScorerError, match="its own answer"):
            score(task(gold), "7")


def test_from_threads_and_after_pickling(score):
    found: list[Score] = []
    again = pickle.loads(pickle.dumps(score))
    threads = [threading.Thread(target=lambda: found.append(again(task("0.5"), r"\frac{1}{2}"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [f.correct for f in found] == [True] * 4


@pytest.mark.integration
def test_after_a_fork(score):
    assert score(task("0.5"), r"\frac{1}{2}").correct
    child = os.fork()
    if child == 0:
        os._exit(0 if score(task(r"\sqrt{4}"), "$1+1$").correct else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert score(task("0.5"), r"\frac{1}{2}").correct


def test_a_worker_that_was_killed_is_replaced(score):
    assert score(task("0.5"), r"\frac{1}{2}").correct
    assert maths._worker is not None
    maths._worker.process.kill()
    maths._worker.process.wait()
    assert score(task("0.5"), r"\frac{1}{2}").correct


def test_a_worker_starts_where_very_many_descriptors_are_open(score, many_descriptors):
    maths._stop()
    assert score(task("0.5"), r"\frac{1}{2}").correct


@pytest.mark.integration
def test_an_interrupted_answer_does_not_answer_the_next(score, monkeypatch):
    assert score(task("0.5"), r"\frac{1}{2}").correct

    def interrupted(self, seconds):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(maths._Worker, "read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            score(task("0.5"), r"\frac{1}{2}")
    assert score(task("0.5"), r"\frac{1}{3}").correct is False


@pytest.mark.parametrize("cpu_s", [0, -1, float("inf"), float("nan")])
def test_impossible_limits(cpu_s):
    with pytest.raises(ConfigError, match="cpu_s"):
        get_scorer("math-verify", cpu_s=cpu_s)


def test_without_the_package(monkeypatch):
    monkeypatch.setattr(maths.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install"):
        get_scorer("math-verify")
