"""A place where nothing can be written is refused with its reason by every command that writes to `--out`."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from demonstration_rows import thyme_row, write_rows
from eval_samples import episodes

from codev_env.app import cli
from codev_env.scoring.metrics import summarize
from codev_env.trajectory import write_trajectories

TOY = ("--data", "synthetic", "--scenes", "toy", "--n", "1")
COMMANDS = {
    "eval": ("eval", "--model", "scripted:none", *TOY),
    "eval compare": ("eval", "compare", "run", "run"),
    "data show": ("data", "show", *TOY),
    "data filter": ("data", "filter", "--agent", "scripted:none", "--rollouts", "1", *TOY),
    "data replay": ("data", "replay", "--format", "thyme", "--data", "thyme"),
    "data push": ("data", "push", "me/scenes", *TOY),
    "data pull": ("data", "pull", "me/scenes"),
    "judge agreement": ("judge", "agreement", "--judge", "ground_truth", "--scenes", "toy", "--n", "1"),
    "rewards redteam": ("rewards", "redteam", "--tasks", "1", "--cheats", "save-without-showing"),
    "study tapo": ("study", "tapo"),
    "play": ("play", "--scenes", "toy"),
}
FILES = {"data show": "x.png", "data filter": "x.jsonl"}


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """The working folder: it has the folder of an evaluation, rows to replay, and a link whose target is missing."""
    played = episodes(True, 2)
    write_trajectories(tmp_path / "run", played)
    metrics = {"schema": 1, "model": "m", "benches": {"vstar": summarize(played, seed=0)}}
    (tmp_path / "run" / "metrics.json").write_text(json.dumps(metrics))
    (tmp_path / "thyme").mkdir()
    write_rows(tmp_path / "thyme" / "train.jsonl", [thyme_row(("print(5)", "5"))])
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], name: str, out: str) -> str:
    assert cli.main([*COMMANDS[name], "--out", out]) == 1
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("below", [False, True])
def test_a_link_to_nothing_is_named_with_its_target(here, capsys, name, below):
    out = f"link/{FILES.get(name, 'x')}" if below or name in FILES else "link"
    said = refused(capsys, name, out)
    assert said == (
        f"codev {name}: --out {out}: link is a link to {here / 'gone'}, which is missing. "
        "Make it, or give another folder."
    )
    assert not (here / "gone").exists()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc, in which nobody makes files")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_system_that_takes_no_files_is_named(here, capsys, name):
    out = f"/proc/{FILES.get(name, 'x')}"
    said = refused(capsys, name, out)
    assert said == f"codev {name}: --out {out} cannot be made: /proc takes no new files. Give another folder."
