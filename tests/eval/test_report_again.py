"""`codev report` and `codev eval compare` on folders that lack something, and how their pages name what they show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from eval_samples import episodes, make_run

from codev_env.app import cli
from codev_env.scoring.metrics import summarize
from codev_env.trajectory import write_trajectories
from codev_eval.report.plots import histogram
from codev_eval.report.rendering import load
from codev_eval.report.tables import tables


def evaluation(folder: Path, count: int = 4) -> Path:
    """Write the folder of an evaluation."""
    played = episodes(True, count)
    write_trajectories(folder, played)
    (folder / "metrics.json").write_text(json.dumps({"model": "m", "benches": {"vstar": summarize(played, seed=0)}}))
    return folder


def test_a_report_without_episodes_says_so(tmp_path, capsys):
    folder = evaluation(tmp_path / "e")
    assert cli.main(["report", str(folder)]) == 0 and not capsys.readouterr().err
    (folder / "trajectories.jsonl").unlink()
    assert cli.main(["report", str(folder)]) == 0
    assert capsys.readouterr().err == f"It shows no episodes: there is no {folder / 'trajectories.jsonl'}.\n"


def test_a_report_of_a_training_run_without_episodes_says_so(tmp_path, capsys):
    run = make_run(tmp_path, count=2)
    (run / "before" / "trajectories.jsonl").unlink()
    assert cli.main(["report", str(run)]) == 0 and not capsys.readouterr().err
    (run / "after" / "trajectories.jsonl").unlink()
    assert cli.main(["report", str(run)]) == 0
    assert "no episodes" in capsys.readouterr().err


def test_a_run_that_has_not_ended_is_named_as_one(tmp_path, capsys):
    run = make_run(tmp_path / "a run", count=2)
    (run / "summary.json").unlink()
    assert cli.main(["report", str(run)]) == 1
    err = capsys.readouterr().err
    assert "has not ended" in err and f"`codev view '{run}'`" in err and f"`codev train --resume '{run}'`" in err


def test_a_run_beside_itself_is_named_by_its_folder(tmp_path, capsys):
    folder = evaluation(tmp_path / "e")
    assert cli.main(["eval", "compare", str(folder), str(folder), "--out", str(tmp_path / "c")]) == 0
    assert "<title>e and e" in (tmp_path / "c" / "comparison.html").read_text("utf-8")


def test_the_counts_of_a_histogram_are_named():
    svg = load("plots.html.j2").module.histogram(histogram("IoU", [1, 0, 3]))
    assert ">episodes</text>" in svg


@pytest.mark.parametrize("index", ["-1", "1000"])
def test_play_names_the_option_of_a_task_that_is_not_there(capsys, index):
    assert cli.main(["play", "--scenes", "toy", "--index", index]) == 1
    assert capsys.readouterr().err.startswith(f"codev play: --index is {index}; ")


def test_a_judge_is_compared_with_boxes_only_where_there_are_some():
    nothing = dict.fromkeys(("faithful", "faithful_given_correct", "faithful_and_correct", "agreement", "kappa"))
    for count, shown in ((0, False), (2, True)):
        titles = [table.title for table in tables({"provenance": {"n": count, **nothing}})]
        assert ("The judge against target boxes" in titles) is shown


def test_other_numbers_of_samples_are_named(tmp_path, capsys):
    folders = [evaluation(tmp_path / name) for name in "ab"]
    for samples, folder in enumerate(folders, 1):
        record = json.loads((folder / "metrics.json").read_text())
        (folder / "metrics.json").write_text(json.dumps(record | {"samples": samples}))
    assert cli.main(["eval", "compare", *map(str, folders)]) == 0
    assert "The runs had other options: --samples 1 (A) and 2 (B)." in capsys.readouterr().out


def test_a_text_in_the_last_column_has_a_line_of_its_own_on_narrow_screens():
    signs = tables({"suspected": {"lazy": 12}, "pass_at": {"1": {"value": 0.5, "ci95": None}}})
    assert {table.title: table.prose for table in signs} == {"Hacks suspected": True, "pass@k": False}
    page = load("results.html.j2").module.tables(signs)
    assert page.count('<table class="prose">') == 1 and page.count("<table>") == 1


def test_metrics_of_another_version_are_refused_by_their_schema(tmp_path, capsys):
    folder = evaluation(tmp_path / "new")
    record = json.loads((folder / "metrics.json").read_text())
    (folder / "metrics.json").write_text(json.dumps(record | {"schema": 99}))
    said = f"{folder / 'metrics.json'}: schema 99 is unknown; this version reads schema 1."
    for words in (["report", str(folder)], ["eval", "compare", str(evaluation(tmp_path / "old")), str(folder)]):
        assert cli.main(words) == 1
        assert said in capsys.readouterr().err
    assert not (folder / "report.html").exists()
    (folder / "metrics.json").write_text(json.dumps(record | {"schema": 1}))
    assert cli.main(["report", str(folder)]) == 0
