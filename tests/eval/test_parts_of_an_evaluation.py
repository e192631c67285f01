"""Rates of parts of one evaluation: whether its judge needs boxes is decided once, over all its episodes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from PIL import Image

from codev_env.geometry import ImageBox
from codev_env.scoring.metrics import summarize
from codev_env.trajectory import Trajectory
from codev_env.types import Answer, Code, Execution, Region, Step, StepScore
from codev_eval.bench.measures import by_provenance, measure, suite_table
from codev_eval.compare import compare
from codev_eval.report.condition_pages import write_condition_pages
from codev_eval.report.tables import tables

ANSWER = Step("", Answer(""))
LOOK = Step("", Code("x"), Execution(), score=StepScore(1.0, faithful=True, definition="vlm 1"))
UNJUDGED = dataclasses.replace(LOOK, score=None)


def played(name: str, *turns: Step, category: str = "", right: bool = True, bench: str = "", **task: Any) -> Trajectory:
    meta: dict[str, Any] = {"eval": {"bench": bench}} | ({"task": task} if task else {})
    looked = any(turn.faithful for turn in turns)
    return Trajectory(name, turns=(*turns, ANSWER), category=category, is_correct=right, is_faithful=looked, meta=meta)


def test_a_category_without_a_call_is_unfaithful_where_the_judge_needs_no_boxes() -> None:
    episodes = [played("a", LOOK, category="looked"), played("b", category="idle"), played("c", category="idle")]
    idle = measure(episodes, "dataset")["by_category"]["idle"]
    assert (idle["n_judged"], idle["faithful"], idle["faithful_and_correct"]) == (2, 0.0, 0.0)
    assert idle["ci95"]["faithful"] == summarize(episodes[1:], boxless=True)["ci95"]["faithful"]
    assert idle["confusion"]["unfaithful_correct"] == 2
    assert summarize(episodes[1:])["faithful"] is None, "alone they do not show what the judge can do"


def test_the_same_with_several_samples() -> None:
    episodes = [played(name, category="idle") for name in "aabb"] + [played("c", LOOK, category="looked")]
    idle = measure(episodes, "dataset")["by_category"]["idle"]
    assert (idle["faithful"], idle["n_judged"]) == (0.0, 4) and idle["ci95"]["faithful"] is not None


def test_variants_judged_by_another_definition_have_no_common_faithful_rate() -> None:
    newer = dataclasses.replace(LOOK, score=StepScore(1.0, faithful=True, definition="vlm 2"))
    table = suite_table([played("a", LOOK)], [played("a", newer, variant="rotate_90")])
    assert table["mean"] == {"accuracy": 1.0, "faithful": None}
    [shown] = tables({"suites": {"orientation": table}})
    assert shown.rows[-1] == ("average", "", "100 %", "–") and "vlm 1; vlm 2" in shown.note


def test_without_any_judged_call_nothing_is_judged() -> None:
    episodes = [played("a", UNJUDGED, category="looked"), played("b", category="idle")]
    assert measure(episodes, "dataset")["by_category"]["idle"]["faithful"] is None


def test_a_benchmark_without_a_call_is_unfaithful_beside_one_with_calls() -> None:
    assert measure([played("a"), played("b")], "dataset", boxless=True)["faithful"] == 0.0


def test_variants_without_a_call_are_unfaithful() -> None:
    table = suite_table([played("a", LOOK)], [played("a", variant="rotate_90")])
    assert table["variants"]["rotate_90"]["faithful"] == 0.0 and table["mean"]["faithful"] == 0.5


def test_so_is_a_condition(tmp_path) -> None:
    rows = write_condition_pages(tmp_path, {"": [played("a", LOOK)], "without-tool": [played("a")]}, "t")
    assert [row.faithful for row in rows] == ["0 %"]


def test_so_is_a_run_beside_one_that_looked() -> None:
    looked, idle = ([played(name, *turns) for name in "ab"] for turns in ((LOOK,), ()))
    rates = compare({"": looked}, {"": idle})[""]["rates"]["faithful"]
    assert (rates["a"], rates["b"], rates["difference"]) == (1.0, 0.0, -1.0)


@pytest.mark.parametrize("unjudged", [UNJUDGED, dataclasses.replace(LOOK, score=StepScore(None, "nothing to judge"))])
def test_a_run_whose_calls_could_not_be_judged_is_not_unfaithful(unjudged) -> None:
    looked = [played(name, LOOK) for name in "abcd"]
    other = [played("a", unjudged), played("b", unjudged), played("c"), played("d")]
    for bench, run in compare({"": looked}, {"": other}).items():
        assert (run["rates"]["faithful"]["a"], run["rates"]["faithful"]["b"]) == (1.0, None), bench
    assert compare({"": other}, {"": looked})[""]["rates"]["faithful"]["a"] is None


def test_a_run_whose_judge_failed_beside_one_that_looked_is_judged() -> None:
    failed = dataclasses.replace(LOOK, score=StepScore(None, "no verdict", failed=True))
    rates = compare({"": [played("a", LOOK), played("b", LOOK)]}, {"": [played("a", failed), played("b")]})[""]["rates"]
    assert rates["faithful"]["b"] == 0.0


def blink(count: int, category: str, right: bool) -> list[Trajectory]:
    return [played(f"{category}-{i}", category=category, right=right) for i in range(count)]


def test_the_interval_of_a_macro_mean_is_its_own() -> None:
    episodes = [*blink(90, "large", True), *(t for i in range(9) for t in blink(2, f"small{i}", False))]
    found = measure(episodes, "blink")
    low, high = found["score_ci95"]
    assert found["score"]["overall"] == pytest.approx(0.1)
    # A resample loses each small category in one of eight cases, which raises the mean of the others.
    assert 0.09 < low < 0.12 and high < 0.2 < found["ci95"]["accuracy"][0]


def test_the_interval_of_parts_of_a_point_is_their_mean() -> None:
    episodes = [dataclasses.replace(t, share=0.5 if i % 2 else 1.0) for i, t in enumerate(blink(40, "c", True))]
    found = measure(episodes, "chartqapro")
    low, high = found["score_ci95"]
    assert found["accuracy"] == 1.0 and found["score"]["overall"] == 0.75 and low < 0.75 < high < 0.9


def test_the_interval_of_a_total_that_is_the_accuracy_is_that_of_accuracy() -> None:
    found = measure([*blink(3, "direct_attributes", True), *blink(2, "relative_position", False)], "vstar")
    assert found["score_ci95"] == found["ci95"]["accuracy"] is not None
    assert "score_ci95" not in measure(blink(3, "c", True), "dataset")
    assert measure(blink(1, "c", False) + blink(1, "d", True), "blink")["score_ci95"] is not None


def test_the_total_over_cycles_and_variants_is_resampled_too() -> None:
    rows = [("0", True)] * 6 + [("1", False)] * 3
    episodes = [
        played(f"{i}-{variant}", right=right, cycle_category=cycle, **({"variant": variant} if variant else {}))
        for variant in ("source", "rotate_90")
        for i, (cycle, right) in enumerate(rows)
    ]
    assert measure(episodes, "hrbench4k")["score"]["overall"] == 0.5
    mixed = [dataclasses.replace(t, is_correct=i % 2 == 0) for i, t in enumerate(episodes)]
    found = measure(mixed, "hrbench4k")
    assert found["score_ci95"][0] < found["score"]["overall"] < found["score_ci95"][1]


@pytest.mark.parametrize("bench", ["blink", "hrbench4k", "tirbench", "chartqapro", "mathvista", "mme-realworld-lite"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_every_total_has_an_interval(bench: str, wrapped: bool) -> None:
    episodes = [
        dataclasses.replace(
            played(
                str(i), right=i % 3 == 0, cycle_category=str(i % 2), **({"variant": "ab"[i % 7 > 2]} if wrapped else {})
            ),
            category=f"c{i % 5}",
            share=0.25 * (i % 4) if bench in ("tirbench", "chartqapro") else None,
        )
        for i in range(60)
    ]
    found = measure(episodes, bench)
    low, high = found["score_ci95"]
    assert low < found["score"]["overall"] < high


def test_a_judge_is_not_compared_with_boxes_where_these_cannot_judge() -> None:
    image = Image.new("RGB", (64, 64))
    late = dataclasses.replace(LOOK, execution=Execution(images=(image,)), regions=(Region(how="late"),))
    shown = dataclasses.replace(played("a", LOOK), images=(image,), targets=((8, 8, 24, 24),))
    hidden = dataclasses.replace(shown, targets=(ImageBox((8, 8, 24, 24), 3),))  # a frame that was not recorded
    unknown = dataclasses.replace(shown, turns=(late, ANSWER))
    assert by_provenance([hidden, unknown])["n"] == 0
    found = by_provenance([shown, hidden, unknown])
    assert (found["n"], found["agreement"], found["faithful"]) == (1, 0.0, 0.0)
    assert found["faithful_given_correct"] == 0.0
