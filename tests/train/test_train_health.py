"""Health: which numbers are reported, when, how often, and with what reason."""

from __future__ import annotations

import math

import pytest
from micro_run import history

from codev_env.app.cli import main
from codev_train.learn.checkpoint import checkpoints
from codev_train.run.health import Health, HealthOptions

WELL = {
    "reward": 0.5,
    "tool_calls": 1.0,
    "share/groups_without_signal": 0.5,
    "share/judge_failed": 0.0,
    "update/loss": -0.1,
    "update/grad_norm": 0.3,
    "update/entropy": 0.4,
    "update/sampler_gap": 1e-5,
    "update/sampler_gap_max": 1e-4,
}


def watch(*rows: dict, **options) -> list[list[str]]:
    health = Health(HealthOptions(**{"patience": 1, **options}))
    return [[finding.reason for finding in health.look(WELL | row)] for row in rows]


def test_a_healthy_run_is_left_alone():
    assert watch(*[{}] * 20) == [[]] * 20


@pytest.mark.parametrize("name", ["update/loss", "update/grad_norm", "reward"])
@pytest.mark.parametrize("value", [math.nan, math.inf, None])
def test_numbers_that_are_none_stop_the_run_at_once(name, value):
    (finding,) = Health(HealthOptions()).look(WELL | {name: value})
    assert finding.stop and name in finding.reason


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"update/sampler_gap_max": math.log(11)}, "factor of 11, more than health.ratio (10)"),
        ({"update/sampler_gap_max": 1e6}, "health.ratio"),
        ({"update/entropy": 0.009}, "entropy is 0.009 nats per token, below health.entropy (0.01)"),
        ({"share/groups_without_signal": 1.0}, "100% of the groups are without signal"),
        ({"imitation/looks": 0.0}, "no look was faithful, so nothing is imitated"),
        ({"share/judge_failed": 0.25}, "the judge failed in 25% of the episodes, more than health.judge-failed (20%)"),
    ],
)
def test_a_crossed_threshold_is_a_warning_with_its_name_and_value(row, words):
    (finding,) = Health(HealthOptions(patience=1)).look(WELL | row)
    assert words in finding.reason and not finding.stop
    (finding,) = Health(HealthOptions(patience=1, stop=True)).look(WELL | row)
    assert finding.stop


@pytest.mark.parametrize(
    "row",
    [
        {"update/sampler_gap_max": math.log(9)},
        {"update/entropy": 0.011},
        {"share/groups_without_signal": 0.99},
        {"share/judge_failed": 0.2},
        {"imitation/looks": 1.0},
    ],
)
def test_a_threshold_that_is_not_crossed_says_nothing(row):
    assert watch(row) == [[]]


def test_tool_use_collapses_only_where_there_was_some():
    never = [{"tool_calls": 0.0}] * 3
    assert watch(*never) == [[]] * 3
    falling = [{"tool_calls": value} for value in (1.2, 0.4, 0.06, 0.04)]
    *before, last = watch(*falling)
    assert before == [[]] * 3 and "0.04 tool calls per episode" in last[0] and "after 1.2" in last[0]


def test_a_condition_is_reported_once_when_it_has_lasted_and_again_when_it_comes_back():
    low, fine = {"update/entropy": 0.001}, {}
    found = watch(low, low, fine, low, low, low, low, fine, low, low, low, patience=3)
    assert [len(row) for row in found] == [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]
    assert "3 updates in a row" in found[5][0]


def test_what_is_not_known_says_nothing():
    """An update without signal has no entropy; a history file has null for it."""
    rows = [{"update/entropy": None, "update/sampler_gap_max": math.nan, "tool_calls": None}]
    assert watch(*rows) == [[]]
    assert Health(HealthOptions(patience=1)).look({}) == []


def test_thresholds_of_zero_are_never_crossed():
    row = {"update/entropy": 0.0, "tool_calls": 0.0, "update/sampler_gap_max": 50.0}
    assert watch(row, entropy=0.0, tools=0.0, ratio=0.0) == [[]]


def test_several_problems_are_reported_worst_first():
    findings = Health(HealthOptions(patience=1)).look(WELL | {"update/loss": math.nan, "update/entropy": 0.0})
    assert [f.stop for f in findings] == [True, False]


# --- in a run ---

UNWELL = ["--health.entropy", "100", "--health.patience", "2"]
"""No policy has an entropy of 100 nats."""


def test_a_run_that_is_unwell_is_told_once_and_goes_on(arguments, runs, capsys):
    assert main(["train", *arguments("unwell", *UNWELL)]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "health.entropy" in line]
    (line,) = lines
    assert line.startswith("update 2: entropy is ") and "(2 updates in a row)" in line
    assert len(history(runs / "unwell")) == 3


@pytest.mark.integration
def test_a_run_that_is_unwell_can_be_told_to_stop_is_saved_and_goes_on(arguments, runs, capsys):
    run = runs / "unwell-stopped"
    assert main(["train", *arguments(run.name, *UNWELL, "--health.stop", "True", "--save-every", "100")]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert "stopped after update 2: entropy is" in said and f"codev train --resume {run}" in said
    assert [p.name for p in checkpoints(run)] == ["step-000002"] and len(history(run)) == 2
    assert main(["train", "--resume", str(run), "--health.stop", "False"]) == 0
    assert len(history(run)) == 3
