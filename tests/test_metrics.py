from __future__ import annotations

import dataclasses
import json
import math

import pytest
from PIL import Image

from codev_env.geometry import ImageBox
from codev_env.scoring.metrics import is_lazy, published_score, summarize, summarize_groups, wilson
from codev_env.trajectory import Trajectory
from codev_env.types import Answer, Code, Execution, Invalid, Step, StepScore

IMAGE = Image.new("RGB", (100, 100))


def episode(correct: bool, faithful: bool, *turns: Step) -> Trajectory:
    return Trajectory("t", images=(IMAGE,), turns=turns, is_correct=correct, is_faithful=faithful)


def crop(*boxes, error=None, reward=0.0) -> Step:
    execution = Execution(error=error, stop="error" if error else "ok")
    return Step("", Code(""), execution, score=StepScore(0.0), crop_boxes=boxes, reward=reward)


ANSWER = Step("", Answer(""), reward=1.0)


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [  # from statsmodels.stats.proportion.proportion_confint(method="wilson") and Brown, Cai, DasGupta 2001
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (1, 10, 0.0179, 0.4042),
        (5, 10, 0.2366, 0.7634),
        (50, 100, 0.4038, 0.5962),
        (8, 10, 0.4902, 0.9433),
    ],
)
def test_wilson_known_values(hits, n, low, high):
    assert wilson(hits, n) == pytest.approx([low, high], abs=5e-5)


def test_what_nobody_judged_is_not_unfaithful():
    unjudged = Step("", Code(""), Execution(), crop_boxes=((0, 0, 10, 10),))
    alone = summarize([episode(True, False, unjudged, ANSWER)] * 3)
    assert (alone["n"], alone["n_judged"], alone["accuracy"]) == (3, 0, 1.0)
    for name in ("faithful", "faithful_given_correct", "faithful_and_correct", "faithful_calls"):
        assert alone[name] is None and alone["ci95"][name] is None
    beside = summarize([episode(True, False, unjudged, ANSWER), episode(True, True, crop((0, 0, 10, 10)), ANSWER)])
    assert beside["faithful"] == beside["faithful_given_correct"] == 1.0
    boxes = dataclasses.replace(episode(True, False, ANSWER), targets=((0, 0, 5, 5),))
    assert summarize([boxes])["faithful"] == 0.0, "an episode without a tool call looked at nothing"


def test_without_boxes_an_episode_without_calls_is_judged_only_where_such_calls_are():
    idle = episode(True, False, ANSWER)
    alone = summarize([idle, idle])
    assert (alone["n_judged"], alone["faithful"]) == (0, None)
    beside = summarize([idle, idle, episode(True, True, crop((0, 0, 10, 10)), ANSWER)])
    assert (beside["n_judged"], beside["faithful"]) == (3, 1 / 3)


def test_rates_and_means():
    summary = summarize(
        [
            episode(True, True, crop((0, 0, 10, 10)), ANSWER),
            episode(True, False, crop((0, 0, 100, 91), None), crop(error="x", reward=-0.5), ANSWER),
            episode(False, True, Step("", Invalid("")), crop((0, 0, 100, 90)), ANSWER),
            episode(False, False, ANSWER),
        ]
    )
    assert {name: summary[name] for name in summary if name != "ci95"} == {
        "n": 4,
        "n_judged": 4,
        "accuracy": 0.5,
        "faithful": 0.5,
        "faithful_given_correct": 0.5,
        "faithful_and_correct": 0.25,
        "faithful_calls": 0.0,
        "any_crop": 0.0,
        "any_crop_and_correct": 0.0,
        "faithful_definition": "unversioned",
        "lazy": 0.25,
        "tool_calls": 1.0,
        "crops": 0.75,
        "invalid_turns": 0.25,
        "errors": 0.25,
        "turns": 9 / 4,
        "reward_mean": 3.5 / 4,
    }
    assert summary["ci95"].keys() == summary.keys() - {"n", "n_judged", "faithful_definition", "ci95"}
    assert summary["ci95"]["faithful_given_correct"] == wilson(1, 2)
    for name, interval in summary["ci95"].items():
        assert interval[0] <= summary[name] <= interval[1]


def test_a_crop_is_lazy_by_the_image_that_it_is_a_part_of():
    small, large = Image.new("RGB", (100, 100)), Image.new("RGB", (1000, 1000))
    tenth, whole = ImageBox((0, 0, 300, 350), 1), ImageBox((0, 0, 100, 100), 1)
    assert not is_lazy(Trajectory("t", images=(small, large), turns=(crop(tenth),)))
    assert is_lazy(Trajectory("t", images=(large, small), turns=(crop(whole),)))
    assert not is_lazy(Trajectory("t", turns=(crop(whole),))), "of an image that was not recorded"


def judged_by(definition: str, faithful: bool = True) -> Trajectory:
    score = StepScore(1.0, "", faithful, any_crop=True, definition=definition)
    return episode(True, faithful, dataclasses.replace(crop((0, 0, 10, 10)), score=score), ANSWER)


def test_the_papers_criterion_stands_beside():
    summary = summarize([judged_by("boxes 2"), judged_by("boxes 2", faithful=False)])
    assert (summary["faithful"], summary["any_crop"], summary["any_crop_and_correct"]) == (0.5, 1.0, 1.0)
    assert summary["faithful_definition"] == "boxes 2"


def test_rates_of_different_definitions_are_not_mixed():
    summary = summarize([judged_by("boxes 2"), judged_by(""), judged_by("boxes 2, view of 4900 pixels")])
    assert summary["faithful_definition"] == "mixed: boxes 2 | boxes 2, view of 4900 pixels | unversioned"
    for name in ("faithful", "faithful_given_correct", "faithful_and_correct", "any_crop", "faithful_calls"):
        assert summary[name] is None and summary["ci95"][name] is None
    assert summary["accuracy"] == 1.0
    # Episodes without a call were judged by no definition.
    idle = dataclasses.replace(episode(True, False, ANSWER), targets=((0, 0, 5, 5),))
    assert summarize([judged_by("boxes 2"), idle])["faithful_definition"] == "boxes 2"


@pytest.mark.parametrize("episodes", [[], [episode(False, True, ANSWER)], [episode(False, True, ANSWER)] * 5])
def test_undefined_is_none_and_json_has_no_nan(episodes):
    summary = summarize(episodes)
    assert summary["faithful_given_correct"] is None and summary["ci95"]["faithful_given_correct"] is None
    json.dumps(summary, allow_nan=False)


def test_bootstrap_is_seeded_and_close_to_the_normal_interval():
    episodes = [episode(True, True, *[ANSWER] * (1 + i % 3)) for i in range(300)]
    summary = summarize(episodes, seed=3)
    assert summary == summarize(episodes, seed=3)
    half = 1.96 * math.sqrt(2 / 3 / 300)
    assert summary["ci95"]["turns"] == pytest.approx([2 - half, 2 + half], abs=0.03)


def test_a_mean_of_equal_values_has_no_interval():
    summary = summarize([episode(i % 2 == 0, True, ANSWER) for i in range(20)])
    assert summary["turns"] == 1.0 and summary["ci95"]["turns"] is None
    low, high = summary["ci95"]["accuracy"]
    assert low < 0.5 < high


def told(correct: bool, category: str = "", **task) -> Trajectory:
    return Trajectory("t", turns=(ANSWER,), is_correct=correct, category=category, meta={"task": task} if task else {})


def test_rates_of_each_part():
    episodes = [told(True, "b"), told(False, "a"), told(False, "b"), told(True)]
    found = summarize_groups(episodes)
    assert list(found) == ["by_category"] and list(found["by_category"]) == ["b", "a"]
    assert [group["accuracy"] for group in found["by_category"].values()] == [0.5, 0.0]
    assert found["by_category"]["a"] == summarize([episodes[1]])
    wrapped = [told(True, variant="source"), told(False, variant="rotate_90")]
    assert list(summarize_groups(wrapped)) == ["by_variant"]
    assert summarize_groups([told(True)]) == {}


def test_the_published_total():
    # Two questions in two cycles, one of them asked once more: the mean over cycles is not that over questions.
    rows = [("0", True), ("1", False), ("0", True), ("1", False), ("1", True)]
    episodes = [told(correct, "single", cycle_category=cycle) for cycle, correct in rows]
    score = published_score("hrbench4k", episodes)
    assert score is not None and score["overall"] == pytest.approx((1 + 1 / 3) / 2)
    assert score["cycle/1"] == pytest.approx(1 / 3)
    # CodeVision's average over the variants, the source included; whatever the benchmark.
    wrapped = [told(True, variant="source"), told(True, variant="source"), told(False, variant="rotate_90")]
    assert published_score("dataset", wrapped) == {"overall": 0.5, "variant/source": 1.0, "variant/rotate_90": 0.0}
    assert published_score("dataset", [told(True)]) is None
    assert published_score("hrbench4k", [told(True)]) is None
    assert published_score("vstar", [told(True, "direct_attributes"), told(False, "relative_position")]) == {
        "overall": 0.5, "direct_attributes": 1.0, "relative_position": 0.0,
    }  # fmt: skip
