"""Evaluations with servers: what is asked of them before the first episode, and what the judge's takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_judge_server import FakeJudgeServer, Reply, Request, completion, fails, good, says

from codev_env.app import cli

pytest.importorskip("openai")

ANSWER = "<think>x</think><answer>1</answer>"


def run_eval(out: Path, model: str, *options: str, n: int = 2) -> int:
    given = ["--model", model, "--data", "synthetic", "--scenes", "toy", "--out", str(out), "--n", str(n)]
    return cli.main(["eval", *given, "--workers", "1", *options])


def test_a_model_that_the_server_lacks_is_named_before_anything_is_played(tmp_path, capsys):
    with FakeJudgeServer(fails(404)) as server:
        assert run_eval(tmp_path / "out", f"{server.url}#other") == 1
        assert len(server.requests) == 1 and server.requests[0]["max_tokens"] == 1
    err = capsys.readouterr().err
    assert "has no model 'other'" in err and "It serves: toy." in err and "ep/s" not in err
    assert not (tmp_path / "out").exists()


def test_a_model_that_the_server_knows_by_another_name_is_played(tmp_path):
    with FakeJudgeServer(says(ANSWER)) as server:
        assert run_eval(tmp_path / "model", f"{server.url}#alias") == 0
        assert len(server.requests) == 1 + 2
    with FakeJudgeServer(says(ANSWER), good) as server:
        assert run_eval(tmp_path / "judge", "scripted:oracle", "--judge", f"{server.url}#alias") == 0
        assert len(server.requests) == 1 + 2


@pytest.mark.parametrize("models", [None, ("toy",)])
def test_nothing_more_is_asked_of_a_server_with_the_model_or_without_a_list(tmp_path, models):
    with FakeJudgeServer(says(ANSWER), models=models) as server:
        assert run_eval(tmp_path, f"{server.url}#toy") == 0
        assert len(server.requests) == 2


def test_a_server_that_is_not_there_is_named_at_once_and_a_finished_evaluation_needs_none(tmp_path, capsys):
    with FakeJudgeServer(says(ANSWER)) as server:
        assert run_eval(tmp_path, model := f"{server.url}#toy") == 0
    assert run_eval(tmp_path, model) == 0
    before = (tmp_path / "eval.json").read_text()
    assert run_eval(tmp_path, model, n=3) == 1
    assert "cannot reach the server at" in capsys.readouterr().err
    assert (tmp_path / "eval.json").read_text() == before


def test_the_servers_of_judge_and_scorer_are_asked_before_anything_is_played(tmp_path, capsys):
    with FakeJudgeServer(fails(404)) as server:
        other = f"{server.url}#other"
        assert run_eval(tmp_path / "out", "scripted:oracle", "--judge", other) == 1
        assert "judge 'vlm': 'other' at" in (err := capsys.readouterr().err) and "It serves: toy." in err
        assert run_eval(tmp_path / "out", "scripted:oracle", "--scorer", other) == 1
        assert "scorer 'answer': 'other' at" in (err := capsys.readouterr().err) and "It serves: toy." in err
    assert run_eval(tmp_path / "out", "scripted:oracle", "--scorer", other) == 1
    assert "cannot be reached" in capsys.readouterr().err and not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--model", "--judge", "--scorer"])
def test_a_server_that_is_not_there_overwrites_nothing(tmp_path, capsys, option):
    assert run_eval(tmp_path, "scripted:oracle") == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert run_eval(tmp_path, "scripted:oracle", option, "http://localhost:9/v1#m", "--overwrite") == 1
    assert "http://localhost:9/v1" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_the_judges_requests_are_counted_beside_the_models_and_kept_with_the_episodes(tmp_path, capsys):
    with FakeJudgeServer(says("no verdict"), good) as server:
        judge = {"name": "vlm", "model": "toy", "base_url": server.url, "prompt_price": 1e4, "completion_price": 1e4}
        given = ("scripted:oracle", "--judge", json.dumps(judge))
        assert run_eval(tmp_path, *given, n=2) == 0
        assert len(server.requests) == 3, "one was sent again"
        assert run_eval(tmp_path, *given, n=3) == 0
    record = json.loads((tmp_path / "metrics.json").read_text())
    used = {"requests": 4, "prompt_tokens": 400, "completion_tokens": 40, "cost": pytest.approx(4.4)}
    assert record["usage"]["judge"] == record["benches"]["vstar"]["usage"]["judge"] == used
    assert (record["usage"]["requests"], record["usage"]["cost"]) == (0, 0)
    assert "Judge: 4 requests, 400 prompt tokens, 40 completion tokens, cost 4.40" in capsys.readouterr().out
    page = (tmp_path / "report.html").read_text()
    assert "judge&#39;s prompt tokens" in page and "400" in page


def test_so_are_the_scorers(tmp_path, capsys):
    def reads(request: Request) -> Reply:
        asked = json.loads(request["messages"][1]["content"])
        return Reply(completion(json.dumps({"check": asked["check"], "same": False})))

    with FakeJudgeServer(says("<answer>a wild guess</answer>"), says("no verdict"), reads) as server:
        assert run_eval(tmp_path, f"{server.url}#toy", "--scorer", f"{server.url}#toy", n=1) == 0
    record = json.loads((tmp_path / "metrics.json").read_text())
    used = {"requests": 2, "prompt_tokens": 200, "completion_tokens": 20, "cost": 0.0}
    assert record["usage"]["scorer"] == record["benches"]["vstar"]["usage"]["scorer"] == used
    assert record["usage"]["requests"] == 1 and "judge" not in record["usage"]
    assert "Scorer: 2 requests, 200 prompt tokens, 20 completion tokens" in capsys.readouterr().out
    assert "scorer&#39;s prompt tokens" in (tmp_path / "report.html").read_text()


LOOK = "<think>x</think><code>show(image.crop((0, 0, 64, 64)))</code>"


def used_by(out: Path) -> dict:
    return json.loads((out / "metrics.json").read_text())["usage"]


def test_what_failed_episodes_took_is_counted_and_stays_when_they_are_tried_again(tmp_path, capsys):
    prices = ("--prompt-price", "1e4", "--completion-price", "1e4")
    with FakeJudgeServer(says(LOOK), fails(400), says(ANSWER)) as server:
        assert run_eval(tmp_path, f"{server.url}#toy", *prices) == 1
        first = {"requests": 2, "prompt_tokens": 200, "completion_tokens": 20, "truncated_turns": 0}
        assert used_by(tmp_path) == first | {"cost": pytest.approx(2.2)}
        assert "cost 2.20" in capsys.readouterr().out
        assert run_eval(tmp_path, f"{server.url}#toy", *prices) == 0
    record = json.loads((tmp_path / "metrics.json").read_text())
    assert record["usage"]["requests"] == record["benches"]["vstar"]["usage"]["requests"] == 3
    assert record["usage"]["cost"] == pytest.approx(3.3) and record["failed"] == []


def test_so_is_what_judge_and_scorer_took_for_them(tmp_path):
    answers = (says("no verdict"), fails(400), fails(400), good)  # refused with structured output and without
    with FakeJudgeServer(says(LOOK)) as model, FakeJudgeServer(*answers) as server:
        judge = {"name": "vlm", "model": "toy", "base_url": server.url, "prompt_price": 1e4, "completion_price": 0}
        given = ("--judge", json.dumps(judge), "--max-turns", "1")
        assert run_eval(tmp_path / "judge", f"{model.url}#toy", *given) == 1
    used = used_by(tmp_path / "judge")
    assert used["judge"] == {"requests": 4, "prompt_tokens": 200, "completion_tokens": 20, "cost": pytest.approx(2.0)}
    assert used["requests"] == 2
    with FakeJudgeServer(says("<answer>a wild guess</answer>"), says("no verdict"), fails(400), says(ANSWER)) as server:
        assert run_eval(tmp_path / "scorer", f"{server.url}#toy", "--scorer", f"{server.url}#toy") == 1
    used = used_by(tmp_path / "scorer")
    assert used["requests"] == 2
    assert used["scorer"] == {"requests": 1, "prompt_tokens": 100, "completion_tokens": 10, "cost": 0.0}


def test_an_episode_that_fails_before_its_first_request_takes_nothing(tmp_path):
    with FakeJudgeServer(says(ANSWER), fails(400)) as server:
        assert run_eval(tmp_path, f"{server.url}#toy") == 1
    assert used_by(tmp_path)["requests"] == 1


def test_so_are_those_of_a_filter(tmp_path, capsys):
    given = ["data", "filter", "--data", "synthetic", "--scenes", "toy", "--n", "1", "--rollouts", "1"]
    given += ["--out", str(tmp_path / "kept.jsonl")]
    with FakeJudgeServer(fails(404)) as server:
        assert cli.main([*given, "--agent", f"{server.url}#other"]) == 1
        assert len(server.requests) == 1 and "has no model 'other'" in capsys.readouterr().err
    with FakeJudgeServer(says(ANSWER)) as server:
        assert cli.main([*given, "--agent", f"{server.url}#toy"]) == 0
    assert cli.main([*given, "--agent", f"{server.url}#toy"]) == 0, "nothing is left to ask"


def test_an_evaluation_whose_judge_asks_no_server_has_no_entry_of_it(tmp_path):
    assert run_eval(tmp_path, "scripted:oracle") == 0
    assert "judge" not in json.loads((tmp_path / "metrics.json").read_text())["usage"]
    assert "judge_usage" not in (tmp_path / "trajectories.jsonl").read_text()


@pytest.mark.parametrize("option", ["--model", "--judge", "--scorer"])
@pytest.mark.parametrize("address", ["http://[::1/v1", "http://", "http://127.0.0.1:99999/v1"])
def test_an_address_that_cannot_be_is_named(tmp_path, capsys, option, address):
    assert run_eval(tmp_path / "out", "scripted:oracle", option, f"{address}#toy") == 1
    err = capsys.readouterr().err
    assert f"is {address!r}; it must be an address such as http://localhost:8000/v1" in err
    assert option.strip("-") in err and not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--model", "--judge", "--scorer"])
@pytest.mark.parametrize("key", ["sk-\u00e4", "sk-\nsk-"])
def test_a_key_that_cannot_be_sent_is_named_and_blanks_around_it_are_left_out(
    tmp_path, capsys, monkeypatch, option, key
):
    with FakeJudgeServer(says(ANSWER)) as server:
        monkeypatch.setenv("OPENAI_API_KEY", key)
        assert run_eval(tmp_path / "out", "scripted:none", option, f"{server.url}#toy") == 1
        assert "cannot be sent: correct the environment variable OPENAI_API_KEY" in capsys.readouterr().err
        monkeypatch.setenv("OPENAI_API_KEY", " sk-a\n")
        run_eval(tmp_path / "out", "scripted:none", option, f"{server.url}#toy")
        assert server.keys == {"bearer sk-a"}
