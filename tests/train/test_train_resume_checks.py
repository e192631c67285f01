"""What a resumed run is asked before it goes on: room on the disk, the weights it trained, the evaluation it has."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections import namedtuple
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml

from codev_agents.engines.lora import ADAPTERS, save_adapters
from codev_agents.engines.options import LoraOptions
from codev_train import checks, experiment
from codev_train.experiment import _other_start
from codev_train.learn.checkpoint import CheckpointError, replace_folder
from codev_train.problems import kept_problems
from codev_train.run import estimate
from codev_train.run.config import OPTIONS, Request
from codev_train.run.env_options import EnvOptions
from codev_train.run.options import TrainOptions
from codev_train.run.resumed import changed_evaluation, continues, keep_evaluation_options
from codev_train.run.sizes import KNOWN_MODELS
from codev_train.sft import start

SIZE = KNOWN_MODELS["Qwen2.5-VL-3B"]


@pytest.fixture
def run(tmp_path) -> Path:
    """The folder of a run with a checkpoint."""
    folder = tmp_path / "run"
    saved = folder / "checkpoints" / "step-000001"
    saved.mkdir(parents=True)
    (saved / "state.json").write_text(json.dumps({"step": 1, "optimizer": ["AdamW"]}))
    (folder / "before").mkdir()
    (folder / "before" / "metrics.json").write_text("{}")
    (folder / OPTIONS).write_text(yaml.safe_dump({"train": asdict(TrainOptions(train_vision=False))}))
    return folder


@pytest.mark.parametrize(("share", "status"), [(0.5, "fail"), (1.0, "ok")])
def test_room_that_a_resumed_run_has_taken_already_is_not_asked_for_again(run, monkeypatch, share, status):
    wanted = int(estimate.checkpoint_bytes(SIZE, TrainOptions()))
    with (run / "checkpoints" / "step-000001" / "weights").open("wb") as file:
        file.truncate(int(share * wanted))  # sparse: it takes nothing
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage(10, 10, wanted // 4))
    plan = checks.PlannedRun(Request((), ()), TrainOptions(resume=str(run)), size=SIZE)
    (found,) = checks._folder(plan)
    assert found.status == status and "beside what is there" in found.detail
    assert status == "ok" or found.advice == "lower --keep, or free some disk space", "--out cannot be changed"
    (new,) = checks._folder(replace(plan, options=TrainOptions(out=str(run.parent))))
    assert new.status == "fail" and "another disk" in new.advice


def test_a_vision_tower_that_was_frozen_stays_so(run):
    last = run / "checkpoints" / "step-000001"
    (problem,) = kept_problems(TrainOptions(resume=str(run)), last)
    assert problem.text.startswith("--train-vision is True; it must be False, as so far")
    assert not list(kept_problems(TrainOptions(resume=str(run), train_vision=False), last))


def test_a_vision_tower_that_was_trained_stays_so(run):
    (run / OPTIONS).write_text(yaml.safe_dump({"train": asdict(TrainOptions())}))
    last = run / "checkpoints" / "step-000001"
    (problem,) = kept_problems(TrainOptions(resume=str(run), train_vision=False), last)
    assert problem.text.startswith("--train-vision is False; it must be True, as so far")
    assert not list(kept_problems(TrainOptions(resume=str(run)), last))


def test_adapters_of_another_rank_or_alpha_are_noticed_before_a_policy_is_loaded(run):
    model = run / "checkpoints" / "step-000001" / "model"
    model.mkdir()

    def problems(rank: int, alpha: float = 32.0) -> str:
        options = TrainOptions(resume=str(run), train_vision=False, lora=LoraOptions(rank=rank, alpha=alpha))
        return " ".join(problem.text for problem in kept_problems(options, model.parent))

    assert "was not trained with lora.rank above 0" in problems(4)
    tensors = {"layer.lora_A.default.weight": torch.zeros(4, 8), "layer.lora_B.default.weight": torch.zeros(8, 4)}
    save_adapters(tensors, model, alpha=32.0)
    assert problems(4) == ""
    assert "another lora.rank" in problems(8) and "their rank is 4, not 8" in problems(8)
    assert "give --lora.alpha 32" in problems(4, alpha=16.0)
    (model / ADAPTERS).write_bytes((model / ADAPTERS).read_bytes()[:-8])
    assert "is broken" in problems(4) and "checkpoint" in problems(4)


def test_a_run_whose_evaluation_before_was_another_one_says_so(run):
    options = TrainOptions()
    assert not changed_evaluation(run, options)
    assert not changed_evaluation(run, replace(options, eval=replace(options.eval, every=5)))
    assert changed_evaluation(run, replace(options, eval=replace(options.eval, episodes=16)))
    assert changed_evaluation(run, replace(options, eval=replace(options.eval, contrast={"cue_p": 0})))
    (run / "before" / "metrics.json").unlink()
    assert not changed_evaluation(run, replace(options, eval=replace(options.eval, episodes=16)))


def test_a_run_that_is_resumed_twice_still_knows_how_it_was_evaluated_before(run):
    other = TrainOptions(eval=replace(TrainOptions().eval, temperature=1.0))
    for _ in range(2):
        keep_evaluation_options(run)
        (run / OPTIONS).write_text(yaml.safe_dump({"train": asdict(other)}))
    assert changed_evaluation(run, other) and not changed_evaluation(run, TrainOptions())


def test_options_of_the_environment_make_another_evaluation_too(run):
    made = TrainOptions(env=EnvOptions(view_pixels="auto", scene={"cue_p": 0.5}))
    (run / OPTIONS).write_text(yaml.safe_dump({"train": asdict(made)}))

    def changed(**changes) -> list[str]:
        return changed_evaluation(run, replace(made, **changes))

    assert changed() == changed(env=replace(made.env, farm="ray", view_pixels=4900, only="a.jsonl")) == []
    assert changed(env=replace(made.env, scenes="toy", max_turns=3)) == ["--env.scenes", "--env.max-turns"]
    assert changed(max_tokens=12, eval=replace(made.eval, only="held.jsonl")) == ["--eval.only", "--max-tokens"]
    assert changed(eval=replace(made.eval, data="held.jsonl", every=9)) == ["--eval.data"]
    own = replace(made.eval, scenes="toy")
    (run / OPTIONS).write_text(yaml.safe_dump({"train": asdict(replace(made, eval=own))}))
    other = replace(made.env, scenes="vstar-4k", scene={"cue_p": 0.1})
    assert changed(eval=own, env=other) == [], "the evaluation has scenes of its own"
    (run / OPTIONS).write_text(yaml.safe_dump({"train": {"eval": {"episodes": 128}, "later": 3}}))
    assert changed() == [], "by a version with other options"


@pytest.mark.parametrize(("rows", "said"), [(3, 1), (2, 2), (0, 2)])
def test_a_run_says_where_it_goes_on_and_which_updates_its_history_lacks(run, rows, said):
    (run / "history.jsonl").write_text("".join(json.dumps({"step": step}) + "\n" for step in range(3 - rows + 1, 6)))
    first, *more = continues(run, run / "checkpoints" / "step-000003", 3)
    assert "after update 3" in first and len(more) == said - 1
    assert not more or f"has {rows} of these 3 updates" in more[0]
    assert "begins with the first update" in continues(run, None, 0)[0]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_summary_says_whether_before_and_after_compare(run, temperature, monkeypatch):
    monkeypatch.setattr(experiment, "read_trajectories", lambda folder: [SimpleNamespace(source="generated")])
    options = TrainOptions(eval=replace(TrainOptions().eval, temperature=temperature))
    experiment._summarize(run, Request((), ()), options, {}, {}, {})
    summary = json.loads((run / "summary.json").read_text())
    assert ("evaluation_before" in summary) == bool(temperature)


def test_another_model_under_adapters_is_named(run):
    (run / OPTIONS).write_text(yaml.safe_dump({"train": asdict(TrainOptions(model="base"))}))
    lora = replace(TrainOptions().lora, rank=8)
    assert _other_start(run, TrainOptions(model="other", lora=lora)) == "base"
    assert _other_start(run, TrainOptions(model="other", kl=0.1)) == "base"
    assert not _other_start(run, TrainOptions(model="other")), "the weights come from the checkpoint"
    assert not _other_start(run, TrainOptions(model=str(Path("base").resolve()), lora=lora))


def test_a_cold_start_that_finds_no_room_is_not_one_to_resume(tmp_path, monkeypatch):
    class Large:
        def save(self, folder):
            raise OSError(28, "No space left on device")

    made = start.make_accelerator()
    made.native_amp = True  # as in a run of bf16
    precisions = []
    monkeypatch.setattr(start, "make_accelerator", lambda: made)
    monkeypatch.setattr(start, "cold_start", lambda *given: precisions.append(given[2].native_amp) or Large())
    options = start.SFTOptions(out=str(tmp_path))
    with pytest.raises(CheckpointError, match="disk space and start again with the same command") as caught:
        start.make_start(options, tmp_path / "start")
    assert "--resume" not in str(caught.value) and precisions == [False]
    with pytest.raises(CheckpointError, match="continue with --resume"), replace_folder(tmp_path / "model"):
        raise OSError(28, "No space left on device")


def test_what_a_cold_start_left_that_was_killed_while_it_saved_is_removed(tmp_path, monkeypatch):
    pytest.importorskip("fcntl", reason="no locks on this system")

    class Small:
        def save(self, folder):
            (folder / "model.safetensors").write_text("weights")
            assert (folder / "owner").exists(), "another start that begins now lets it be"

    left = tmp_path / ".start.0123abcd"
    left.mkdir()
    code = "import os, signal; from pathlib import Path; from codev_env import files\n"
    code += f"with files.owned(Path({str(left)!r}), '.start.'): os.kill(os.getpid(), signal.SIGKILL)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    (left / "model.safetensors").write_text("half")
    monkeypatch.setattr(start, "cold_start", lambda *given: Small())
    start.make_start(start.SFTOptions(out=str(tmp_path)), tmp_path / "start")
    assert {path.name for path in tmp_path.iterdir()} == {"start", "start-log"}
    assert {path.name for path in (tmp_path / "start").iterdir()} == {"model.safetensors", "sft.json"}
