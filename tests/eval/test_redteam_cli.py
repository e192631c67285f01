"""`codev rewards redteam`, end to end: tables, files, exit codes, refusals."""

from __future__ import annotations

import json

import pytest

from codev_agents.cheats import CHEATS, Cheat, crop_plan
from codev_env.errors import ConfigError
from codev_env.rewards import Reward, Term, terms
from codev_env.trajectory import read_trajectories
from codev_eval.rewards.redteam import main

GENEROUS = Reward("generous", (Term("looked", terms.seen_and_correct, 1.0),), tool_terms=("looked",), robust=True)
"""Pays every right answer after any look, and claims to be robust."""


def run(*options: str) -> int:
    return main(["--tasks", "2", *options])


def test_robust_rewards_hold_and_the_papers_formulas_need_not(capsys):
    assert run("--reward", "tapo", "deepeyes", "--cheats", "whole-image", "comment-only") == 0
    cheats, families, notes = capsys.readouterr().out.split("\n\n")
    rows = {row.split("|")[1].strip(): [cell.strip() for cell in row.split("|")[2:-1]] for row in cheats.splitlines()}
    assert rows["cheat"] == ["tapo", "deepeyes (no claim)", "faithful"]
    assert rows["honest-wrong-crop"] == ["+0.00 / 0.00", "+1.20 / 0.00 !", "+0.00 / 0.00"]
    assert rows["whole-image"] == ["-0.25 / 0.00", "+1.20 / 0.00 !", "+0.00 / 0.00"]
    assert rows["comment-only"] == ["+0.00 / 0.00"] * 3
    assert "| overviews | 1      | holds | FAILS 1: whole-image +1.20 | holds    |" in families
    assert "no claim" in notes


def test_a_robust_reward_that_is_beaten_fails_the_command(capsys):
    assert run("--reward", f"{__name__}:GENEROUS", "--cheats", "whole-image", "--json") == 1
    record = json.loads(capsys.readouterr().out)
    assert record["robust"] == ["faithful", "generous"] and record["episodes_per_cheat"] == 2
    beaten = {(v["cheat"], v["measure"]) for v in record["verdicts"] if not v["holds"]}
    assert beaten == {("honest-wrong-crop", "generous"), ("whole-image", "generous")}


@pytest.mark.integration
def test_it_writes_results_trajectories_and_a_report(tmp_path, capsys):
    assert run("--reward", "tapo", "--cheats", "overviews", "--tasks", "1", "--out", str(tmp_path)) == 0
    trajectories = read_trajectories(tmp_path)
    family = [cheat for cheat in CHEATS.values() if cheat.family == "overviews"]
    assert [t.category for t in trajectories] == [cheat.name for cheat in family]
    assert {t.dialect for t in trajectories} == {cheat.dialect for cheat in family}
    assert trajectories[0].agent == f"cheat:{family[0].name}" and trajectories[0].meta["tries"] == family[0].tries
    assert len(json.loads((tmp_path / "redteam.json").read_text())["verdicts"]) == 2 * (len(family) + 1)
    assert (tmp_path / "report.html").read_text("utf-8").count("<article") == len(family)
    with pytest.raises(ConfigError, match="already holds"):
        run("--out", str(tmp_path))
    assert capsys.readouterr().out


@pytest.mark.integration
def test_a_seed_decides_everything_and_the_number_of_threads_nothing(capsys):
    outs = []
    for seed, workers in (("0", "1"), ("0", "3"), ("1", "1")):
        run("--reward", "tapo", "--cheats", "five-zooms", "centre-crop", "--json", "--seed", seed, "--workers", workers)
        outs.append(capsys.readouterr().out)
    assert outs[0] == outs[1] != outs[2]


def test_a_cheat_that_succeeds_is_found(monkeypatch, capsys):
    honest = crop_plan(lambda task, rng: [task.targets[0]])
    monkeypatch.setitem(CHEATS, "looks", Cheat("looks", "looks at the target", "informed", honest, informed=True))
    assert run("--reward", "tapo", "--cheats", "looks") == 1
    cheats, families, _ = capsys.readouterr().out.split("\n\n")
    assert "FAILS 1: looks +0." in families and "+1.00 / 0.00 !" in cheats


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--reward", "tapoo"], "unknown reward 'tapoo'"),
        (["--cheats", "whole-imge"], "whole-image"),
        (["--tasks", "0"], "--tasks is 0"),
        (["--workers", "0"], "--workers is 0"),
        (["--seed", "-1"], "--seed is -1"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ConfigError, match=message):
        run(*options)
