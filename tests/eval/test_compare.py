"""`codev eval compare`: paired differences, McNemar's test, and refusals of tasks that do not match."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from eval_samples import trajectory
from test_report import Page

from codev_env.app import cli
from codev_env.errors import ConfigError
from codev_env.provenance.coordinates import box_polygon
from codev_env.types import Region
from codev_eval.bench.replay import judged_again
from codev_eval.compare import compare
from codev_eval.report.tables import difference


def played(index: int, right: bool, looks: bool = True):
    return trajectory(index, looks=looks, right=right)


def test_differences_and_who_is_right():
    a = [played(i, right) for i, right in enumerate((True, True, False, False, False, False))]
    b = [played(i, right, looks=i % 2 == 0) for i, right in enumerate((False, True, True, True, True, True))]
    found = compare({"vstar": a}, {"vstar": list(reversed(b))})["vstar"]
    assert found["tasks"] == 6
    assert found["mcnemar"] == {"both": 1, "only_a": 1, "only_b": 4, "neither": 0, "p": pytest.approx(2 * 6 / 32)}
    accuracy = found["rates"]["accuracy"]
    assert (accuracy["a"], accuracy["b"]) == pytest.approx((1 / 3, 5 / 6))
    assert accuracy["difference"] == pytest.approx(0.5)
    low, high = accuracy["ci95"]
    assert low <= 0.5 <= high and high <= 1.0
    assert found["rates"]["faithful"]["difference"] == pytest.approx(-0.5)


def test_a_run_against_itself_differs_in_nothing():
    a = [played(i, i % 3 == 0) for i in range(9)]
    found = compare({"vstar": a}, {"vstar": a})["vstar"]
    assert found["mcnemar"]["p"] == 1.0
    assert all(rate["difference"] in (0, None) and rate["ci95"] is None for rate in found["rates"].values())


@pytest.mark.parametrize(
    ("value", "interval", "text"),
    [
        (0.5, [0.25, 0.75], "+50.0 points [+25.0, +75.0]"),
        (-0.125, [-0.3, 0.0], "-12.5 points [-30.0, +0.0]"),
        (-1e-9, None, "+0.0 points [–]"),
        (None, None, "–"),
    ],
)
def test_differences_are_told_in_percentage_points(value, interval, text):
    assert difference(value, interval) == text


def test_calls_are_judged_alike_in_a_run_and_in_its_tasks():
    # Without target boxes, an episode without a call counts where the judge judged calls of others.
    looked = dataclasses.replace(played(0, True), targets=())
    idle = dataclasses.replace(trajectory(1, looks=True, right=True, tool=False), targets=())
    found = compare({"vstar": [looked, idle]}, {"vstar": [looked, idle]})["vstar"]
    assert found["rates"]["faithful"]["a"] == 0.5


def test_samples_count_by_task():
    a = [played(0, True), played(0, False), played(1, True)]
    b = [played(0, True), played(0, True), played(1, True)]
    found = compare({"vstar": a}, {"vstar": b})["vstar"]
    assert found["tasks"] == 2 and found["rates"]["accuracy"]["difference"] == pytest.approx(1 / 3)


def test_variants_of_a_task_are_resampled_together():
    def varied(task: int, variant: str, right: bool):
        meta = {"task": {"variant": variant, "source_task_id": str(task)}}
        return dataclasses.replace(played(task, right), task_id=f"{task}@{variant}", meta=meta)

    a = [varied(task, variant, False) for task in range(8) for variant in "abcdefgh"]
    b = [varied(task, variant, task % 2 == 0) for task in range(8) for variant in "abcdefgh"]
    low, high = compare({"": a}, {"": b})[""]["rates"]["accuracy"]["ci95"]
    assert high - low > 0.5


def test_unmatched_tasks_are_refused_by_name():
    a, b = [played(i, True) for i in range(3)], [played(i, True) for i in range(1, 5)]
    with pytest.raises(ConfigError, match=r"1 tasks are only in the first run and 2 only in the second.*--common"):
        compare({"vstar": a}, {"vstar": b})
    assert compare({"vstar": a}, {"vstar": b}, common=True)["vstar"]["tasks"] == 2
    with pytest.raises(ConfigError, match="no task is in both"):
        compare({"vstar": a[:1]}, {"vstar": b[2:]}, common=True)
    with pytest.raises(ConfigError, match="benchmarks differ"):
        compare({"vstar": a}, {"mathvista": a})
    other = dataclasses.replace(a[0], choices=tuple(reversed(a[0].choices)))
    with pytest.raises(ConfigError, match=r"differs between the runs"):
        compare({"vstar": a}, {"vstar": [other, *a[1:]]})


def evaluated(out: Path, model: str, n: int = 3, *options: str) -> str:
    given = ["--model", f"scripted:{model}", "--data", "synthetic", "--scenes", "toy", "--n", str(n), *options]
    assert cli.main(["eval", *given, "--out", str(out)]) == 0
    return str(out)


def test_the_command_prints_and_writes_both_runs_side_by_side(tmp_path, capsys):
    a, b = evaluated(tmp_path / "a", "none"), evaluated(tmp_path / "b", "oracle")
    capsys.readouterr()
    assert cli.main(["eval", "compare", a, b, "--out", str(tmp_path / "c")]) == 0
    out = capsys.readouterr().out
    # All three differ alike, which says nothing of how sure that is.
    assert "+100.0 points [–]" in out
    assert "B - A" in out and "McNemar's exact test, p = 0.25" in out
    record = json.loads((tmp_path / "c" / "comparison.json").read_text())
    assert record["benches"]["vstar"]["rates"]["accuracy"]["difference"] == 1.0
    page = Page((tmp_path / "c" / "comparison.html").read_text("utf-8"))
    assert [attrs["data-run"] for attrs in page.all("article")] == ["A", "B"] * 3
    assert page.all("input", name="differ")


def test_folders_without_an_evaluation_are_told(tmp_path, capsys):
    a = evaluated(tmp_path / "a", "none", n=1)
    capsys.readouterr()
    assert cli.main(["eval", "compare", a, str(tmp_path)]) == 1
    assert "holds no metrics.json" in capsys.readouterr().err


def test_runs_with_different_scorers_are_refused(tmp_path, capsys):
    a, b = evaluated(tmp_path / "a", "none", 1), evaluated(tmp_path / "b", "none", 1, "--scorer", "official")
    assert cli.main(["eval", "compare", a, b]) == 1
    assert "different scorers ('rules' and 'official')" in capsys.readouterr().err


def test_other_options_that_differ_are_said(tmp_path, capsys):
    a = evaluated(tmp_path / "a", "none", 1)
    b = evaluated(tmp_path / "b", "none", 1, "--judge", "none", "--max-turns", "3")
    capsys.readouterr()
    assert cli.main(["eval", "compare", a, b, "--out", str(tmp_path / "c")]) == 0
    assert "--judge auto (A) and none (B), --max-turns 6 (A) and 3 (B)" in capsys.readouterr().out
    record = json.loads((tmp_path / "c" / "comparison.json").read_text())
    assert record["differ"] == {"judge": {"a": "auto", "b": "none"}, "max_turns": {"a": 6, "b": 3}}
    assert "auto (A), none (B)" in (tmp_path / "c" / "comparison.html").read_text("utf-8")
    assert cli.main(["eval", "compare", a, b, "--judge-again"]) == 0
    said = capsys.readouterr().out
    assert "--max-turns" in said and "--judge" not in said
    # Metrics of an earlier version do not name all settings.
    path = tmp_path / "b" / "metrics.json"
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "max_turns"}))
    assert cli.main(["eval", "compare", a, b]) == 0
    assert "max-turns" not in capsys.readouterr().out


def with_definition(t, definition: str):
    """An episode judged by another definition of faithful."""
    turns = [
        dataclasses.replace(turn, score=turn.score and dataclasses.replace(turn.score, definition=definition))
        for turn in t.turns
    ]
    return dataclasses.replace(t, turns=tuple(turns))


def test_runs_judged_by_different_definitions_are_refused_until_they_are_judged_again():
    old, new = [played(i, True) for i in range(3)], [with_definition(played(i, True), "boxes 2") for i in range(3)]
    with pytest.raises(ConfigError, match=r"boxes 2, unversioned.*--judge-again"):
        compare({"vstar": old}, {"vstar": new})
    assert compare({"vstar": new}, {"vstar": new})["vstar"]["faithful_definition"] == "boxes 2"
    again = [[judged_again(t) for t in run] for run in (old, new)]
    found = compare({"vstar": again[0]}, {"vstar": again[1]})["vstar"]
    assert found["faithful_definition"] == "boxes 2, from the record"
    assert found["rates"]["any_crop"]["difference"] == 0


def test_a_recorded_episode_is_judged_again_from_what_it_showed():
    for looks in (True, False):
        recorded = played(0, True, looks=looks)
        look, *rest = recorded.turns
        (box,) = look.crop_boxes
        seen = Region(box_polygon(box), box, 0, "rot0", 1.0, 1.0, "probe")
        again = judged_again(dataclasses.replace(recorded, turns=(dataclasses.replace(look, regions=(seen,)), *rest)))
        assert again.is_faithful == looks == any(turn.any_crop for turn in again.turns)
        assert again.total_reward == played(0, True, looks=looks).total_reward


def test_the_page_names_both_folders_and_shows_no_empty_brackets(tmp_path):
    a, b = evaluated(tmp_path / "first", "none"), evaluated(tmp_path / "second", "oracle")
    assert cli.main(["eval", "compare", a, b, "--out", str(tmp_path / "c")]) == 0
    text = (tmp_path / "c" / "comparison.html").read_text("utf-8")
    legend = text.partition('<ul class="legend">')[2].partition("</ul>")[0]
    assert f"A <b>{a}</b>" in legend and f"B <b>{b}</b>" in legend
    assert "+100.0 points</td>" in text and "[–]" not in text


def test_an_evaluation_without_its_episodes_is_told(tmp_path, capsys):
    (tmp_path / "metrics.json").write_text(json.dumps({"benches": {"vstar": {}}}))
    assert cli.main(["eval", "compare", str(tmp_path), str(tmp_path)]) == 1
    assert "no episodes: restore trajectories.jsonl" in capsys.readouterr().err
