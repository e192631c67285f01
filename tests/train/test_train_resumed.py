"""`codev train` interrupted, killed or out of disk space, and resumed: as if it had never stopped."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path

import micro_run
import pytest
import yaml
from micro_run import history, same_weights, untimed, visible

from codev_env.app.cli import main
from codev_env.errors import CodevError
from codev_env.trajectory import read_trajectories
from codev_train import evaluate, experiment
from codev_train.learn import checkpoint
from codev_train.learn.checkpoint import checkpoints
from codev_train.run.config import OPTIONS, read_request
from codev_train.run.interrupt import Interrupted
from codev_train.run.monitor import Monitor
from codev_train.sft import start as sft_start


def interrupting(step: int, times: int = 1) -> type[Monitor]:
    """A monitor that presses Ctrl-C while update number `step` is under way."""

    class Interrupting(Monitor):
        def update(self, values, number):
            super().update(values, number)
            if number == step:
                for _ in range(times):
                    os.kill(os.getpid(), signal.SIGINT)

    return Interrupting


def dying(step: int) -> type[Monitor]:
    """A monitor that fails after update number `step`, before its checkpoint."""

    class Dying(Monitor):
        def update(self, values, number):
            super().update(values, number)
            if number == step:
                raise RuntimeError("power cut")

    return Dying


def assert_as_if_never_stopped(run: Path, whole: Path) -> None:
    assert untimed(history(run)) == untimed(history(whole))
    assert same_weights(run / "model", whole / "model")
    a, b = (json.loads((folder / "summary.json").read_text()) for folder in (run, whole))
    assert a["before"] == b["before"] and a["after"] == b["after"]
    for side in ("before", "after"):
        assert [t.turns[0].action for t in read_trajectories(run / side)] == [
            t.turns[0].action for t in read_trajectories(whole / side)
        ]


@pytest.mark.integration
def test_a_resumed_run_repeats_lost_evaluations_and_keeps_the_others(evaluated, arguments, runs, monkeypatch):
    run = runs / "evaluated-again"
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "Monitor", dying(2))
        with pytest.raises(RuntimeError, match="power cut"):
            main(["train", *arguments(run.name, "--eval.every", "1", "--eval.contrast", "cue_p", "0")])
    kept = run / "eval" / "step-000001" / "trajectories.jsonl"
    written = kept.stat().st_mtime_ns
    assert visible(run / "eval") == {"step-000001", "step-000002"}
    assert main(["train", "--resume", str(run)]) == 0
    assert_as_if_never_stopped(run, evaluated)
    assert visible(run / "eval") == {"step-000001", "step-000002"} and kept.stat().st_mtime_ns == written


@pytest.mark.integration
@pytest.mark.parametrize("step", [1, 2])
def test_ctrl_c_saves_says_how_to_go_on_and_goes_on(finished, arguments, runs, monkeypatch, capsys, step):
    run = runs / f"stopped-{step}"
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "Monitor", interrupting(step))
        # The next regular checkpoint is far away: this one is due to the interrupt.
        assert main(["train", *arguments(run.name, "--save-every", "100")]) == 130
    err = capsys.readouterr().err
    (command,) = re.findall(r"codev train --resume \S+", err.splitlines()[-1])
    assert [p.name for p in checkpoints(run)] == [f"step-{step:06d}"]
    assert len(history(run)) == step and not (run / "summary.json").exists() and not (run / "model").exists()

    assert main(command.split()[1:]) == 0
    assert_as_if_never_stopped(run, finished)
    seconds = json.loads((run / "summary.json").read_text())["seconds"]
    assert seconds.keys() == json.loads((finished / "summary.json").read_text())["seconds"].keys()
    parts = sum(value for name, value in seconds.items() if name != "total")
    assert parts <= seconds["total"] + 0.1 * len(seconds), "the total counts both halves"


@pytest.mark.integration
def test_the_optimizer_goes_on_as_well(arguments, runs, monkeypatch):
    more = [
        "--optimizer.name",
        "muon",
        "--optimizer.weight-decay",
        "0.01",
        "--optimizer.warmup",
        "3",
        "--credit",
        "turn",
    ]
    assert main(["train", *arguments("muon", *more)]) == 0
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "Monitor", interrupting(2))
        assert main(["train", *arguments("muon-stopped", *more)]) == 130
    assert main(["train", "--resume", str(runs / "muon-stopped")]) == 0
    assert_as_if_never_stopped(runs / "muon-stopped", runs / "muon")


@pytest.mark.integration
def test_a_run_that_died_goes_on_from_its_last_checkpoint(finished, arguments, runs, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "Monitor", dying(3))
        with pytest.raises(RuntimeError, match="power cut"):
            main(["train", *arguments("died")])
    assert checkpoints(runs / "died")[-1].name == "step-000002" and len(history(runs / "died")) == 3
    assert main(["train", f"--resume={runs / 'died'}"]) == 0
    assert_as_if_never_stopped(runs / "died", finished)


@pytest.mark.integration
def test_a_second_ctrl_c_stops_at_once(arguments, runs, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "Monitor", interrupting(2, times=2))
        assert main(["train", *arguments("at-once")]) == 130
    assert [p.name for p in checkpoints(runs / "at-once")] == ["step-000001"]


@pytest.mark.integration
def test_a_finished_run_can_be_evaluated_again_without_counting_twice(finished, arguments, runs):
    assert main(["train", *arguments("again", "--steps", "1")]) == 0
    before = json.loads((runs / "again" / "summary.json").read_text())
    assert main(["train", "--resume", str(runs / "again")]) == 0
    after = json.loads((runs / "again" / "summary.json").read_text())
    assert len(read_trajectories(runs / "again" / "after")) == 4 and before["after"] == after["after"]
    assert len(history(runs / "again")) == 1


@pytest.mark.integration
def test_an_interrupt_in_the_last_update_finishes_the_run(arguments, runs, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "Monitor", interrupting(1))
        assert main(["train", *arguments("last", "--steps", "1")]) == 0
    assert (runs / "last" / "summary.json").exists()


@pytest.mark.integration
def test_options_of_a_resumed_run_can_be_changed(arguments, runs, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "Monitor", interrupting(1))
        assert main(["train", *arguments("longer")]) == 130
    assert main(["train", "--resume", str(runs / "longer"), "--steps", "2"]) == 0
    assert len(history(runs / "longer")) == 2


@pytest.mark.integration
def test_a_run_that_died_before_its_first_checkpoint_begins_again(finished, arguments, runs, monkeypatch):
    run = runs / "early"
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "Monitor", dying(1))
        with pytest.raises(RuntimeError):
            main(["train", *arguments("early")])
    assert not checkpoints(run) and len(history(run)) == 1
    assert main(["train", "--resume", str(run)]) == 0
    assert_as_if_never_stopped(run, finished)


@pytest.mark.integration
def test_a_resumed_run_remembers_how_long_it_has_been_unwell(arguments, runs, monkeypatch, capsys):
    options = ["--health.entropy", "99", "--health.patience", "3"]  # crossed by every update
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "Monitor", interrupting(2))
        assert main(["train", *arguments("unwell-then-resumed", *options)]) == 130
    assert "in a row" not in capsys.readouterr().err
    assert main(["train", "--resume", str(runs / "unwell-then-resumed")]) == 0
    assert "(3 updates in a row)" in capsys.readouterr().err


@pytest.mark.integration
def test_a_torn_optimizer_is_told_and_the_one_before_is_used(finished, arguments, runs, monkeypatch, capsys):
    run = runs / "torn"
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "Monitor", interrupting(2))
        assert main(["train", *arguments("torn")]) == 130
    broken = checkpoints(run)[-1]
    (broken / "optimizer" / ".metadata").write_bytes(b"")
    assert main(["train", "--resume", str(run)]) == 1
    err = capsys.readouterr().err
    assert str(broken) in err and "optimizer is broken" in err
    shutil.rmtree(broken)
    assert main(["train", "--resume", str(run)]) == 0
    assert_as_if_never_stopped(run, finished)


@pytest.mark.integration
def test_ctrl_c_in_the_evaluation_before_says_how_to_go_on(finished, arguments, runs, monkeypatch, capsys):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    run = runs / "stopped-before"
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "evaluate", interrupt)
        assert main(["train", *arguments(run.name)]) == 130
    err = capsys.readouterr().err
    assert err.endswith(f"no update is saved yet. Continue with: codev train --resume {run}\n")
    assert main(["train", "--resume", str(run)]) == 0
    assert_as_if_never_stopped(run, finished)


@pytest.mark.parametrize("command", ["train", "sft"])
def test_ctrl_c_in_the_cold_start_says_to_start_again(config, tmp_path, monkeypatch, capsys, command):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(sft_start, "cold_start", interrupt)
    assert main([command, "--config", str(config), "--out", str(tmp_path), "--threads", "1"]) == 130
    assert "nothing is saved. Start again with the same command." in capsys.readouterr().err


@pytest.mark.integration
def test_a_full_disk_keeps_the_last_checkpoint_and_the_run_goes_on(finished, arguments, runs, monkeypatch, capsys):
    real = checkpoint.write_moments

    def fill(place, *others):
        real(place, *others)
        if "step-000002" in str(place):
            raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_moments", fill)
        assert main(["train", *arguments("full")]) == 1
    err = capsys.readouterr().err.splitlines()[-1]
    assert "could not write" in err and "--resume" in err
    assert visible(runs / "full" / "checkpoints") == {"step-000001"}
    assert main(["train", "--resume", str(runs / "full")]) == 0
    assert_as_if_never_stopped(runs / "full", finished)


def test_interrupted_is_both_an_error_of_ours_and_an_interrupt():
    assert issubclass(Interrupted, CodevError) and issubclass(Interrupted, KeyboardInterrupt)
    assert micro_run.REWARD.names == ("outcome", "format", "tool", "letters")


@pytest.fixture
def begun(finished, tmp_path) -> Path:
    """A run with three updates done, in a folder that may change."""
    return Path(shutil.copytree(finished, tmp_path / "begun"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--train_vision", "False"], "Leave train_vision and lora.rank as they were"),
        (["--optimizer.name", "muon"], "--optimizer.name is muon; it must be adamw, whose moments"),
        (["--lora.rank", "2"], "was not trained with lora.rank above 0"),
        (["--out", "elsewhere"], "--out cannot be changed by --resume: the run stays in"),
        (["--name=other"], "--name cannot be changed by --resume: the run stays in"),
    ],
)
def test_a_resumption_that_is_refused_changes_nothing(begun, capsys, words, said):
    before = {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()}
    assert main(["train", "--resume", str(begun), "--steps", "4", *words]) == 1
    err = capsys.readouterr().err.splitlines()[-1]
    assert said in err and "Remove" not in err
    assert {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()} == before


def test_the_place_where_a_resumed_run_is_may_be_said(begun, capsys):
    words = ["--out", str(begun.parent), f"--name={begun.name}", "--steps", "4", "--dry-run"]
    main(["train", "--resume", str(begun), *words])
    out, err = capsys.readouterr()
    assert "resume       3 updates" in out and "cannot be changed" not in err


def test_a_run_trained_with_adapters_cannot_go_on_without(begun, capsys):
    (checkpoints(begun)[-1] / "model" / "adapters.safetensors").write_bytes(b"")
    assert main(["train", "--resume", str(begun), "--steps", "4"]) == 1
    assert "--lora.rank is 0; it must be that of the adapters in" in capsys.readouterr().err


@pytest.mark.parametrize("needs", [[], ["--kl", "0.1"]])
def test_a_run_goes_on_without_its_start_unless_it_needs_it(begun, tmp_path, capsys, needs):
    options = yaml.safe_load((begun / OPTIONS).read_text())
    gone = str(tmp_path / "gone")
    (begun / OPTIONS).write_text(yaml.safe_dump({**options, "train": {**options["train"], "model": gone}}))
    assert main(["train", "--resume", str(begun), "--steps", "4", *needs]) == (1 if needs else 0)
    assert (f"--model {gone}: there is no such folder" in capsys.readouterr().err) == bool(needs)
    assert len(history(begun)) == 3 + (not needs)


@pytest.mark.integration
def test_ctrl_c_in_an_evaluation_between_updates_stops_at_once(evaluated, arguments, runs, monkeypatch, capsys):
    run, play = runs / "in-evaluation", evaluate.evaluate

    def interrupted(engine, processor, options, folder, what, accelerator):
        if what == "evaluation 2":
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)
        return play(engine, processor, options, folder, what, accelerator)

    options = ["--eval.every", "1", "--eval.contrast", "cue_p", "0"]
    with monkeypatch.context() as patch:
        patch.setattr(evaluate, "evaluate", interrupted)
        assert main(["train", *arguments(run.name, *options)]) == 130
    assert "training is saved. Continue with: codev train --resume" in capsys.readouterr().err
    assert visible(run / "eval") == {"step-000001"} and len(history(run)) == 1
    assert main(["train", "--resume", str(run)]) == 0
    assert_as_if_never_stopped(run, evaluated)


def test_runs_that_begin_at_once_have_folders_of_their_own(arguments, runs, monkeypatch, capsys):
    """One takes the name while the other is still loading its policy."""
    load = experiment.load_trained

    def late(*given):
        shutil.copytree(runs / "twin-of", runs / "twin")
        return load(*given)

    assert main(["train", *arguments("twin-of", "--steps", "1")]) == 0
    before = (runs / "twin-of" / OPTIONS).read_bytes()
    monkeypatch.setattr(experiment, "load_trained", late)
    assert main(["train", *arguments("twin", "--steps", "1", "--seed", "3")]) == 0
    assert f"Another run has taken the name meanwhile: this one is {runs / 'twin-2'}" in capsys.readouterr().out
    assert (runs / "twin" / OPTIONS).read_bytes() == before
    assert yaml.safe_load((runs / "twin-2" / OPTIONS).read_text())["train"]["seed"] == 3
    assert not list(runs.glob(".*"))


def test_writers_of_the_same_folder_do_not_meet(tmp_path):
    with checkpoint.replace_folder(tmp_path / "start", "a") as one:
        with checkpoint.replace_folder(tmp_path / "start", "b") as other:
            (one / "file").write_text("1")
            (other / "file").write_text("2")
        assert (tmp_path / "start" / "file").read_text() == "2"
    assert (tmp_path / "start" / "file").read_text() == "1" and visible(tmp_path) == {"start"}


class _Seen(Exception):
    """Ends a run as soon as it is known what it loads."""


def test_processes_take_the_checkpoint_and_the_start_that_the_main_one_sees(finished, config, tmp_path, monkeypatch):
    """A network disk may show a new folder late: each process would load, or make, another policy."""
    run = shutil.copytree(finished, tmp_path / "run")

    def of_main(values):
        newest = [v.with_name("step-000002") if isinstance(v, Path) and v.name == "step-000003" else v for v in values]
        return [False if value is True else value for value in newest]  # it sees no start

    def loading(options, start, resume, accelerator):
        raise _Seen(resume.name)

    monkeypatch.setattr(experiment, "broadcast_object_list", of_main)
    monkeypatch.setattr(experiment, "load_trained", loading)
    with pytest.raises(_Seen, match="step-000002"):
        main(["train", "--resume", str(run)])

    def making(options, folder):
        raise _Seen("made")

    monkeypatch.setattr(sft_start, "broadcast_object_list", of_main)
    monkeypatch.setattr(sft_start, "make_start", making)
    request = read_request(["--config", str(config), "--out", str(tmp_path)])
    folder = sft_start.start_folder(request.start_options())
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    with pytest.raises(_Seen, match="made"):
        sft_start.find_start(request, print)


def test_a_model_that_is_not_read_is_not_noted_as_the_start(finished, tmp_path, capsys):
    run = shutil.copytree(finished, tmp_path / "run")
    known = yaml.safe_load((run / "options.yaml").read_text())["train"]["model"]
    assert main(["train", "--resume", str(run), "--model", str(tmp_path / "elsewhere")]) == 0
    said = capsys.readouterr().out
    assert "elsewhere is not read: the weights are those of the checkpoint" in said and "after update 3" in said
    assert yaml.safe_load((run / "options.yaml").read_text())["train"]["model"] == known
    assert json.loads((run / "summary.json").read_text())["options"]["model"] == known


def test_a_policy_in_a_checkpoint_that_is_cut_short_names_the_way_back(finished, tmp_path, capsys):
    run = shutil.copytree(finished, tmp_path / "run")
    last = checkpoints(run)[-1]
    weights = last / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    assert main(["train", "--resume", str(run), "--steps", "4"]) == 1
    said = capsys.readouterr().err
    assert f"{last} cannot be resumed from" in said and "Remove the folder to go back to the checkpoint before" in said
