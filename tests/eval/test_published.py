"""The table of `--as`: the interval belongs to the number beside it, and options that narrow the tasks are named."""

from __future__ import annotations

from typing import Any

import pytest

from codev_env.app.options import build
from codev_eval.bench.options import EvalOptions
from codev_eval.report.published import comparison, comparison_text


def options_of(**given: Any) -> dict[str, Any]:
    return build(EvalOptions, {"as_": "thyme-7b", "data": ["synthetic"], **given}).fixed()


def compared(bench: str, options: dict[str, Any] | None = None, **metrics: Any) -> dict[str, Any]:
    record = {"benches": {bench: metrics}, "sets": {bench: {"source": "real"}}}
    return comparison("thyme-7b", options or options_of(), record)


@pytest.mark.parametrize("bench", ["blink", "tirbench", "chartqapro", "hrbench4k"])
def test_a_total_of_another_kind_has_its_own_interval_or_none(bench: str) -> None:
    metrics = {"accuracy": 0.8, "score": {"overall": 0.1}, "ci95": {"accuracy": [0.75, 0.89]}}
    row = compared(bench, **metrics)["benches"][bench]
    assert row["here"] == 10.0 and row["ci95"] is None
    row = compared(bench, **metrics, score_ci95=[0.05, 0.25])["benches"][bench]
    assert row["ci95"] == [5.0, 25.0]
    found = compared(bench, **metrics, score_ci95=None)
    assert found["benches"][bench]["ci95"] is None and "[]" not in comparison_text(found)


def test_accuracy_has_that_of_accuracy() -> None:
    row = compared("vstar", accuracy=0.8, ci95={"accuracy": [0.75, 0.89]})["benches"]["vstar"]
    assert row["ci95"] == [75.0, 89.0]


def reasons(**given: Any) -> str:
    return "\n".join(compared("vstar", options_of(**given), accuracy=0.8)["reasons"])


def test_every_option_that_narrows_the_tasks_is_a_reason() -> None:
    assert "--n is 1: not every task once" in reasons(n=1)
    assert "--samples is 4: not every task once" in reasons(samples=4, temperature=1.0)
    assert "--wrap is rotate_90 jpeg:3: not every task once" in reasons(wrap=["rotate_90", "jpeg:3"])
    assert "not every task once" not in reasons(samples=1)


def test_a_total_of_another_kind_than_published_is_a_reason() -> None:
    assert "total of BLINK is the accuracy over all questions" in reasons()
