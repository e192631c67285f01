"""Rows that cannot be used: the message names the way to leave them out that its reader has."""

from __future__ import annotations

import io
import json
import pickle
import re

import pytest
from PIL import Image

from codev_env.app import cli
from codev_env.app.completion import OPTIONS
from codev_env.app.options import options_of
from codev_env.errors import BadRows, TaskError
from codev_env.tasks import load_tasks

SECOND = "rows.jsonl, line 2: the answer is empty."


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """A file of two rows, of which the second has no answer."""
    Image.new("RGB", (64, 64), "red").save(tmp_path / "a.png")
    row = {"image": "a.png", "question": "Which colour?", "answer": "red"}
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, [row, {**row, "answer": ""}])))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO("/answer red\n"))
    return path


def test_python_is_told_the_argument(rows):
    with pytest.raises(TaskError, match=re.escape(f"{SECOND} Use on_error='skip' to leave them out.")) as bad:
        load_tasks("rows.jsonl", "train", bench="dataset")
    assert "--" not in str(bad.value) and str(pickle.loads(pickle.dumps(bad.value))) == str(bad.value)
    with pytest.warns(UserWarning, match="left out 1 of 2 rows"):
        assert len(load_tasks("rows.jsonl", "train", bench="dataset", on_error="skip")) == 1


@pytest.mark.parametrize("line", ["play", "data show", "data filter --agent scripted:none --out kept.jsonl"])
def test_a_command_names_its_option_which_works(rows, line, capsys):
    if not line.startswith("play"):
        pytest.importorskip("pydantic")
    words = [*line.split(), "--bench", "dataset", "--data", "rows.jsonl"]
    assert cli.main(words) == 1
    assert capsys.readouterr().err.endswith(f": {SECOND} Use --on-error skip to leave them out.\n")
    with pytest.warns(UserWarning, match="left out 1 of 2 rows"):
        assert cli.main([*words, "--on-error", "skip"]) == 0


def test_training_names_its_option_before_it_begins(rows, capsys):
    pytest.importorskip("torch")
    words = "train --preset tiny --env.id CodeV-Dataset-v0 --env.data rows.jsonl --env.scenes= --eval.contrast"
    assert cli.main([*words.split(), "--out", "run"]) == 1
    assert capsys.readouterr().err.endswith(f"{SECOND} Use --env.on-error skip to leave them out.\n")


@pytest.mark.parametrize("path", OPTIONS)
def test_no_command_names_an_option_that_it_lacks(path, monkeypatch, capsys):
    pytest.importorskip("pydantic")

    def fail(*words):
        raise BadRows(SECOND)

    monkeypatch.setattr(cli, "run_command", fail)
    assert cli.main(path.split()) == 1
    said = capsys.readouterr().err.rstrip("\n")
    known = [option.flag for option in options_of(cli.load(OPTIONS[path]))]
    named = re.fullmatch(rf"codev {path}: {SECOND} Use (\S+?)[= ]'?skip'? to leave them out\.", said)[1]
    own = [flag for flag in known if flag.endswith("on-error")]
    assert [named] == (own or ["on_error"])
