"""An evaluation, or a filter, goes on only with the tasks that it began with."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from PIL import Image

from codev_env.app import cli
from codev_env.errors import TaskError
from codev_env.geometry import ImageBox
from codev_env.tasks import load_tasks
from codev_env.trajectory import read_trajectories
from codev_eval.bench.unchanged import digest_of, first_changed
from codev_eval.data import cli as data


def rows(folder: Path, **changed) -> Path:
    """Write six tasks, all with these fields changed, and return the folder."""
    folder.mkdir(exist_ok=True)
    written = []
    for number in range(6):
        Image.new("RGB", (64, 64), (number * 40, 0, 0)).save(folder / f"{number}.png")
        row = {"image": f"{number}.png", "question": f"Which, {number}?", "answer": "no", "choices": ["yes", "no"]}
        written.append({**row, "targets": [[5, 5, 30, 30]], **changed})
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in written))
    return folder


def run_eval(tmp_path: Path, *options: str, n: int) -> int:
    given = ["--data", str(tmp_path / "data"), "--bench", "dataset", "--split", "train", "--out", str(tmp_path / "out")]
    return cli.main(["eval", "--model", "scripted:oracle", *given, "--n", str(n), *options])


EDITS = [{"question": "Other?"}, {"answer": "yes"}, {"choices": ["no", "yes"]}, {"targets": [[6, 5, 30, 30]]}]


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: next(iter(edit)))
def test_edited_tasks_are_not_mixed_with_those_played(tmp_path, capsys, edit):
    rows(tmp_path / "data")
    assert run_eval(tmp_path, n=2) == 0
    rows(tmp_path / "data", **edit)
    assert run_eval(tmp_path, n=4) == 1
    assert "the data has changed. Give another folder, or add --overwrite." in capsys.readouterr().err
    assert len(read_trajectories(tmp_path / "out")) == 2
    rows(tmp_path / "data", category="new")
    assert run_eval(tmp_path, n=4) == 0


def test_edited_tasks_are_not_played_under_a_further_condition(tmp_path, capsys):
    rows(tmp_path / "data")
    options = ("--suites", "orientation")
    assert run_eval(tmp_path, *options, n=2) == 0
    (tmp_path / "out" / "suite-orientation" / "trajectories.jsonl").unlink()
    rows(tmp_path / "data", answer="yes")
    assert run_eval(tmp_path, *options, n=2) == 1
    assert "the data has changed" in capsys.readouterr().err


def test_tasks_under_transforms_are_those_played(tmp_path, capsys):
    rows(tmp_path / "data")
    options = ("--wrap", "orientation")
    assert run_eval(tmp_path, *options, n=2) == 0
    assert run_eval(tmp_path, *options, n=8) == 0
    rows(tmp_path / "data", answer="yes")
    assert run_eval(tmp_path, *options, n=12) == 1


def test_generated_tasks_are_not_made_again():
    class Generated:
        name, source = "scenes", "generated"

        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: int):
            raise AssertionError

        def index_of(self, task_id: str) -> int:
            return 0

    assert first_changed(Generated(), {0: "x"}) is None


def test_a_task_that_cannot_be_read_any_more_has_changed(tmp_path):
    tasks = load_tasks(str(rows(tmp_path / "data")), "train", bench="dataset")
    digests = {index: digest_of(tasks[index]) for index in range(6)}
    assert first_changed(tasks, digests) is None
    (tmp_path / "data" / "3.png").write_bytes(b"broken")
    assert first_changed(tasks, digests, workers=2) == 3


def test_the_image_of_a_box_counts(tmp_path):
    task = load_tasks(str(rows(tmp_path / "data")), "train", bench="dataset")[0]
    other = dataclasses.replace(task, targets=(ImageBox(task.targets[0], 1),))
    assert digest_of(other) != digest_of(task)


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: next(iter(edit)))
def test_a_filter_does_not_mix_edited_tasks_in(tmp_path, edit):
    rows(tmp_path / "data")
    out = tmp_path / "kept.jsonl"
    given = ["filter", "--data", str(tmp_path / "data"), "--bench", "dataset", "--agent", "scripted:oracle"]
    given += ["--out", str(out), "--rollouts", "1", "--keep", "0.0", "1.0"]
    assert data.main([*given, "--n", "2"]) == 0
    rows(tmp_path / "data", **edit)
    with pytest.raises(TaskError, match="the data has changed"):
        data.main([*given, "--n", "4"])
    rows(tmp_path / "data")
    assert data.main([*given, "--n", "4"]) == 0
