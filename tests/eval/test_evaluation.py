"""Evaluations that are stopped and go on, several benchmarks, samples, and the protocols, end to end."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from codev_agents import AgentError, Oracle, RandomCrop
from codev_env.app import cli
from codev_env.benches import suite_of
from codev_env.trajectory import Trajectory, TrajectoryWriter, read_trajectories
from codev_env.types import Step
from codev_eval.bench import evaluation

HR = '{"preset": "hrbench-4k", "sizes": [[800, 600]], "distractors": [4, 8]}'


def run_eval(out: Path, *options: str, model: str = "scripted:oracle", n: int = 4) -> int:
    given = ["--model", model, "--data", "synthetic", "--scenes", "toy", "--out", str(out), "--n", str(n)]
    return cli.main(["eval", *given, "--workers", "1", *options])


def metrics(out: Path, bench: str = "vstar") -> dict:
    return json.loads((out / "metrics.json").read_text())["benches"][bench]


class Counting(Oracle):
    """Counts how often each task is asked, and stops or fails where it is told to."""

    asked: Counter = Counter()
    stop_at: int | None = None
    failing: tuple[int, ...] = ()

    def reset(self, env):
        index = env.unwrapped.tasks.index_of(env.unwrapped.task.task_id)
        Counting.asked[index] += 1
        if index == Counting.stop_at:
            raise KeyboardInterrupt
        if index in Counting.failing:
            raise AgentError("no answer")
        super().reset(env)


@pytest.fixture
def counting(monkeypatch):
    monkeypatch.setattr(evaluation, "parse_model", lambda *_, **__: Counting)
    for name, value in {"asked": Counter(), "stop_at": None, "failing": ()}.items():
        monkeypatch.setattr(Counting, name, value)
    return Counting


def untimed(out: Path) -> list[Trajectory]:
    """The episodes of a folder without the seconds that programs took."""
    return [replace(t, turns=tuple(map(untimed_turn, t.turns))) for t in read_trajectories(out)]


def untimed_turn(turn: Step) -> Step:
    return replace(turn, execution=turn.execution and replace(turn.execution, wall_s=0.0))


def test_a_stopped_evaluation_goes_on_and_asks_nothing_twice(tmp_path, capsys, counting):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert run_eval(whole, n=6) == 0
    counting.asked.clear()
    counting.stop_at = 4
    assert run_eval(stopped, n=6) == 130
    assert "Continue with the same command" in capsys.readouterr().err
    kept = [t.index for t in read_trajectories(stopped)]
    assert kept and not (stopped / "metrics.json").exists()
    counting.stop_at = None
    before = Counter(counting.asked)
    assert run_eval(stopped, n=6) == 0
    assert set(counting.asked - before) == set(range(6)) - set(kept)
    assert untimed(stopped) == untimed(whole)
    assert (stopped / "metrics.json").read_text() == (whole / "metrics.json").read_text()
    finished = Counter(counting.asked)
    assert run_eval(stopped, n=6) == 0 and counting.asked == finished, "nothing is left to ask"


def test_a_torn_line_costs_one_episode(tmp_path, counting):
    assert run_eval(tmp_path, n=3) == 0
    path = tmp_path / "trajectories.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    counting.asked.clear()
    with pytest.warns(RuntimeWarning, match="torn"):
        assert run_eval(tmp_path, n=3) == 0
    assert counting.asked == {2: 1} and metrics(tmp_path)["n"] == 3


def test_only_what_failed_is_tried_again(tmp_path, capsys, counting):
    counting.failing = (1,)
    assert run_eval(tmp_path, n=3) == 1
    assert metrics(tmp_path)["n_failed"] == 1 and "tries these again" in capsys.readouterr().err
    counting.asked.clear()
    counting.failing = ()
    assert run_eval(tmp_path, n=3) == 0
    assert counting.asked == {1: 1}
    found = metrics(tmp_path)
    assert (found["n"], found["n_failed"]) == (3, 0)


def test_an_evaluation_whose_first_episodes_all_fail_stops(tmp_path, capsys, counting):
    counting.failing = tuple(range(100))
    assert run_eval(tmp_path / "out", n=100) == 1
    assert sum(counting.asked.values()) < 30
    assert "none of the 20 episodes" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_each_benchmark_stops_after_its_own_first_failures(tmp_path, capsys, monkeypatch):
    class Picky(Oracle):
        asked = 0

        def reset(self, env):
            if "HRBench" in env.spec.id:
                Picky.asked += 1
                raise AgentError("not this one")
            super().reset(env)

    monkeypatch.setattr(evaluation, "parse_model", lambda *_, **__: Picky)
    monkeypatch.setattr(evaluation, "MOST_FAILURES", 3)
    options = ["--bench", "vstar", "hrbench4k", "--scenes", HR, "--dual"]
    assert run_eval(tmp_path, *options, n=9) == 1
    none, all_ = metrics(tmp_path, "hrbench4k"), metrics(tmp_path)
    assert (none["n"], none["n_failed"], none["n_not_tried"], all_["n_not_tried"]) == (0, 3, 6, 0)
    assert Picky.asked < 14
    assert json.loads((tmp_path / "metrics.json").read_text())["not_tried"] == [
        {"bench": "hrbench4k", "episodes": 6},
        {"bench": "hrbench4k", "condition": "without-tool", "episodes": 6},
    ]
    assert "6 were not tried, because the first ones all failed" in capsys.readouterr().out


def test_a_resumed_evaluation_whose_first_episodes_all_fail_stops(tmp_path, counting, monkeypatch):
    monkeypatch.setattr(evaluation, "MOST_FAILURES", 3)
    assert run_eval(tmp_path, n=2) == 0
    counting.failing = tuple(range(2, 100))
    counting.asked.clear()
    assert run_eval(tmp_path, n=30) == 1
    assert sum(counting.asked.values()) < 10
    found = metrics(tmp_path)
    assert (found["n"], found["n_failed"], found["n_not_tried"]) == (2, 3, 25)
    counting.failing = ()
    assert run_eval(tmp_path, n=30) == 0
    assert (metrics(tmp_path)["n"], metrics(tmp_path)["n_not_tried"]) == (30, 0)


def test_changed_data_is_not_mixed_in(tmp_path, capsys, monkeypatch):
    assert run_eval(tmp_path, n=2) == 0
    path = tmp_path / "trajectories.jsonl"
    path.write_text(path.read_text().replace('"task_id": "grid-test-0-1"', '"task_id": "grid-test-0-7"'))
    assert run_eval(tmp_path, n=2) == 1
    assert "the data has changed" in capsys.readouterr().err


def test_a_larger_n_that_is_refused_changes_nothing(tmp_path, capsys, monkeypatch):
    assert run_eval(tmp_path, n=2) == 0
    before = (tmp_path / "eval.json").read_text()
    for name, changed in (("is_at", lambda *_: False), ("first_changed", lambda *_: 0)):
        with monkeypatch.context() as patch:
            patch.setattr(evaluation, name, changed)
            assert run_eval(tmp_path, n=4) == 1
        assert "the data has changed" in capsys.readouterr().err
        assert (tmp_path / "eval.json").read_text() == before
    assert run_eval(tmp_path, n=2) == 0


def test_a_benchmark_without_a_single_episode_is_told_beside_another(tmp_path, capsys, monkeypatch):
    class Picky(Oracle):
        def reset(self, env):
            if "HRBench" in env.spec.id:
                raise AgentError("not this one")
            super().reset(env)

    monkeypatch.setattr(evaluation, "parse_model", lambda *_, **__: Picky)
    options = [
        "--bench",
        "vstar",
        "hrbench4k",
        "--scenes",
        HR,
        "--dual",
        "--perturb",
        "mask",
        "--suites",
        "orientation",
    ]
    assert run_eval(tmp_path, *options, "--suites", "orientation", n=2) == 1
    assert "hrbench4k task 0: AgentError: not this one" in capsys.readouterr().err
    none, all_ = metrics(tmp_path, "hrbench4k"), metrics(tmp_path)
    assert (none["n"], none["n_failed"], none["accuracy"], none["dual"]["gain"]) == (0, 2, None, None)
    assert (all_["n"], all_["n_failed"], all_["dual"]["gain"]) == (2, 0, 0.0)


def test_another_judge_is_compared_with_the_target_boxes(tmp_path):
    assert run_eval(tmp_path, "--judge", "noisy:0") == 0
    assert metrics(tmp_path)["provenance"] == {
        "n": 4, "faithful": 1.0, "faithful_given_correct": 1.0, "faithful_and_correct": 1.0, "agreement": 1.0,
        "kappa": None,
    }  # fmt: skip
    assert run_eval(tmp_path / "b") == 0
    assert "provenance" not in metrics(tmp_path / "b")


def test_other_options_are_refused_by_name_and_free_ones_are_not(tmp_path, capsys):
    assert run_eval(tmp_path, n=2) == 0
    assert run_eval(tmp_path, "--seed", "1", n=2) == 1
    err = capsys.readouterr().err
    assert "--seed was 0 and is 1" in err and "--overwrite" in err
    assert run_eval(tmp_path, "--workers", "2", "--prompt-price", "1", n=2) == 0
    assert run_eval(tmp_path, "--seed", "1", "--overwrite", n=2) == 0
    assert len(read_trajectories(tmp_path)) == 2


def test_a_larger_n_plays_only_what_is_new(tmp_path, capsys, monkeypatch):
    assert run_eval(tmp_path, n=2) == 0
    first = [t.task_id for t in read_trajectories(tmp_path)]
    played = []
    real = TrajectoryWriter.append
    monkeypatch.setattr(TrajectoryWriter, "append", lambda self, t: (played.append(t.index), real(self, t)))
    assert run_eval(tmp_path, n=5) == 0
    assert sorted(played) == [2, 3, 4]
    assert [t.task_id for t in read_trajectories(tmp_path)][:2] == first
    assert metrics(tmp_path)["n"] == 5
    played.clear()
    assert run_eval(tmp_path, n=5) == 0 and played == []
    assert run_eval(tmp_path, n=4) == 1, "fewer tasks are another evaluation"
    assert "--n was 5 and is 4" in capsys.readouterr().err
    assert run_eval(tmp_path, "--seed", "1", n=6) == 1


def test_a_suite_of_benchmarks_and_the_default_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = ["--model", "scripted:none", "--data", "synthetic", "--scenes", "toy", "--n", "1", "--suite", "zoom"]
    assert cli.main(["eval", *options]) == 0
    record = json.loads((tmp_path / "runs" / "eval" / "metrics.json").read_text())
    assert {"vstar", "hrbench4k", "hrbench8k", "treebench", "visualprobe", "zoombench"} < set(record["benches"])
    assert "mathvista" not in record["benches"] and all(b["n"] == 1 for b in record["benches"].values())
    assert cli.main(["eval", *options, "--bench", "mathvista"]) == 1
    assert "both name benchmarks" in capsys.readouterr().err
    assert "mathvista" in suite_of("all") and "codev-rl" not in suite_of("all") and "dataset" not in suite_of("all")


def test_several_benchmarks_in_one_call(tmp_path, capsys):
    options = ["--bench", "vstar", "hrbench4k", "--scenes", HR]
    assert run_eval(tmp_path, *options) == 0
    record = json.loads((tmp_path / "metrics.json").read_text())
    assert list(record["benches"]) == list(record["sets"]) == ["vstar", "hrbench4k"]
    assert [found["n"] for found in record["benches"].values()] == [4, 4]
    # Only HR-Bench has cycles; each benchmark is totalled by its own rule.
    assert "cycle/0" in record["benches"]["hrbench4k"]["score"] and "cycle/0" not in record["benches"]["vstar"]["score"]
    told = [(t.meta["eval"]["bench"], t.env_id) for t in read_trajectories(tmp_path)]
    assert told == [("vstar", "CodeV-VStar-v0")] * 4 + [("hrbench4k", "CodeV-HRBench4K-v0")] * 4
    assert "scripted:oracle on hrbench4k" in capsys.readouterr().out
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "Results: hrbench4k" in page and '<select name="bench">' in page
    first = page
    assert cli.main(["report", str(tmp_path)]) == 0 and (tmp_path / "report.html").read_text("utf-8") == first


def test_a_folder_of_benchmarks_serves_each_its_own(tmp_path, capsys):
    (tmp_path / "vstar_bench").mkdir()
    given = ["--model", "scripted:none", "--data", str(tmp_path), "--bench", "vstar", "hrbench4k"]
    assert cli.main(["eval", *given, "--out", str(tmp_path / "out")]) == 1
    assert f"{tmp_path / 'vstar_bench'}: no questions" in capsys.readouterr().err
    assert run_eval(tmp_path / "b", "--data", "synthetic", "synthetic", "hub") == 1
    assert "3 values for 1 of --bench" in capsys.readouterr().err


def test_samples_differ_and_give_pass_at_k(tmp_path):
    assert run_eval(tmp_path, "--samples", "3", "--scenes", HR, model="scripted:random", n=6) == 0
    found = metrics(tmp_path)
    assert (found["n"], found["tasks"], found["samples"]) == (18, 6, 3)
    assert list(found["pass_at"]) == ["1", "2", "3"]
    assert found["pass_at"]["1"]["value"] == pytest.approx(found["accuracy"])
    answers = {}
    for t in read_trajectories(tmp_path):
        answers.setdefault(t.index, []).append([turn.crop_boxes for turn in t.turns])
    assert all(len(tried) == 3 for tried in answers.values())
    assert all(tried[0] != tried[1] for tried in answers.values())


def test_a_greedy_model_is_not_sampled_several_times(tmp_path, capsys):
    assert run_eval(tmp_path / "out", "--samples", "2", model="http://localhost:1/v1#m") == 1
    assert "raise --temperature" in capsys.readouterr().err


def test_without_the_tool_code_is_no_turn(tmp_path):
    assert run_eval(tmp_path, "--dual") == 0
    free = read_trajectories(tmp_path / "without-tool")
    assert [[turn.kind for turn in t.turns] for t in free] == [["invalid", "answer"]] * 4
    assert "no tools" in free[0].system_prompt and "```python" not in free[0].system_prompt
    found = metrics(tmp_path)["dual"]
    assert (found["accuracy_with"], found["accuracy_without"], found["gain"]) == (1.0, 1.0, 0.0)


class Reader(Oracle):
    """Crops the target and answers right if it was shown what is there, else with a wrong choice."""

    def reset(self, env):
        super().reset(env)
        self.task = env.unwrapped.task

    def act(self, observation):
        text = super().act(observation)
        if "<answer>" not in text:
            return text
        box = self.boxes(self.task, None)[0]
        wanted = self.task.image.crop(box)
        shown = observation["images"][0] if observation["images"] else None
        import numpy as np

        if shown is not None and shown.shape == np.asarray(wanted).shape and (shown == np.asarray(wanted)).all():
            return text
        return "<answer>nothing there</answer>"


@pytest.mark.parametrize("kind", ["mask", "noise", "other", "empty"])
def test_an_agent_that_uses_what_it_sees_loses_its_answers(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(evaluation, "parse_model", lambda *_, **__: Reader)
    assert run_eval(tmp_path, "--perturb", kind) == 0
    found = metrics(tmp_path)["perturbed"][kind]
    assert (found["accuracy"], found["accuracy_perturbed"], found["visual_evidence_gain"]) == (1.0, 0.0, 1.0)
    assert (found["n_looked"], found["answer_changed"]) == (4, 1.0)
    # What is judged is what the program really showed.
    assert all(t.is_faithful for t in read_trajectories(tmp_path / f"perturbed-{kind}"))


def test_an_agent_that_does_not_look_is_not_asked_again(tmp_path):
    assert run_eval(tmp_path, "--perturb", "mask", "empty", model="scripted:none") == 0
    found = metrics(tmp_path)["perturbed"]["mask"]
    assert (found["n_looked"], found["visual_evidence_gain"], found["answer_changed"]) == (0, 0.0, None)
    assert not (tmp_path / "perturbed-mask").exists()


def test_suites_play_every_variant_but_the_source_again(tmp_path, capsys):
    pytest.importorskip("albumentations")
    options = ["--suites", "orientation", "corruption", "--severities", "5"]
    assert run_eval(tmp_path, *options, model="scripted:lazy", n=1) == 0
    found = metrics(tmp_path)["suites"]
    turned = found["orientation"]["variants"]
    assert list(turned) == ["source", "rotate_90", "rotate_180", "rotate_270", "flip_horizontal", "flip_vertical"]
    assert all(row["n"] == 1 and row["faithful"] == 0 for row in turned.values())
    assert len(read_trajectories(tmp_path / "suite-orientation")) == 5
    corrupted = found["corruption"]["variants"]
    assert len(corrupted) == 17 and all(name == "source" or name.endswith(":5") for name in corrupted)
    mean = sum(row["accuracy"] for row in corrupted.values()) / 17
    assert found["corruption"]["mean"]["accuracy"] == pytest.approx(mean)
    assert "severity 5" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--temperature", "-1"], "--temperature is -1"),
        (["--temperature", "nan"], "--temperature is nan"),
        (["--samples", "0"], "--samples is 0"),
        (["--bench", "vstar", "vstar"], "names one twice"),
        (["--suites", "orientatoin"], "orientatoin"),
        (["--suites", "orientation", "--wrap", "rotate_90"], "leave --wrap out"),
        (["--wrap", "orientation", "--subset", "x"], "rotate_90, rotate_180"),
        (["--suites", '{"transforms": "orientation", "mode": "one"}'], "draws one variant"),
        (["--reward", "tapoo"], "'tapo'"),
    ],
)
def test_what_cannot_be_used_is_told_before_anything_is_written(tmp_path, capsys, options, says):
    assert run_eval(tmp_path / "out", *options) == 1
    err = capsys.readouterr().err
    assert says in err and "Traceback" not in err and not (tmp_path / "out").exists()


def test_the_folder_of_a_training_run_is_left_alone(tmp_path, capsys):
    (tmp_path / "options.yaml").write_text("seed: 0\n")
    (tmp_path / "report.html").write_text("of training")
    assert run_eval(tmp_path, "--overwrite") == 1
    assert "is the folder of a training run" in capsys.readouterr().err
    assert (tmp_path / "report.html").read_text() == "of training"


def test_out_below_a_file_and_unknown_reader_options_are_told(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert run_eval(tmp_path / "file" / "x" / "y") == 1
    assert f"{tmp_path / 'file'} is a file" in capsys.readouterr().err
    assert run_eval(Path("/proc/nobody-writes-here")) == 1
    assert capsys.readouterr().err.startswith("codev eval: --out /proc/nobody-writes-here cannot be made: ")
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"image": "a.png", "question": "q", "answer": "a"}\n')
    given = ["eval", "--model", "scripted:none", "--bench", "dataset", "--data", str(rows), "--reader", "boxez=xywh"]
    assert cli.main([*given, "--out", str(tmp_path / "out")]) == 1
    err = capsys.readouterr().err
    assert "'boxez'" in err and "Did you mean 'boxes'?" in err and "Traceback" not in err
    given[-1] = "split=x"
    assert cli.main([*given, "--out", str(tmp_path / "out")]) == 1
    assert "'split' is no option of the reader" in capsys.readouterr().err


def test_turns_are_paid_by_the_reward_that_is_asked_for_and_rates_are_the_same(tmp_path):
    for reward, terms in (("tapo", {"outcome", "format", "tool"}), ("outcome", {"outcome"})):
        out = tmp_path / reward
        assert run_eval(out, "--reward", reward, n=2) == 0
        assert {name for t in read_trajectories(out) for turn in t.turns for name in turn.reward_terms} == terms
        assert json.loads((out / "metrics.json").read_text())["reward"] == reward
    tapo, outcome = (metrics(tmp_path / name) for name in ("tapo", "outcome"))
    assert (tapo["reward_mean"], outcome["reward_mean"]) == (pytest.approx(1.8), 1.0)
    for name in ("accuracy", "faithful", "faithful_and_correct", "tool_calls"):
        assert tapo[name] == outcome[name]


class Paid(RandomCrop):
    """Says how many tokens it took."""

    meta = {"requests": 2, "prompt_tokens": 1000, "completion_tokens": 100, "truncated_turns": 0}  # noqa: RUF012


def test_tokens_and_cost_are_counted_over_all_conditions(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(evaluation, "parse_model", lambda *_, **__: Paid)
    assert run_eval(tmp_path, "--dual", "--prompt-price", "2", "--completion-price", "10", n=3) == 0
    record = json.loads((tmp_path / "metrics.json").read_text())
    assert record["benches"]["vstar"]["usage"]["prompt_tokens"] == 3000
    assert record["usage"]["prompt_tokens"] == 6000 and record["usage"]["completion_tokens"] == 600
    assert record["usage"]["cost"] == pytest.approx(6000 * 2e-6 + 600 * 10e-6)
    assert "12 requests, 6000 prompt tokens" in capsys.readouterr().out
