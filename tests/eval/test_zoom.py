"""The zooming gap: accuracy on ZoomBench's crops, minus that on whole images, over the same questions."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from eval_samples import trajectory

from codev_eval.bench.zoom import CROP, WHOLE, zooming_gap
from codev_eval.report.tables import all_benches


def episodes(bench: str, rights: dict[int, bool]) -> list:
    return [
        replace(trajectory(index, looks=False, right=right), task_id=f"{bench}-{index}")
        for index, right in rights.items()
    ]


def sets(source: str = "real") -> dict:
    return {bench: SimpleNamespace(source=source) for bench in (WHOLE, CROP)}


PLAIN = {
    WHOLE: episodes(WHOLE, {0: True, 1: False, 2: False, 3: False, 9: True}),
    CROP: episodes(CROP, {0: True, 1: True, 2: True, 3: False}),
}


def test_the_gap_is_over_questions_that_both_have():
    gap = zooming_gap(PLAIN, sets())
    assert (gap["n"], gap["accuracy_whole"], gap["accuracy_crop"], gap["gap"]) == (4, 0.25, 0.75, 0.5)
    assert gap["gap_ci95"][0] <= 0.5 <= gap["gap_ci95"][1]


def test_there_is_none_for_one_view_or_for_generated_scenes():
    assert zooming_gap({WHOLE: PLAIN[WHOLE]}, {WHOLE: sets()[WHOLE]}) is None
    assert zooming_gap({WHOLE: PLAIN[WHOLE], CROP: []}, sets()) is None
    assert zooming_gap(PLAIN, sets("generated")) is None


def test_the_table_of_all_benchmarks_has_it_and_the_papers_criterion():
    rates = {"n": 4, "accuracy": 0.5, "ci95": {}, "faithful": 0.25, "faithful_and_correct": 0.25, "any_crop": 0.75}
    metrics = {**rates, "tool_calls": 1.0, "usage": {}}
    record = {
        "benches": {WHOLE: metrics, CROP: metrics},
        "usage": {"requests": 0},
        "zooming_gap": zooming_gap(PLAIN, sets()),
    }
    record["sets"] = {bench: {"data": "d", "source": "real"} for bench in (WHOLE, CROP)}
    table, gap = all_benches(record)
    assert dict(zip(table.heads, table.rows[0], strict=True))["any crop"] == "75.0 %"
    assert gap.title == "Zooming gap" and gap.rows[0][1:4] == ("4", "25.0 %", "75.0 %") and "+50.0" in gap.rows[0][4]
