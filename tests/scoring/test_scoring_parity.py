"""`official`, `vlmevalkit` and `lmms` read what the originals read, and where they cannot, they say so."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scoring_vectors import (
    COLORS,
    LMMS_HRBENCH,
    LMMS_VSTAR,
    MATHVISTA_CHOICES,
    MATHVISTA_OPEN,
    VLMEVALKIT,
    VLMEVALKIT_FIRST,
)

from codev_env.errors import ConfigError, TaskError
from codev_env.scoring import Score, ScorerError, get_scorer, is_correct
from codev_env.scoring.lmms import vstar_letter
from codev_env.scoring.official import score_losses
from codev_env.scoring.scorer import edit_distance
from codev_env.scoring.vlmevalkit import OLDER, match_option
from codev_env.types import Task

PIXEL = Image.new("RGB", (1, 1))
OPTIONS = dict(zip("ABCD", COLORS, strict=True))
NAMES = ("rules", "official", "vlmevalkit", "lmms")
BENCHES = ("vstar", "hrbench4k", "hrbench8k", "mathvista")


def task(bench: str, answer: str, choices: tuple[str, ...] = (), **meta) -> Task:
    return Task("t", (PIXEL,), "?", answer, choices, meta={"bench": bench, **meta})


def test_there_are_enough_vectors():
    assert len(VLMEVALKIT) >= 63
    assert len(LMMS_VSTAR) + len(LMMS_HRBENCH) >= 63
    assert len(MATHVISTA_CHOICES) + len(MATHVISTA_OPEN) >= 63


@pytest.mark.parametrize(("text", "letter"), VLMEVALKIT)
def test_vlmevalkit_reads_a_letter(text, letter):
    assert match_option(text, OPTIONS) == letter


@pytest.mark.parametrize("bench", ["vstar", "hrbench4k"])
@pytest.mark.parametrize(("text", "letter"), [row for row in VLMEVALKIT if "<answer>" not in row[0]])
def test_vlmevalkit_scores_what_it_read(bench, text, letter):
    score = get_scorer("vlmevalkit")(task(bench, "blue", COLORS), text)
    assert score.correct is (letter == "B")
    assert score.extracted == OPTIONS.get(letter or "", "")
    assert (score.how == "none") is (score.extracted == "")


@pytest.mark.parametrize("bench", ["treebench", "mme-realworld-lite"])
@pytest.mark.parametrize(("text", "letter"), VLMEVALKIT_FIRST)
def test_vlmevalkit_takes_the_first_letter_on_treebench_and_mme_realworld(bench, text, letter):
    options = ("Upper right", "Upper left", "Lower left", "Lower right", "no such thing")
    score = get_scorer("vlmevalkit")(task(bench, "Upper left", options), text)
    assert score.extracted == (options["ABCDE".index(letter)] if letter else "")
    assert score.correct is (letter == "B")


def test_vlmevalkit_counts_chartqapro_as_its_authors_do():
    asked = task("chartqapro", "['2010', '100']", year=["YES", "NO"])
    assert [get_scorer("vlmevalkit")(asked, f"['{year}', '101']").points for year in (2010, 2011)] == [1.0, 0.5]


@pytest.mark.parametrize(("text", "letter"), LMMS_HRBENCH)
def test_lmms_reads_a_letter_on_hrbench(text, letter):
    assert match_option(text, OPTIONS, OLDER) == letter
    if "<answer>" not in text:
        for bench in ("hrbench4k", "hrbench8k"):
            score = get_scorer("lmms")(task(bench, "blue", COLORS), text)
            assert (score.correct, score.extracted) == (letter == "B", OPTIONS.get(letter or "", ""))


@pytest.mark.parametrize(("text", "letter"), LMMS_VSTAR)
def test_lmms_reads_a_letter_on_vstar(text, letter):
    assert vstar_letter(text)[0] == letter
    if "<answer>" not in text:
        score = get_scorer("lmms")(task("vstar", "blue", COLORS), text)
        assert (score.correct, score.extracted) == (letter == "B", OPTIONS.get(letter or "", ""))


def test_lmms_may_read_a_letter_that_is_no_option():
    assert get_scorer("lmms")(task("vstar", "left", ("left", "right")), "D").how == "none"


@pytest.mark.parametrize(("text", "choices", "official", "vlmevalkit"), MATHVISTA_CHOICES)
def test_mathvista_choices(text, choices, official, vlmevalkit):
    for gold in choices:
        asked = task("mathvista", gold, choices, question_type="multi_choice", answer_type="text")
        reads = {"official": official, "vlmevalkit": vlmevalkit, "lmms": official}
        for name, read in reads.items():
            score = get_scorer(name)(asked, text)
            assert (name, score.extracted, score.correct) == (name, read or "", read == gold)


@pytest.mark.parametrize(("kind", "precision", "gold", "text", "verdicts"), MATHVISTA_OPEN)
def test_mathvista_open_answers(kind, precision, gold, text, verdicts):
    asked = task("mathvista", gold, question_type="free_form", answer_type=kind, precision=precision)
    found = [get_scorer(name)(asked, text).correct for name in ("official", "vlmevalkit", "lmms")]
    assert "".join("y" if correct else "n" for correct in found) == verdicts


def test_official_tells_how_it_read_a_choice():
    asked = task("mathvista", "8/11", ("3/11", "8/11"), question_type="multi_choice")
    official = get_scorer("official")
    assert official(asked, "(B)").how == "letter"
    assert official(asked, "8/12").how == "edit distance"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bench", BENCHES)
def test_the_answer_tag_is_taken_off_first(name, bench):
    asked = task(bench, "blue", COLORS, question_type="multi_choice")
    assert get_scorer(name)(asked, "<answer>B</answer>").correct
    assert not get_scorer(name)(asked, "<answer>A</answer>").correct


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bench", BENCHES)
@given(text=st.text(max_size=60) | st.text("ABCD abcd().:*<>[]answerisblue", max_size=60))
def test_any_text_gets_a_score(name, bench, text):
    score = get_scorer(name)(task(bench, "blue", COLORS, question_type="multi_choice"), text)
    assert isinstance(score, Score)
    assert score.correct == (score.extracted == "blue")
    assert "\n" not in score.why


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bench", BENCHES)
@pytest.mark.parametrize("text", ["A " * 20_000, "answer " * 10_000, "(" * 50_000, " " * 50_000, "a" * 50_000])
def test_long_answers_are_read(name, bench, text):
    assert get_scorer(name)(task(bench, "blue", COLORS, question_type="multi_choice"), text).correct is False


@pytest.mark.parametrize("kind", ["integer", "float", "list"])
@given(text=st.text(max_size=40) | st.text("0123456789.,eE+-_ []", max_size=40) | st.just("9" * 5000))
def test_any_open_answer_gets_a_score(kind, text):
    asked = task("mathvista", "14", question_type="free_form", answer_type=kind, precision=1)
    assert all(isinstance(get_scorer(name)(asked, text), Score) for name in NAMES)


@pytest.mark.parametrize("name", ["official", "vlmevalkit", "lmms"])
@pytest.mark.parametrize("kind", [None, "number"])
def test_an_unknown_answer_type_is_an_error(name, kind):
    with pytest.raises(TaskError, match="answer_type.*'rules' or 'math-verify'"):
        get_scorer(name)(task("mathvista", "14", answer_type=kind), "14")


def test_vlmevalkit_knows_no_other_open_questions():
    with pytest.raises(ConfigError, match=r"meta\['bench'\] is 'charts'"):
        get_scorer("vlmevalkit")(task("charts", "14", answer_type="text"), "14")


def test_lmms_knows_its_benchmarks_only():
    with pytest.raises(ConfigError, match=r"meta\['bench'\] 'mvtool'"):
        get_scorer("lmms")(task("mvtool", "blue", COLORS), "B")
    vstar = Task("t", (PIXEL,), "?", "blue", COLORS, category="direct_attributes")
    assert get_scorer("lmms")(vstar, "Beige").correct, "V*Bench is known by its categories"


@pytest.mark.parametrize("bench", ["vstar", "hrbench4k", "hrbench8k"])
def test_official_says_when_it_only_follows_the_rules(bench):
    asked = task(bench, "blue", COLORS)
    for text in ("B", "A or B", "blue", "nothing"):
        score = get_scorer("official")(asked, text)
        assert score.correct == is_correct(asked, text)
        assert "read by rules" in score.why


def test_official_asks_the_judge_it_is_given_on_hrbench_only():
    asked: list[str] = []

    def judge(task: Task, answer: str) -> Score:
        asked.append(answer)
        return Score(True, answer, "llm")

    official = get_scorer("official", judge=judge)
    assert official(task("hrbench8k", "blue", COLORS), "azure").how == "llm"
    assert official(task("vstar", "blue", COLORS), "azure").correct is False
    assert asked == ["azure"]


def test_the_lowest_loss_is_the_answer():
    asked = task("vstar", "blue", COLORS)
    assert score_losses(asked, [2.0, 0.5, 3.0, 0.6]).correct
    assert score_losses(asked, [0.4, 0.5, 3.0, 0.6]).extracted == "red"
    assert score_losses(asked, [1.0] * 4).extracted == "red", "ties go to the first one shown"
    for losses in ([], [1.0], [math.nan, 1.0, 1.0, 1.0], [math.inf] * 4):
        with pytest.raises(ScorerError, match="expected 4 finite numbers"):
            score_losses(asked, losses)


def _slow_edit_distance(a: str, b: str) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, start=1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


@given(st.text("abcé ", max_size=80), st.text("abcé ", max_size=80))
def test_edit_distance(a, b):
    assert edit_distance(a, b) == _slow_edit_distance(a, b)


@given(st.text("abc", max_size=20), st.integers(0, 400))
def test_edit_distance_of_unequal_lengths(a, more):
    assert edit_distance(a, a + "d" * more) == edit_distance("d" * more + a, a) == more
