"""An evaluation of several benchmarks ends with one table of all, and where its files are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from codev_env.app import cli
from codev_eval.report.tables import all_benches
from codev_eval.report.text import text_of


def metrics(**more: Any) -> dict[str, Any]:
    rates = {"n": 4, "accuracy": 0.5, "ci95": {"accuracy": [0.2, 0.8]}, "faithful": 0.25, "faithful_and_correct": 0.25}
    return {**rates, "tool_calls": 1.5, "usage": {"prompt_tokens": 10, "completion_tokens": 5, "cost": 0.25}, **more}


def record(requests: int = 0, cost: float = 0.0, **benches: dict[str, Any]) -> dict[str, Any]:
    sets = {name: {"data": "d", "source": "real"} for name in benches}
    return {"benches": benches, "sets": sets, "usage": {"requests": requests, "cost": cost}}


def test_one_row_for_each_benchmark() -> None:
    macro = metrics(score={"overall": 0.4}, score_ci95=[0.1, 0.6], n_failed=1)
    empty = metrics(n=0, accuracy=None, ci95={}, faithful=None, faithful_and_correct=None, tool_calls=None)
    (table,) = all_benches(record(vstar=metrics(), blink=macro, charxiv=empty))
    assert [row[0] for row in table.rows] == ["vstar", "blink", "charxiv"]
    cells = dict(zip(table.heads, table.rows[1], strict=True))
    assert cells["accuracy"] == "50.0 % [20.0 %, 80.0 %]" and cells["score"] == "40.0 % [10.0 %, 60.0 %]"
    assert (cells["failed"], cells["faithful"], cells["tool calls"]) == ("1", "25.0 %", "1.50")
    assert table.rows[0][5] == "–" and set(table.rows[2][4:]) == {"–"}
    assert len(text_of(table).splitlines()) == 5 and "tokens" not in table.heads


def test_tokens_and_costs_are_counted_where_there_are_any() -> None:
    (table,) = all_benches(record(8, 0.5, a=metrics(), b=metrics()))
    assert table.heads[-2:] == ("tokens", "cost") and table.rows[0][-2:] == ("15", "0.25")
    (table,) = all_benches(record(8, a=metrics(), b=metrics()))
    assert table.heads[-1] == "tokens"


def test_a_single_benchmark_needs_none() -> None:
    assert all_benches(record(vstar=metrics())) == []


@pytest.mark.integration
def test_the_terminal_ends_with_it(tmp_path, capsys) -> None:
    given = ["--model", "scripted:oracle", "--data", "synthetic", "--scenes", "toy", "--n", "1"]
    assert cli.main(["eval", *given, "--bench", "vstar", "hrbench4k", "--out", str(tmp_path)]) == 0
    end = capsys.readouterr().out.rpartition("All benchmarks")[2].splitlines()
    assert [line.split()[:3] for line in end[2:4]] == [["vstar", "generated", "1"], ["hrbench4k", "generated", "1"]]
    assert end[-2:] == [f"Report:  {tmp_path / 'report.html'}", f"Metrics: {tmp_path / 'metrics.json'}"]
    kept = json.loads((tmp_path / "metrics.json").read_text())["benches"]
    assert kept["vstar"]["usage"]["cost"] == 0 and "score_ci95" in kept["vstar"]
