"""`codev sft` and `codev train` end to end, on the smallest run that does everything."""

from __future__ import annotations

import gc
import json
import shutil
import weakref

import pytest
import torch
import yaml
from micro_run import history, same_weights, untimed, visible, weights

from codev_agents.engines import hf
from codev_agents.engines.hf import HFEngine
from codev_agents.engines.policy import Policy
from codev_agents.rollout.runner import RolloutRunner
from codev_env.app.cli import main
from codev_env.scoring.med import TERMS, tool_effect
from codev_env.scoring.metrics import summarize
from codev_env.trajectory import read_trajectories
from codev_train import tapo
from codev_train.evaluate import comparison, mastery
from codev_train.learn.checkpoint import checkpoints
from codev_train.learn.update import Updater
from codev_train.run.config import OPTIONS

SCALARS = (
    "reward",
    "reward/outcome",
    "reward/format",
    "reward/tool",
    "reward/letters",
    "accuracy",
    "faithful",
    "turns",
    "tool_calls",
    "response_tokens",
    "trajectory_tokens",
    "update/loss",
    "update/entropy",
    "update/kl",
    "update/clip_fraction",
    "update/grad_norm",
    "update/learning_rate",
    "tokens_per_second/rollouts",
    "tokens_per_second/update",
    "seconds/rollouts",
    "seconds/update",
    "seconds/push",
    "share/groups_without_signal",
)


# --- what a run leaves behind ---


def test_the_cold_start_is_a_loadable_policy_with_its_options(start):
    policy = Policy.load(str(start))
    options = json.loads((start / "sft.json").read_text())
    assert options["toy"]["hidden"] == policy.model.config.text_config.hidden_size == 32
    assert not list(start.parent.glob(".*"))


def test_the_same_cold_start_is_not_made_twice(start, config, runs, capsys):
    before = (start / "model.safetensors").stat().st_mtime_ns
    assert main(["sft", "--config", str(config), "--out", str(runs), "--threads", "1"]) == 0
    assert "exists already" in capsys.readouterr().out
    assert (start / "model.safetensors").stat().st_mtime_ns == before


def test_the_run_folder(finished, start):
    wanted = {"before", "after", "checkpoints", "model", "tensorboard"}
    wanted |= {"history.jsonl", "options.yaml", "summary.json", "report.html"}
    assert visible(finished) >= wanted
    assert not [p for p in finished.rglob("*") if "partial" in p.name]
    assert [p.name for p in checkpoints(finished)] == ["step-000002", "step-000003"]
    saved = yaml.safe_load((finished / "options.yaml").read_text())["train"]
    assert saved["model"] == str(start) and saved["optimizer"]["lr"] == 1e-3 and saved["env"]["max_turns"] == 2


def test_the_summary(finished):
    summary = json.loads((finished / "summary.json").read_text())
    for side in ("before", "after"):
        trajectories = read_trajectories(finished / side)
        assert summary[side] == json.loads(json.dumps(summarize(trajectories, seed=0)))
        assert summary[side]["n"] == len(trajectories) == 4
        assert [t.index for t in trajectories] == [0, 1, 2, 3] and {t.split for t in trajectories} == {"test"}
    seconds = summary["seconds"]
    assert {"cold start", "evaluation before", "training", "evaluation after", "saving", "total"} <= seconds.keys()
    assert 0 < seconds["training"] <= seconds["total"]
    assert summary["options"]["steps"] == 3 and summary["name"] == "whole" and summary["about"] == "A micro run."


def test_the_history_has_a_line_for_each_update(finished):
    rows = history(finished)
    assert [row["step"] for row in rows] == [1, 2, 3]
    for row in rows:
        assert row.keys() >= set(SCALARS) and all(isinstance(v, int | float) for v in row.values())
        terms = [v for name, v in row.items() if name.startswith("reward/")]
        assert row["reward"] == pytest.approx(sum(terms), abs=1e-5)
        assert row["response_tokens"] <= 24 * row["turns"] and row["turns"] <= 2
        # One gradient step on fresh samples: the policy is still the sampler.
        assert row["update/kl"] == pytest.approx(0, abs=1e-5) and row["update/grad_norm"] > 0


def test_tensorboard_shows_scalars_pictures_and_transcripts(finished):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(finished / "tensorboard"))
    events.Reload()
    tags = events.Tags()
    assert set(tags["scalars"]) >= set(SCALARS)
    for name in SCALARS:
        found = events.Scalars(name)
        assert [e.step for e in found] == [1, 2, 3]
        assert [e.value for e in found] == pytest.approx([row[name] for row in history(finished)], rel=1e-5)
    assert {"episodes/0", "episodes/1"} <= set(tags["images"])
    assert [e.step for e in events.Images("episodes/0")] == [1, 2, 3]
    (text, *_) = events.Tensors("episodes/0/text_summary")
    assert b"correct:" in text.tensor_proto.string_val[0]


def test_the_policy_is_saved_and_has_learned(finished, start):
    Policy.load(str(finished / "model"))
    assert same_weights(finished / "model", checkpoints(finished)[-1] / "model")
    before, after = weights(start), weights(finished / "model")
    changed = [name for name in before if not torch.equal(before[name], after[name])]
    assert any("visual" in name for name in changed) and any("language_model" in name for name in changed)


def test_rollouts_are_gone_when_an_evaluation_or_the_next_update_plays(arguments, monkeypatch):
    known: list[weakref.ref] = []
    alive: list[int] = []

    def remembering(rollouts, *rest):
        known.extend(map(weakref.ref, rollouts))
        return make_samples(rollouts, *rest)

    def looking(*given, **more):
        gc.collect()
        alive.append(sum(rollout() is not None for rollout in known))
        return select(*given, **more)

    make_samples, select = tapo.make_samples, RolloutRunner.select
    monkeypatch.setattr(tapo, "make_samples", remembering)
    monkeypatch.setattr(RolloutRunner, "select", looking)
    assert main(["train", *arguments("freed", "--steps", "2", "--eval.every", "1")]) == 0
    assert len(known) == 8 and alive == [0] * 5  # evaluation, update, evaluation, update, evaluation


@pytest.mark.integration
def test_the_announcement_and_the_end(arguments, runs, capsys):
    assert main(["train", *arguments("talk", "--steps", "1")]) == 0
    out = capsys.readouterr().out
    place = [
        out.index(x) for x in ("A micro run.", "1 updates by TAPO", "held-out test episodes", "faithful-tool rate")
    ]
    assert place == sorted(place)
    assert all(str(runs / "talk" / name) in out for name in ("model", "summary.json", "report.html", "tensorboard"))
    assert "SFT" not in out, "the start is given"


@pytest.mark.integration
def test_the_same_command_again_takes_a_free_folder_and_repeats_everything(finished, arguments, runs):
    kept = {p: p.stat().st_mtime_ns for p in finished.rglob("*")}
    assert main(["train", *arguments("whole")]) == 0
    assert {p: p.stat().st_mtime_ns for p in finished.rglob("*")} == kept
    again = runs / "whole-2"
    assert untimed(history(again)) == untimed(history(finished))
    assert same_weights(again / "model", finished / "model")


@pytest.mark.integration
def test_another_seed_plays_other_tasks(finished, arguments, runs):
    assert main(["train", *arguments("seeded", "--seed", "1", "--steps", "1")]) == 0
    assert untimed(history(runs / "seeded"))[0] != untimed(history(finished))[0]


@pytest.mark.integration
def test_a_start_that_is_missing_is_made_first(config, tmp_path, capsys):
    out = ["--out", str(tmp_path), "--name", "first", "--threads", "1", "--steps", "1"]
    assert main(["train", "--config", str(config), *out]) == 0
    said = capsys.readouterr().out
    (made,) = (p.parent for p in tmp_path.glob("start-*/config.json"))
    assert f"{made} is not there yet, making it first" in said
    saved = yaml.safe_load((tmp_path / "first" / "options.yaml").read_text())["train"]
    assert saved["model"] == str(made)
    assert main(["train", "--config", str(config), *out]) == 0
    assert f"taking {made}, made before" in capsys.readouterr().out


@pytest.mark.integration
def test_rewards_without_signal_change_nothing(arguments, start, runs):
    silent = ["--weights", *"outcome 0 format 0 tool 0 letters 0".split()]
    assert main(["train", *arguments("silent", *silent, "--optimizer.weight-decay", "0.1")]) == 0
    rows = history(runs / "silent")
    assert [row["share/groups_without_signal"] for row in rows] == [1.0] * 3
    assert [row["update/grad_norm"] for row in rows] == [0.0] * 3
    assert same_weights(runs / "silent" / "model", start)


def test_masked_episodes_are_no_signal_and_not_those_learned_from(arguments, runs, monkeypatch):
    given: list[list[int]] = []

    def updating(updater, samples, *rest, **more):
        given.append([sample.size for sample in samples])
        return update(updater, samples, *rest, **more)

    update = Updater.update
    monkeypatch.setattr(Updater, "update", updating)
    more = ["--steps", "1", "--max-length", "150", "--mask-overlong", "True", "--eval.episodes", "1"]
    for name, count in (("masked", "0"), ("masked-down", "2")):
        assert main(["train", *arguments(name, *more, "--group", "3", "--down-sample", count)]) == 0
        (row,) = history(runs / name)
        assert row["share/cut"] == row["share/groups_without_signal"] == 1.0
    assert given == [[0] * 6, []]


@pytest.mark.integration
def test_other_settings_of_the_update(arguments, start, runs):
    more = ["--epochs", "2", "--minibatches", "2", "--micro-batch", "1", "--credit", "turn", "--optimizer.name", "muon"]
    more += ["--gradient-checkpointing", "True", "--steps", "2", "--engine-batch", "3", "--temperature", "0.8"]
    more += ["--group", "4", "--down-sample", "2"]
    assert main(["train", *arguments("settings", *more)]) == 0
    assert all(row["update/kl"] > 1e-6 for row in history(runs / "settings"))
    assert not same_weights(runs / "settings" / "model", start)


@pytest.mark.integration
def test_a_reward_that_can_be_learned_is_learned(arguments, runs):
    """A policy of random weights learns to write what it is paid for."""
    more = ["--steps", "18", "--prompts", "2", "--group", "8", "--max-tokens", "8", "--env.max-turns", "1"]
    more += ["--weights", *"outcome 0 format 0 tool 0".split(), "--optimizer.lr", "2e-2", "--save-every", "25"]
    assert main(["train", *arguments("learns", *more)]) == 0
    rewards = [row["reward/letters"] for row in history(runs / "learns")]
    assert sum(rewards[-5:]) > 4 * sum(rewards[:5]) > 0


@pytest.mark.integration
def test_evaluations_during_training_are_kept_and_change_nothing_else(finished, evaluated):
    rows = history(evaluated)
    for row in rows[:2]:
        folder = evaluated / "eval" / f"step-{row['step']:06d}"
        metrics = json.loads((folder / "metrics.json").read_text())
        names = ("accuracy", "faithful", "turns", "reward_mean", "contrast_accuracy")
        assert all(row[f"eval/{name}"] == metrics[name] for name in names)
        contrast, interval = metrics.pop("contrast_accuracy"), metrics["ci95"].pop("contrast_accuracy")
        assert metrics == summarize(read_trajectories(folder), seed=0) and metrics["n"] == 4
        elsewhere = summarize(read_trajectories(folder / "contrast"))
        assert (contrast, interval, 4) == (elsewhere["accuracy"], elsewhere["ci95"]["accuracy"], elsewhere["n"])
    assert visible(evaluated / "eval") == {"step-000001", "step-000002"}, "the last one is the evaluation after"
    plain = [{name: value for name, value in row.items() if not name.startswith("eval/")} for row in untimed(rows)]
    assert plain == untimed(history(finished)) and not (finished / "eval").exists()
    assert same_weights(evaluated / "model", finished / "model")


def test_accuracy_on_contrast_scenes_is_in_the_table_and_the_report(finished, evaluated):
    for run, shown in ((evaluated, True), (finished, False)):
        summary = json.loads((run / "summary.json").read_text())
        assert ("accuracy, contrast" in comparison(summary["before"], summary["after"])) == shown
        assert ("Accuracy, contrast" in (run / "report.html").read_text()) == shown
        assert (run / "before" / "contrast").is_dir() == (run / "after" / "contrast").is_dir() == shown


@pytest.mark.integration
def test_what_the_tool_gives_is_measured_without_it(runs, arguments, finished, capsys):
    assert main(["train", *arguments("dual", "--eval.every", "1", "--eval.dual", "True")]) == 0
    run, said = runs / "dual", capsys.readouterr().out
    summary, rows = json.loads((run / "summary.json").read_text()), history(run)
    for found, folder in ((summary["before"], run / "before"), (summary["after"], run / "after")):
        without = read_trajectories(folder / "without-tool")
        assert len(without) == 4 and not any(turn.kind == "code" for t in without for turn in t.turns)
        effect = tool_effect(read_trajectories(folder), without)
        assert effect == {name: found[name] for name in ("accuracy_without", "tool_gain", *TERMS)}
        assert found["accuracy"] - found["accuracy_without"] == pytest.approx(found["tool_gain"])
        at_once = [trajectory.meta["right_at_once"] for trajectory in read_trajectories(folder)]
        assert found["accuracy_at_once"] == sum(at_once) / 4 and {type(right) for right in at_once} == {bool}
        assert found["accuracy"] - found["accuracy_at_once"] == pytest.approx(found["look_gain"])
    assert all(row["eval/tool_gain"] == pytest.approx(row["eval/accuracy"] - row["eval/accuracy_without"])
               for row in rows[:2])  # fmt: skip
    assert "Without the tool: " in said and "Gain by the tool" in (run / "report.html").read_text()
    assert "before it looks: " in said and "Gain by looking" in (run / "report.html").read_text()
    assert same_weights(run / "model", finished / "model")


def test_the_share_of_the_gain_that_is_the_tools():
    before = {"accuracy": 0.5, "accuracy_without": 0.5, "tool_gain": 0.0, "call_harm": 0.0, "schema_harm": 0.0}
    after = {"accuracy": 0.9, "accuracy_without": 0.6, "tool_gain": 0.3, "call_harm": 0.01, "schema_harm": 0.005}
    (line,) = mastery(before, after)
    assert "50.0 % right before, 60.0 % after" in line
    assert "+40.0 points of accuracy, +30.0 are the tool's (75 %)" in line
    assert "harms 1.5 % of the episodes" in line
    looked = [
        metrics | {"accuracy_at_once": 0.5, "look_gain": metrics["accuracy"] - 0.5} for metrics in (before, after)
    ]
    assert mastery(*looked)[1].endswith("Of +40.0 points of accuracy, +40.0 are gained by looking (100 %).")
    assert mastery({"accuracy": 0.5}, {"accuracy": 0.9}) == [] and "(" not in mastery(after, before)[0]


def test_held_out_numbers_before_during_and_after_are_one_curve_in_tensorboard(evaluated):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(evaluated / "tensorboard"))
    events.Reload()
    summary = json.loads((evaluated / "summary.json").read_text())
    points = [(event.step, event.value) for event in events.Scalars("eval/turns")]
    assert [step for step, _ in points] == [0, 1, 2, 3]
    assert points[0][1] == summary["before"]["turns"] and points[-1][1] == summary["after"]["turns"]


# --- what a run refuses ---


def test_a_resumed_run_cannot_have_fewer_steps_than_are_done(finished, capsys):
    before = (finished / "summary.json").read_text(), (finished / OPTIONS).read_text()
    assert main(["train", "--resume", str(finished), "--steps", "1"]) == 1
    assert f"--steps is 1, but {len(history(finished))} updates of {finished} are done" in capsys.readouterr().err
    assert before == ((finished / "summary.json").read_text(), (finished / OPTIONS).read_text())


@pytest.mark.parametrize("option", ["--preset", "--config"])
def test_presets_and_files_beside_resume_change_no_option(finished, config, tmp_path, capsys, option):
    value = "tiny" if option == "--preset" else str(config)
    run = shutil.copytree(finished, tmp_path / "again")
    before = yaml.safe_load((run / OPTIONS).read_text())["train"]
    assert main(["train", option, value, "--resume", str(run), "--show-every", "3"]) == 0
    assert f"{run / OPTIONS} holds" in capsys.readouterr().out
    assert yaml.safe_load((run / OPTIONS).read_text())["train"] == {**before, "show_every": 3}


def test_an_engine_that_samples_from_another_distribution_is_refused(arguments, runs, monkeypatch, capsys):
    class Liar(HFEngine):
        def _sample(self, logits, temperature):
            token, logprob = super()._sample(logits, temperature)
            return token, logprob + 0.01

    monkeypatch.setattr(hf, "HFEngine", Liar)
    assert main(["train", *arguments("liar")]) == 1
    assert "sampler and trainer differ by 0.01 nats" in capsys.readouterr().err
    assert not checkpoints(runs / "liar")


def test_an_unknown_reward_leaves_no_trained_run(arguments, runs, capsys):
    assert main(["train", *arguments("unknown", "--reward", "tapoo")]) == 1
    assert "Did you mean 'tapo'" in capsys.readouterr().err
    assert not checkpoints(runs / "unknown")


def test_a_cold_start_that_diverges_is_not_saved(config, tmp_path, capsys):
    words = ["--config", str(config), "--out", str(tmp_path), "--threads", "1", "--imitate.steps", "0"]
    assert main(["sft", *words, "--ground.steps", "4", "--ground.optimizer.lr", "1e25"]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert "gradient norm of step 2 of ground is nan" in said and "lower ground.optimizer.lr" in said
    assert not list(tmp_path.glob("start-*/config.json")) and not list(tmp_path.glob(".*"))
