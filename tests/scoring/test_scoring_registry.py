"""Scorers by name, totals by benchmark, the table of the documentation, and V*Bench's first-option trap."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from codev_env.errors import ConfigError
from codev_env.scoring import BENCHES, SCORERS, Score, aggregate, get_scorer
from codev_env.scoring.compare import table
from codev_env.scoring.scorer import untagged
from codev_env.tasks import VStarTaskSet
from codev_env.types import Task

PIXEL = Image.new("RGB", (1, 1))


def task(category: str = "", **meta) -> Task:
    return Task("t", (PIXEL,), "?", "a", category=category, meta=meta)


def always_right(task: Task, answer: str) -> Score:
    return Score(True, answer, "text", "always")


def a_truth_value(task: Task, answer: str) -> bool:
    return True


class WithOption:
    def __init__(self, word: str = "yes") -> None:
        self.word = word

    def __call__(self, task: Task, answer: str) -> Score:
        return Score(answer == self.word)


NOT_CALLABLE = 3


def test_the_default_is_the_projects_own():
    assert get_scorer()(task(), "The answer is A!") == get_scorer("rules")(task(), "The answer is A!")
    assert get_scorer()(task(), "the answer is a").correct


def test_a_scorer_from_elsewhere():
    assert get_scorer(f"{__name__}:always_right")(task(), "x") == Score(True, "x", "text", "always")
    assert get_scorer(f"{__name__}:WithOption", word="no")(task(), "no").correct


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("offical", {}, "Did you mean 'official'"),
        ("no_such_module:x", {}, "cannot import the scorer"),
        (f"{__name__}:no_such_thing", {}, "cannot import the scorer"),
        (":x", {}, "cannot import the scorer"),
        (f"{__name__}:NOT_CALLABLE", {}, "is a int"),
        ("rules", {"strict": True}, "has no options"),
        ("official", {"jugde": None}, r"options \['jugde'\].*Its options: judge"),
        (f"{__name__}:always_right", {"x": 1}, "has no options"),
    ],
)
def test_what_cannot_be_had(name, options, message):
    with pytest.raises(ConfigError, match=message):
        get_scorer(name, **options)


def test_a_truth_value_is_no_score():
    with pytest.raises(ConfigError, match="returned a bool"):
        get_scorer(f"{__name__}:a_truth_value")(task(), "x")


def test_a_truth_value_is_told_alike_for_a_path_and_for_a_function():
    with pytest.raises(ConfigError, match=r"it must return a codev_env.scoring.Score, for example Score\(correct=True"):
        get_scorer(f"{__name__}:a_truth_value")(task(), "x")


def test_no_language_model_without_its_name():
    with pytest.raises(ConfigError, match="name the model|openai"):
        get_scorer("llm")


def test_every_name_is_known():
    needs = {"llm": {"model": "m"}}
    for name in SCORERS:
        try:
            assert callable(get_scorer(name, **needs.get(name, {})))
        except ConfigError as error:
            assert "pip install" in str(error)


# ---- totals


def test_vstar_totals_are_over_questions():
    scored = [(task("direct_attributes"), True)] * 3 + [(task("relative_position"), Score(False))]
    assert aggregate("vstar", scored) == {"overall": 0.75, "direct_attributes": 1.0, "relative_position": 0.0}


def test_hrbench_totals_are_means_over_cycles():
    scored = [
        (task("single", cycle_category="0"), True),
        (task("single", cycle_category="0"), True),
        (task("cross", cycle_category="0"), False),
        (task("cross", cycle_category="0"), False),
        (task("single", cycle_category="1"), True),
        (task("cross", cycle_category="1"), Score(True)),
        (task("cross", cycle_category="2"), False),
    ]
    totals = aggregate("hrbench4k", iter(scored))
    assert totals["overall"] == (0.5 + 1 + 0) / 3, "not 4 / 7"
    assert (totals["single"], totals["cross"]) == (1.0, (0 + 1 + 0) / 3)
    assert (totals["cycle/0"], totals["cycle/1"], totals["cycle/2"]) == (0.5, 1.0, 0.0)


def test_mathvista_totals():
    one = task(question_type="free_form", answer_type="float", metadata={"task": "geometry", "skills": ["x", "y"]})
    two = task(question_type="multi_choice", answer_type="text", metadata={"task": "geometry", "skills": ["y"]})
    totals = aggregate("mathvista", [(one, True), (two, False)])
    assert totals == {
        "overall": 0.5,
        "answer_type/float": 1.0,
        "answer_type/text": 0.0,
        "question_type/free_form": 1.0,
        "question_type/multi_choice": 0.0,
        "skills/x": 1.0,
        "skills/y": 0.5,
        "task/geometry": 0.5,
    }


def test_totals_that_cannot_be_made():
    with pytest.raises(ConfigError, match="Did you mean 'vstar'"):
        aggregate("v-star", [(task(), True)])
    with pytest.raises(ConfigError, match="no scored tasks"):
        aggregate("vstar", [])
    with pytest.raises(ConfigError, match="cycle_category"):
        aggregate("hrbench8k", [(task("single"), True)])


# ---- documentation


def test_the_table_in_the_documentation_is_what_the_command_prints():
    text = (Path(__file__).parents[2] / "docs" / "scorers.md").read_text(encoding="utf-8")
    assert "\n".join(table()) in text


# ---- the first-option trap


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """V*Bench's folder form, 160 questions of 4 options and 80 of 2; the first option is the right one."""
    picture = Image.new("RGB", (8, 8))
    for category, options, count in (("direct_attributes", 4, 160), ("relative_position", 2, 80)):
        (tmp_path / category).mkdir()
        for number in range(count):
            place = tmp_path / category / f"sa_{number}"
            picture.save(place.with_suffix(".png"))
            note = {
                "target_object": ["mug"],
                "bbox": [[1, 1, 2, 2]],
                "question": "What is it?",
                "options": ["the right one", *(f"wrong {i}" for i in range(1, options))],
            }
            place.with_suffix(".json").write_text(json.dumps(note), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("scorer", ["rules", "official", "vlmevalkit", "lmms"])
@pytest.mark.parametrize("letter", ["A", "B"])
def test_always_the_same_letter_is_right_by_chance_only(folder, scorer, letter):
    tasks, score = VStarTaskSet(folder, seed=1), get_scorer(scorer)
    totals = aggregate("vstar", [(tasks[i], score(tasks[i], letter)) for i in range(len(tasks))])
    # Four standard deviations of the share that a fair shuffle gives.
    assert totals["direct_attributes"] == pytest.approx(1 / 4, abs=4 * (0.25 * 0.75 / 160) ** 0.5)
    assert totals["relative_position"] == pytest.approx(1 / 2, abs=4 * (0.5 * 0.5 / 80) ** 0.5)


def test_the_right_text_is_always_right(folder):
    tasks, score = VStarTaskSet(folder), get_scorer("rules")
    assert aggregate("vstar", [(tasks[i], score(tasks[i], "the right one")) for i in range(240)])["overall"] == 1.0


def test_the_benchmarks_with_totals_of_their_own_are_public():
    assert BENCHES == ("vstar", "hrbench4k", "hrbench8k", "mathvista")


def test_the_last_answer_in_tags_is_taken_and_hostile_texts_end():
    assert untagged("<answer>a</answer> or <ANSWER> b </Answer> <answer>c") == "b"
    assert untagged("<answer>c ") == "<answer>c"
    assert untagged("<answer>" * 100_000) == "<answer>" * 100_000
