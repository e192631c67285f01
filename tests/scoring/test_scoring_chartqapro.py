"""ChartQAPro's relaxed accuracy, held to points computed by hand from the rules of its script."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from codev_env.scoring import aggregate, get_scorer
from codev_env.scoring.chartqapro import relaxed_correctness
from codev_env.types import Task

PIXEL = Image.new("RGB", (1, 1))
OFFICIAL = get_scorer("official")
VECTORS = [
    # Numbers: within 5 % of the right one; percent signs do not count.
    *[("10", text, "NO", 1.0) for text in ("10", "10.4", "9.6", "10%", " 10 ", "1e1")],
    *[("10", text, "NO", 0.0) for text in ("10.6", "-10", "nan", "inf", "ten", "")],
    *[("1.5%", "1.5% %", "NO", 1.0), ("1.5%", "1.5 % % %", "NO", 0.0)],
    *[("50%", "50", "NO", 1.0), ("0", "0.0", "NO", 1.0), ("0", "0.001", "NO", 0.0), ("-10", "-10.5", "NO", 1.0)],
    # Years: the same text.
    *[("2016", "2016", "YES", 1.0), ("2016", "2017", "YES", 0.0), ("2016", "2017", "NO", 1.0)],
    *[("May 2016", " may 2016", "YES", 1.0), ("2016", "2016.0", "YES", 0.0)],
    # Texts: 1 - distance / length, 0 from one half on.
    *[("Germany", "germany", "NO", 1.0), ("Germany", "Germani", "NO", 6 / 7), ("Germany", "France", "NO", 0.0)],
    *[
        ("New  York", "new york", "NO", 1.0),
        ("a", "a)", "NO", 0.0),
        ("abc", "ab", "NO", 2 / 3),
        ("True", "true", "NO", 1.0),
    ],
    *[("true", "false", "NO", 0.0), ("", "", "NO", 1.0), ("", "x", "NO", 0.0), ("5 apples", "5 apple", "NO", 7 / 8)],
    # Lists: entry by entry, over the longer one.
    *[("['a', 'b']", text, "NO", 1.0) for text in ("['a', 'b']", "['A','B']", "[ 'a' , ' b' ]")],
    *[
        ("['a', 'b']", "['b', 'a']", "NO", 0.0),
        ("['a', 'b']", "['a']", "NO", 0.5),
        ("['a']", "['a', 'b', 'c']", "NO", 1 / 3),
    ],
    *[("['a', 'b']", "a, b", "NO", 0.0), ("['a', 'b']", "a", "NO", 0.5), ("[a, b]", "['a', 'b']", "NO", 1.0)],
    *[("[2010, 2012]", "[2010, 2012]", "YES", 1.0), ("[2010, 2012]", "['2010', '2013']", "YES", 0.5)],
    *[("[New York, Rome]", "['New York', 'Rome']", "NO", (7 / 8 + 1) / 2)],  # "New York" is read as "NewYork"
    *[("[]", "[]", "NO", 1.0), ("[1.5]", "1.5", "NO", 1.0), ("10", "[10]", "NO", 1.0), ("[x", "[x", "NO", 1.0)],
]


@pytest.mark.parametrize(("gold", "answer", "year", "points"), VECTORS)
def test_the_script_s_rules(gold, answer, year, points):
    assert relaxed_correctness(gold, answer, [year]) == pytest.approx(points)


def test_each_right_answer_has_its_own_flag():
    assert relaxed_correctness("[2010, 100]", "['2010', '101']", ["YES", "NO"]) == 1.0
    assert relaxed_correctness("[2010, 100]", "['2011', '101']", ["YES", "NO"]) == 0.5


def task(answer: str, category: str = "Factoid", **meta) -> Task:
    return Task("t", (PIXEL,), "?", answer, category=category, meta={"bench": "chartqapro", **meta})


def test_the_scorer_takes_flags_and_the_last_one_of_a_conversation():
    assert OFFICIAL(task("2016.", year=["YES"]), "<answer>2016.</answer>").correct
    assert not OFFICIAL(task("2016", year=["YES"]), "2017").correct
    assert OFFICIAL(task("2016", "Conversational", year=["YES", "NO"]), "2017").correct
    assert OFFICIAL(task("2016"), "2017").correct
    half = OFFICIAL(task("['a', 'b']", year=["NO"]), "['a', 'c']")
    assert (half.correct, half.points) == (False, 0.5)


def test_totals_are_means_of_points():
    scored = [(task("['a', 'b']"), "['a']"), (task("10"), "10"), (task("true", "Fact Checking"), "false")]
    found = aggregate("chartqapro", [(asked, OFFICIAL(asked, text)) for asked, text in scored])
    assert found == pytest.approx({"overall": 0.5, "Factoid": 0.75, "Fact Checking": 0.0})


@given(
    *[st.text(max_size=20) | st.text("[]',.0123456789ab% ()", max_size=20)] * 2,
    st.lists(st.sampled_from(["YES", "no"]), min_size=1),
)
def test_any_texts_get_points(gold, answer, years):
    assert 0 <= relaxed_correctness(gold, answer, years) <= 1


@pytest.mark.parametrize("answer", ["[" * 50_000, "[" + "9" * 9000 + "]", "-" * 9000 + "1", "[" + "(" * 300 + "]"])
def test_hostile_answers_are_wrong_at_once(answer):
    assert relaxed_correctness("10", answer, ["NO"]) == 0.0
