"""`codev eval` and `codev report`, end to end: known values, files, refusals, failures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from eval_samples import make_run

from codev_agents import AgentError, NoTool
from codev_env.app import cli
from codev_env.errors import ConfigError
from codev_env.trajectory import read_trajectories
from codev_eval.bench import evaluation
from codev_eval.bench.models import parse_model


def run_eval(out: Path, *options: str, model: str = "scripted:none", n: int = 8) -> int:
    given = ["--model", model, "--data", "synthetic", "--scenes", "toy", "--out", str(out), "--n", str(n)]
    return cli.main(["eval", *given, *options])


def bench(out: Path) -> dict:
    return json.loads((out / "metrics.json").read_text())["benches"]["vstar"]


@pytest.mark.parametrize(
    ("agent", "known"),
    [
        ("oracle", {"accuracy": 1.0, "faithful": 1.0, "faithful_given_correct": 1.0, "tool_calls": 1.0, "lazy": 0.0}),
        ("lazy", {"faithful": 0.0, "faithful_and_correct": 0.0, "tool_calls": 1.0, "lazy": 1.0}),
        ("none", {"faithful": 0.0, "faithful_and_correct": 0.0, "tool_calls": 0.0, "crops": 0.0, "lazy": 0.0}),
    ],
)
@pytest.mark.parametrize("scenes", ["toy", "vstar"])
def test_scripted_agents_hit_their_known_values(tmp_path, agent, known, scenes):
    count = 16 if scenes == "toy" else 3
    assert run_eval(tmp_path, "--scenes", scenes, model=f"scripted:{agent}", n=count) == 0
    assert bench(tmp_path) == bench(tmp_path) | {"n": count, "errors": 0.0, "invalid_turns": 0.0} | known


def test_it_writes_trajectories_metrics_and_report_and_prints_the_table(tmp_path, capsys):
    assert run_eval(tmp_path, model="scripted:oracle", n=4) == 0
    record = json.loads((tmp_path / "metrics.json").read_text())
    assert record["schema"] == 1 and record["failed"] == [] and record["model"] == "scripted:oracle"
    assert record["source"] == "generated" and record["split"] == "test"
    assert record["tasks"]["scenes"] == "toy" and record["tasks"]["subset"] is None
    trajectories = read_trajectories(tmp_path)
    assert [t.index for t in trajectories] == [0, 1, 2, 3]
    assert {(t.agent, t.split, t.env_id) for t in trajectories} == {("oracle", "test", "CodeV-VStar-v0")}
    assert (tmp_path / "report.html").read_text("utf-8").count("<article") == 4
    out = capsys.readouterr().out
    assert "accuracy" in out and "[51.0 %, 100 %]" in out and str(tmp_path / "report.html") in out


def test_rates_of_each_part_and_the_benchmarks_own_total(tmp_path, capsys):
    assert run_eval(tmp_path / "a", "--wrap", "orientation", model="scripted:oracle", n=8) == 0
    found = bench(tmp_path / "a")
    # The second task has only two of its six variants.
    assert {name: group["n"] for name, group in found["by_variant"].items()} == {
        "source": 2, "rotate_90": 2, "rotate_180": 1, "rotate_270": 1, "flip_horizontal": 1, "flip_vertical": 1,
    }  # fmt: skip
    means = [group["accuracy"] for group in found["by_variant"].values()]
    assert found["score"]["overall"] == pytest.approx(sum(means) / 6)
    assert [group["n"] for group in found["by_category"].values()] == [8]
    out = capsys.readouterr().out
    assert "rotate_270" in out and "Score (mean over the variants)" in out
    hard = [
        "--bench",
        "hrbench4k",
        "--scenes",
        '{"preset": "hrbench-4k", "sizes": [[800, 600]], "distractors": [4, 8]}',
    ]
    assert run_eval(tmp_path / "b", *hard, model="scripted:random", n=8) == 0
    found = json.loads((tmp_path / "b" / "metrics.json").read_text())["benches"]["hrbench4k"]
    cycles = [found["score"][f"cycle/{number}"] for number in range(4)]
    assert found["score"]["overall"] == pytest.approx(sum(cycles) / 4) and "by_variant" not in found
    assert "Score (totalled as the benchmark's authors do)" in capsys.readouterr().out
    # Other scenes in its place have no cycles: there is no such total.
    assert run_eval(tmp_path / "c", "--bench", "hrbench4k", n=2) == 0
    assert "score" not in json.loads((tmp_path / "c" / "metrics.json").read_text())["benches"]["hrbench4k"]


def episodes(out: Path) -> list[tuple]:
    return [(t.task_id, t.final_answer, [turn.crop_boxes for turn in t.turns]) for t in read_trajectories(out)]


def test_a_seed_decides_everything_and_the_number_of_threads_nothing(tmp_path):
    for name, options in {
        "a": ["--seed", "3", "--workers", "1"],
        "b": ["--seed", "3", "--workers", "3"],
        "c": ["--seed", "4"],
    }.items():
        assert run_eval(tmp_path / name, *options, model="scripted:random") == 0
    assert episodes(tmp_path / "a") == episodes(tmp_path / "b")
    assert bench(tmp_path / "a") == bench(tmp_path / "b")
    different, same = episodes(tmp_path / "c"), episodes(tmp_path / "a")
    assert different != same and [e[0] for e in different] == [e[0] for e in same]


def test_results_are_not_written_over_unless_asked(tmp_path, capsys):
    assert run_eval(tmp_path, n=3) == 0
    (tmp_path / "notes.txt").write_text("mine")
    before = (tmp_path / "trajectories.jsonl").read_bytes()
    assert run_eval(tmp_path, n=2) == 1
    assert "--overwrite" in capsys.readouterr().err
    assert (tmp_path / "trajectories.jsonl").read_bytes() == before
    assert run_eval(tmp_path, "--overwrite", n=2) == 0
    assert bench(tmp_path)["n"] == 2 and len(read_trajectories(tmp_path)) == 2
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--data", "auto"], "--data synthetic"),
        (["--n", "0"], "--n is 0"),
        (["--n", "100000000"], "tasks in split 'test'"),
        (["--workers", "0"], "--workers is 0"),
        (["--seed", "-1"], "--seed is -1"),
        (["--bench", "vstra"], "Did you mean 'vstar'?"),
        (["--split", "tset"], "Did you mean 'test'?"),
        (["--scenes", "tyo"], "Did you mean 'toy'?"),
        (["--dialect", "codef"], "Did you mean 'codev'?"),
        (["--model", "scripted:oracel"], "Did you mean 'oracle'?"),
        (["--suites", "corrption"], "Did you mean the suite 'corruption'?"),
        (["--severities", "3"], "--severities 3 is only of --suites corruption"),
        (["--suites", "orientation", "--severities", "3"], "--severities 3 is only of --suites corruption"),
        (["--model", "gpt"], "URL#NAME"),
        (["--model", "http://localhost:1/v1"], "names no model"),
    ],
)
def test_what_cannot_be_used_is_told_and_nothing_is_written(tmp_path, capsys, options, says):
    assert run_eval(tmp_path / "out", *options) == 1
    err = capsys.readouterr().err
    assert says in err and "Traceback" not in err
    assert not (tmp_path / "out").exists()


def test_a_folder_without_a_model_is_told_and_nothing_is_written(tmp_path, capsys):
    pytest.importorskip("torch")
    (tmp_path / "weights").mkdir()
    assert run_eval(tmp_path / "out", model=str(tmp_path / "weights")) == 1
    assert "config.json is missing" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_the_folder_of_a_run_is_told_where_its_model_is(tmp_path, capsys):
    pytest.importorskip("torch")
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "model" / "config.json").write_text("{}")
    assert run_eval(tmp_path / "out", model=str(tmp_path / "run")) == 1
    assert f"config.json is missing; give {tmp_path / 'run' / 'model'}." in capsys.readouterr().err


@pytest.mark.parametrize(("config", "says"), [("{bad", "not a valid JSON file"), ("{}", "model_type")])
def test_a_model_whose_configuration_is_broken_is_told_so(tmp_path, capsys, config, says):
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text(config)
    given = ["--data", "synthetic", "--scenes", "toy", "--n", "1", "--out", str(tmp_path / "out")]
    assert cli.main(["eval", "--model", str(tmp_path), *given]) == 1
    err = capsys.readouterr().err
    assert f"the config.json of the model in {tmp_path} cannot be read" in err and says in err


def test_an_unknown_option_names_the_nearest(tmp_path, capsys):
    with pytest.raises(SystemExit) as caught:
        run_eval(tmp_path, "--sede", "3")
    assert caught.value.code == 2 and "--seed" in capsys.readouterr().err


def test_out_must_not_be_a_file(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert run_eval(tmp_path / "file") == 1
    assert "is a file" in capsys.readouterr().err


class Flaky(NoTool):
    """Cannot act on some tasks."""

    failing: tuple[int, ...] = ()

    def reset(self, env):
        self.number = env.unwrapped.tasks.index_of(env.unwrapped.task.task_id)
        super().reset(env)

    def act(self, observation):
        if self.number in self.failing:
            raise AgentError(f"the server is gone at {self.number}")
        return super().act(observation)


@pytest.mark.parametrize("failing", [(1,), (0, 1, 2)])
def test_episodes_that_failed_are_listed_and_never_counted(tmp_path, capsys, monkeypatch, failing):
    monkeypatch.setattr(Flaky, "failing", failing)
    monkeypatch.setattr(evaluation, "parse_model", lambda *_, **__: Flaky)
    assert run_eval(tmp_path, n=3) == 1
    err = capsys.readouterr().err
    assert f"AgentError: the server is gone at {failing[0]}" in err
    if len(failing) == 3:
        assert "none of the 3 episodes" in err and not list(tmp_path.iterdir())
    else:
        assert "task 1: AgentError" in err and bench(tmp_path)["n"] == 2
        failed = json.loads((tmp_path / "metrics.json").read_text())["failed"]
        assert [entry["index"] for entry in failed] == [1]
        page = (tmp_path / "report.html").read_text("utf-8")
        assert "<h3>Not evaluated" in page and "AgentError: the server is gone at 1" in page


def test_the_report_of_an_evaluation_can_be_made_again(tmp_path, capsys):
    assert run_eval(tmp_path, n=2) == 0
    page = tmp_path / "report.html"
    first = page.read_bytes()
    page.unlink()
    assert cli.main(["report", str(tmp_path)]) == 0
    assert page.read_bytes() == first and capsys.readouterr().out.endswith(f"{page}\n")


def test_the_report_of_a_training_run_can_be_made_again(tmp_path, capsys):
    make_run(tmp_path, count=2)
    assert cli.main(["report", str(tmp_path)]) == 0
    assert (tmp_path / "report.html").is_file()


@pytest.mark.parametrize("command", ["report", "view"])
def test_a_folder_of_runs_is_refused_and_they_are_named(tmp_path, capsys, command):
    assert cli.main([command, str(tmp_path)]) == 1
    err = capsys.readouterr().err
    assert "codev eval" in err or "training run or evaluation" in err
    assert "such as" not in err
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "metrics.json").write_text("{}")
    make_run(tmp_path / "a", count=1)
    assert cli.main([command, str(tmp_path)]) == 1
    assert f"such as {tmp_path / 'a'}, {tmp_path / 'b'}." in capsys.readouterr().err


@pytest.mark.parametrize("metrics", ["{", "[]", '{"benches": {}}'])
def test_broken_metrics_are_told(tmp_path, capsys, metrics):
    (tmp_path / "metrics.json").write_text(metrics)
    assert cli.main(["report", str(tmp_path)]) == 1
    assert "is not what `codev eval` writes" in capsys.readouterr().err


def test_a_server_model_gets_its_address_and_name():
    pytest.importorskip("openai")
    agent = parse_model("http://localhost:8000/v1#org/model", seed=5)()
    assert agent.name == "chat:org/model" and agent.base_url == "http://localhost:8000/v1"  # type: ignore[attr-defined]


def test_each_thread_gets_an_agent_of_its_own():
    make = parse_model("scripted:random", seed=5)
    assert make() is not make() and make().seed == 5  # type: ignore[attr-defined]


def test_an_unknown_kind_of_model_lists_the_forms():
    with pytest.raises(ConfigError, match="scripted:oracle"):
        parse_model("")
