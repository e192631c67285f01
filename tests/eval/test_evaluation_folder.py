"""The folder of an evaluation: files of the user in it are never removed or written over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from codev_agents import AgentError, Oracle
from codev_env.app import cli
from codev_env.errors import ConfigError
from codev_env.trajectory import read_trajectories
from codev_eval.bench import evaluation
from codev_eval.bench.folder import check_same
from codev_eval.bench.models import weights_of
from codev_eval.bench.options import EvalOptions


class Failing(Oracle):
    """Fails in every episode."""

    def reset(self, env):
        raise AgentError("the server is down")


def run_eval(out: Path, *options: str) -> int:
    given = ["--data", "synthetic", "--scenes", "toy", "--out", str(out), "--n", "2", "--workers", "1"]
    return cli.main(["eval", "--model", "scripted:oracle", *given, *options])


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def own(tmp_path) -> Path:
    """A folder with files of the user."""
    for name in ("images/mine.txt", "images/0123456789abcdef01234567.png", "suite-notes/a.txt", "rows.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    return tmp_path


def test_an_evaluation_without_an_episode_leaves_what_was_there(own, monkeypatch):
    monkeypatch.setattr(evaluation, "parse_model", lambda *_, **__: Failing)
    before = files(own)
    assert run_eval(own) == 1
    assert files(own) == before


def test_data_next_to_the_results_stays(tmp_path, monkeypatch):
    (tmp_path / "images").mkdir()
    Image.new("RGB", (64, 64)).save(tmp_path / "images" / "0.png")
    (tmp_path / "rows.jsonl").write_text(json.dumps({"image": "0.png", "question": "Which?", "answer": "a"}) + "\n")
    before = files(tmp_path)
    monkeypatch.setattr(evaluation, "parse_model", lambda *_, **__: Failing)
    given = ["--model", "scripted:none", "--bench", "dataset", "--split", "train", "--data", str(tmp_path)]
    assert cli.main(["eval", *given, "--out", str(tmp_path)]) == 1
    assert files(tmp_path) == before


def test_overwriting_is_refused_where_no_evaluation_is(own, capsys):
    before = files(own)
    assert run_eval(own, "--overwrite") == 1
    assert "holds images, but no evaluation" in capsys.readouterr().err
    assert files(own) == before


def test_overwriting_removes_what_an_evaluation_wrote_and_nothing_else(own, capsys):
    before = files(own)
    assert run_eval(own, "--suites", "orientation") == 0
    assert len(read_trajectories(own / "suite-orientation")) == 10
    (own / "suite-orientation" / "note.txt").write_text("mine")
    assert run_eval(own, "--seed", "1", "--overwrite") == 0
    left = files(own)
    assert before.items() < left.items()
    assert {name for name in left if name.startswith("suite-orientation")} == {"suite-orientation/note.txt"}
    assert {t.seed for t in read_trajectories(own)} == {1, 2}


@pytest.mark.parametrize("options", [(), ("--dual", "--suites", "orientation")])
def test_what_would_be_overwritten_stays_until_an_episode_is_finished(own, monkeypatch, capsys, options):
    assert run_eval(own, "--suites", "orientation") == 0
    before = files(own)
    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "parse_model", lambda *_, **__: Failing)
        assert run_eval(own, "--seed", "1", "--overwrite", *options) == 1
    assert "none of the 2 episodes could be evaluated" in capsys.readouterr().err
    assert files(own) == before
    assert run_eval(own, "--seed", "1", "--overwrite", *options) == 0
    assert {t.seed for t in read_trajectories(own)} == {1, 2}


class Stopped(Oracle):
    """Is stopped with Ctrl-C before an episode."""

    def __init__(self, at: int):
        super().__init__()
        self.left = at

    def reset(self, env):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        super().reset(env)


def test_a_stop_says_whether_the_earlier_evaluation_is_still_there(tmp_path, monkeypatch, capsys):
    assert run_eval(tmp_path) == 0
    before = files(tmp_path)
    monkeypatch.setattr(evaluation, "parse_model", lambda *_, **__: lambda: Stopped(0))
    assert run_eval(tmp_path, "--seed", "1", "--overwrite") == cli.INTERRUPTED
    assert f"{tmp_path} still holds the earlier evaluation." in capsys.readouterr().err and files(tmp_path) == before
    monkeypatch.setattr(evaluation, "parse_model", lambda *_, **__: lambda: Stopped(3))
    assert run_eval(tmp_path, "--seed", "1", "--overwrite", "--n", "9") == cli.INTERRUPTED
    assert "Continue with the same command without --overwrite." in capsys.readouterr().err
    kept = read_trajectories(tmp_path)
    assert kept and not (tmp_path / "metrics.json").exists()
    monkeypatch.undo()
    assert run_eval(tmp_path, "--seed", "1", "--n", "9") == 0
    assert read_trajectories(tmp_path)[: len(kept)] == kept


@pytest.mark.parametrize("options", [{}, {"overwrite": True}])
def test_a_folder_has_one_evaluation_at_a_time(tmp_path, monkeypatch, options):
    """Before the first episode of one, another model's would be mixed in; `--overwrite` would remove what it writes."""
    said: list[str] = []
    other = EvalOptions(model="scripted:none", data=("synthetic",), scenes="toy", n=2, out=tmp_path / "new", **options)

    class Disturbed(Oracle):
        def reset(self, env):
            if not said:
                said.append("")
                with pytest.raises(ConfigError) as error:
                    evaluation.Evaluation(other).play()
                said.append(str(error.value))
            super().reset(env)

    monkeypatch.setattr(evaluation, "parse_model", lambda *_, **__: Disturbed)
    assert run_eval(tmp_path / "new") == 0
    assert said[1].startswith(f"another evaluation runs in --out {tmp_path / 'new'}: ")
    assert {t.agent for t in read_trajectories(tmp_path / "new")} == {Oracle.name}
    assert run_eval(tmp_path / "new") == 0, "it is free again"


@pytest.mark.parametrize("name", ["report.html", "metrics.json"])
def test_a_page_of_another_program_is_not_replaced(tmp_path, capsys, name):
    (tmp_path / name).write_text("mine")
    assert run_eval(tmp_path) == 1
    err = capsys.readouterr().err
    assert f"already holds {name}" in err and "--overwrite" not in err
    assert run_eval(tmp_path, "--overwrite") == 1
    assert files(tmp_path) == {name: b"mine"}


@pytest.mark.parametrize("text", ['[{"image": "a.png"}]', "{}", "no JSON"])
@pytest.mark.parametrize("options", [(), ("--overwrite",)])
def test_rows_named_like_the_options_are_not_replaced(tmp_path, capsys, text, options):
    (tmp_path / "eval.json").write_text(text)
    assert run_eval(tmp_path, *options) == 1
    assert "evaluation" in capsys.readouterr().err and files(tmp_path) == {"eval.json": text.encode()}


def test_a_broken_evaluation_can_be_replaced(tmp_path, capsys):
    assert run_eval(tmp_path) == 0
    (tmp_path / "eval.json").write_text("{")
    assert run_eval(tmp_path) == 1
    assert "add --overwrite" in capsys.readouterr().err
    assert run_eval(tmp_path, "--overwrite") == 0


@pytest.mark.parametrize("lost", [(), ("trajectories.jsonl", "metrics.json", "report.html")])
def test_an_evaluation_of_another_version_is_not_continued(tmp_path, capsys, lost):
    assert run_eval(tmp_path) == 0
    state = json.loads((tmp_path / "eval.json").read_text())
    (tmp_path / "eval.json").write_text(json.dumps(state | {"schema": 99}))
    for name in lost:
        (tmp_path / name).unlink()
    before = files(tmp_path)
    assert run_eval(tmp_path, "--n", "3") == 1
    assert f"{tmp_path / 'eval.json'}: schema 99 is unknown; this version reads schema 1." in capsys.readouterr().err
    assert files(tmp_path) == before


def test_all_options_that_differ_are_named_and_more_tasks_are_none_of_them(tmp_path, capsys):
    assert run_eval(tmp_path) == 0
    capsys.readouterr()
    assert run_eval(tmp_path, "--n", "3", "--seed", "1", "--max-turns", "4") == 1
    said = capsys.readouterr().err
    assert "--seed was 0 and is 1" in said and "--max-turns was 6 and is 4" in said and "--n was" not in said


@pytest.mark.parametrize("size", [100, 10_000_000])
@pytest.mark.parametrize("at", [0, -1])
def test_an_evaluation_goes_on_with_the_same_weights_alone(tmp_path, size, at):
    model, mine = tmp_path / "model", {"model": "model", "n": 2}
    model.mkdir()
    content = bytearray(size)
    (model / "model.safetensors").write_bytes(content)
    state = {"options": mine, "weights": weights_of(model)}
    (tmp_path / "eval.json").write_text(json.dumps(state))
    (model / "config.json").write_text("{}")
    check_same(tmp_path, tmp_path / "eval.json", mine, weights_of(model))
    content[at] = 1
    (model / "model.safetensors").write_bytes(content)
    with pytest.raises(ConfigError, match="the weights that --model model had before; they have changed"):
        check_same(tmp_path, tmp_path / "eval.json", mine, weights_of(model))
    (tmp_path / "eval.json").write_text(json.dumps({"options": mine}))  # of an earlier version
    check_same(tmp_path, tmp_path / "eval.json", mine, weights_of(model))
