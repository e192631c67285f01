"""A saved model plays: from its folder alone, with the trainer's engine, the same whatever the batch."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import gymnasium as gym
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from codev_agents.engines.options import ToyModelOptions  # noqa: E402
from codev_env.app import cli  # noqa: E402
from codev_env.errors import CodevError  # noqa: E402
from codev_env.rewards import REWARDS  # noqa: E402
from codev_env.trajectory import read_trajectories  # noqa: E402
from codev_eval.bench import saved as saved_model  # noqa: E402
from codev_eval.bench.folder import read_metrics  # noqa: E402
from codev_eval.bench.replay import episode_of, matches, turn_rewards  # noqa: E402
from codev_train.run.options import EnvOptions, SFTOptions  # noqa: E402
from codev_train.sft import cold_start as sft  # noqa: E402


def save_toy(folder: Path) -> None:
    # Attention heads of 32 channels: vLLM has no kernel for smaller ones.
    toy = ToyModelOptions(
        hidden=64, layers=2, heads=2, vision_hidden=16, vision_layers=1, view=112, min_view=56, patch=14
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sft, "CORPUS_SCENES", 40)
        sft.toy_policy(SFTOptions(env=EnvOptions(scenes="toy"), snap=112, toy=toy)).save(folder)


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    save_toy(folder)
    return folder


def evaluated(saved: Path, out: Path, *options: str) -> list:
    given = ["--model", str(saved), "--data", "synthetic", "--scenes", "toy", "--n", "5", "--max-tokens", "12"]
    assert cli.main(["eval", *given, "--max-turns", "2", "--out", str(out), *options]) == 0
    return read_trajectories(out)


@pytest.mark.integration
def test_a_folder_of_weights_plays(saved, tmp_path):
    played = evaluated(saved, tmp_path / "a", "--batch", "5")
    assert [t.index for t in played] == list(range(5))
    record = json.loads((tmp_path / "a" / "metrics.json").read_text())
    used = record["usage"]
    turns = sum(len(t.turns) for t in played)
    assert used["requests"] == turns and 0 < used["completion_tokens"] <= 12 * turns
    assert used["prompt_tokens"] > 50 * turns, "system prompt, image and question"
    # Greedy: neither the batch nor stopping in between changes what is written.
    again = evaluated(saved, tmp_path / "b", "--batch", "2")
    assert [[turn.action for turn in t.turns] for t in again] == [[turn.action for turn in t.turns] for t in played]


@pytest.mark.integration
def test_weights_that_were_trained_on_are_another_evaluation(saved, tmp_path, capsys):
    model = shutil.copytree(saved, tmp_path / "model")
    evaluated(model, tmp_path / "out", "--n", "1")
    (weights,) = model.glob("*.safetensors")
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    given = ["--model", str(model), "--data", "synthetic", "--scenes", "toy", "--n", "5", "--max-tokens", "12"]
    assert cli.main(["eval", *given, "--max-turns", "2", "--out", str(tmp_path / "out")]) == 1
    assert "they have changed" in capsys.readouterr().err


def without_weights(model: Path) -> None:
    (model / "model.safetensors").unlink()


def with_torn_weights(model: Path) -> None:
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])


@pytest.mark.parametrize(
    ("spoil", "engine", "says"),
    [
        (without_weights, "hf", "cannot load the weights"),
        (with_torn_weights, "hf", "cannot load the weights"),
        (lambda model: None, "vllm", "--engine vllm needs vLLM"),
    ],
)
def test_a_model_that_cannot_be_loaded_changes_no_result(saved, tmp_path, monkeypatch, capsys, spoil, engine, says):
    monkeypatch.setitem(sys.modules, "vllm", None)
    model, out = shutil.copytree(saved, tmp_path / "model"), tmp_path / "out"
    given = ["eval", "--data", "synthetic", "--scenes", "toy", "--out", str(out)]
    assert cli.main([*given, "--model", "scripted:oracle", "--n", "2"]) == 0
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    spoil(model)
    assert cli.main([*given, "--model", str(model), "--n", "1", "--engine", engine, "--overwrite"]) == 1
    said = capsys.readouterr().err
    assert says in said and "0/1" not in said, "it is found before the first episode"
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


@pytest.mark.integration
def test_samples_of_a_seed_are_the_same_and_differ_from_each_other(saved, tmp_path):
    options = ["--samples", "2", "--temperature", "1"]
    first, same = (evaluated(saved, tmp_path / name, *options) for name in "ab")
    actions = [[turn.action for turn in t.turns] for t in first]
    assert actions == [[turn.action for turn in t.turns] for t in same]
    assert actions[0] != actions[1]


def test_an_episode_that_outgrows_the_model_ends_and_a_prompt_that_does_is_not_evaluated(
    saved, tmp_path, monkeypatch, capsys
):
    given = ["eval", "--model", str(saved), "--data", "synthetic", "--scenes", "toy", "--n", "2", "--max-tokens", "12"]
    assert cli.main([*given, "--max-turns", "1", "--out", str(tmp_path / "one")]) == 0
    prompts = [t.meta["agent"]["prompt_tokens"] for t in read_trajectories(tmp_path / "one")]
    monkeypatch.setattr(saved_model, "MAX_LENGTH", max(prompts) + 20)
    assert cli.main([*given, "--out", str(tmp_path / "short")]) == 0
    short = read_trajectories(tmp_path / "short")
    assert [(t.stop_reason, len(t.turns)) for t in short] == [("max_length", 1)] * 2
    assert all(matches(REWARDS["tapo"], t, turn_rewards(REWARDS["tapo"], episode_of(t))) for t in short)
    monkeypatch.setattr(saved_model, "MAX_LENGTH", 40)
    assert cli.main([*given, "--out", str(tmp_path / "none")]) == 1
    assert f"the first prompt has {prompts[0]} tokens, and the model takes 40" in capsys.readouterr().err


def test_with_dual_a_model_also_answers_at_once(saved, tmp_path, monkeypatch):
    asked: list[list[int]] = []
    right = [True, False, True, True, False]

    def guesses(self, make_env, indices) -> list[bool]:
        asked.append(list(indices))
        return right

    monkeypatch.setattr(saved_model.SavedModel, "guesses", guesses)
    evaluated(saved, tmp_path, "--dual")
    found = read_metrics(tmp_path)["benches"]["vstar"]
    assert asked == [[0, 1, 2, 3, 4]]
    assert found["at_once"]["accuracy_without"] == 0.6 and found["at_once"]["n"] == 5
    assert found["at_once"]["accuracy_with"] == found["accuracy"] == found["dual"]["accuracy_with"]
    monkeypatch.setattr(saved_model.SavedModel, "__init__", None)  # nothing is left that needs the model
    evaluated(saved, tmp_path, "--dual")
    assert read_metrics(tmp_path)["benches"]["vstar"]["at_once"] == found["at_once"] and len(asked) == 1


def test_an_error_of_the_answers_at_once_costs_no_results(saved, tmp_path, monkeypatch, capsys):
    def guesses(self, make_env, indices) -> list[bool]:
        raise CodevError("the scorer's server is gone")

    monkeypatch.setattr(saved_model.SavedModel, "guesses", guesses)
    evaluated(saved, tmp_path, "--dual")
    assert "Answers at once are left out: the scorer's server is gone" in capsys.readouterr().err
    found = read_metrics(tmp_path)["benches"]["vstar"]
    assert "dual" in found and "at_once" not in found


def test_its_answers_at_once_are_those_of_the_runner(saved, tmp_path):
    from codev_agents.engines.hf import HFEngine
    from codev_agents.engines.policy import Policy
    from codev_agents.rollout.runner import RolloutRunner

    def make_env():
        return gym.make("codev_env:CodeV-VStar-v0", data="synthetic", scenes="toy", split="test")

    policy = Policy.load(str(saved))
    model = saved_model.SavedModel(str(saved), max_tokens=12, batch=2)
    with RolloutRunner(make_env, policy.processor) as runner:
        wanted = runner.guesses(HFEngine(policy.model, policy.processor), range(5), 12)
    assert model.guesses(make_env, range(5)) == wanted


def test_a_scripted_agent_cannot_be_made_to_answer_at_once(tmp_path):
    words = ["--data", "synthetic", "--scenes", "toy", "--n", "2", "--dual", "--out", str(tmp_path)]
    assert cli.main(["eval", "--model", "scripted:oracle", *words]) == 0
    found = read_metrics(tmp_path)["benches"]["vstar"]
    assert "dual" in found and "at_once" not in found
