"""The adapter for TRL: what a model and a reward function see of it, and real steps of `GRPOTrainer`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from chat_server import LOOKED_RIGHT, SCENES

from codev_agents import expand_box
from codev_env.adapters.trl import environment_factory, episode_reward, prompt_rows
from codev_env.errors import ConfigError, JudgeError

sys.path.append(str(Path(__file__).parents[2] / "examples"))
needs_trl = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("trl", "datasets")),
    reason="TRL is not installed: pip install trl",
)


def crop_code(environment):
    """A program that shows the target."""
    task = environment._player.base.task
    box = expand_box(task.targets[0], task.image.size, 0.25)
    return f'Image.open("input.png").crop({box}).save("crop.png")\nprint("crop.png")'


def said(text):
    return [{"role": "assistant", "content": text}]


def test_a_rollout_shows_images_and_is_paid():
    environment = environment_factory(**SCENES)()
    first = environment.reset(**prompt_rows([3])[0])
    assert [block["type"] for block in first] == ["image", "text"]
    shown = environment.run_python(crop_code(environment))
    assert [block["type"] for block in shown] == ["text", "image", "text"]
    logged = {}
    text = f"<answer>{environment._player.base.task.answer}</answer>"
    assert episode_reward([said(text)], [environment], logged.__setitem__) == pytest.approx([1.8])
    assert {name: logged[f"codev/reward_{name}"] for name in LOOKED_RIGHT} == pytest.approx(LOOKED_RIGHT)
    assert logged["codev/faithful"] == logged["codev/tool_calls"] == 1.0


@pytest.mark.parametrize(
    "completion", [said("The digit is 3."), [], [{"role": "tool", "content": "x"}], [{"role": "assistant"}]]
)
def test_without_an_answer_the_outcome_is_not_paid(completion):
    environment = environment_factory(**SCENES)()
    environment.reset(index=3)
    environment.run_python(crop_code(environment))
    [reward] = episode_reward([completion], [environment])
    assert reward == pytest.approx(LOOKED_RIGHT["tool"])  # a format without an answer is none
    assert environment._player.info["stop_reason"] == "no_answer"


def test_after_the_last_turn_a_call_changes_nothing():
    environment = environment_factory(**(SCENES | {"max_turns": 1}))()
    environment.reset(index=3)
    environment.run_python(crop_code(environment))
    assert environment.run_python("print(1)") == [{"type": "text", "text": "The episode is over: no turns are left."}]
    answer = said(f"<answer>{environment._player.base.task.answer}</answer>")
    [reward] = episode_reward([answer], [environment])
    assert reward < 1 and environment._player.turns == 1


def test_a_judge_that_fails_is_no_score(monkeypatch):
    """TRL tells a tool's error to the model and goes on; the reward must not."""
    environment = environment_factory(**SCENES)()
    environment.reset(index=3)

    def fail(*args):
        raise JudgeError("the judge is gone")

    monkeypatch.setattr(environment._player.base.judge, "score", fail)
    with pytest.raises(JudgeError):
        environment.run_python("print(1)")
    with pytest.raises(JudgeError, match="the judge is gone"):
        episode_reward([said("<answer>3</answer>")], [environment])


def test_the_model_sees_one_tool_with_a_schema():
    utils = pytest.importorskip("transformers.utils", reason="transformers is not installed")
    environment = environment_factory(**SCENES)()
    public = [name for name in dir(environment) if not name.startswith("_")]
    assert public == ["reset", "run_python"]
    schema = utils.get_json_schema(environment.run_python)["function"]
    assert schema["parameters"]["required"] == ["code"] and schema["parameters"]["properties"]["code"]["description"]


@needs_trl
@pytest.mark.integration
def test_the_example_trains_on_the_images_of_the_tool(tmp_path, monkeypatch):
    """Two real steps: each rollout looks once, and the update sees the crops as well as the scenes."""
    import torch
    import trl_grpo

    torch.set_num_threads(1)
    images: dict[bool, int] = {True: 0, False: 0}
    train = trl_grpo.train

    def watched(model, *args, **kwargs):
        def count(module, given, named):
            grid = named.get("grid_thw", given[1] if len(given) > 1 else None)
            images[torch.is_grad_enabled()] += len(grid)

        model.model.visual.register_forward_pre_hook(count, with_kwargs=True)
        return train(model, *args, **kwargs)

    monkeypatch.setattr(trl_grpo, "train", watched)
    trainer = trl_grpo.train_toy(str(tmp_path))
    steps = [line for line in trainer.state.log_history if "reward" in line]
    assert len(steps) == 2
    for step in steps:
        assert step["codev/tool_calls"] == 1.0 and step["codev/turns"] == 2.0
        assert step["tools/failure_frequency"] == 0.0
        parts = sum(step[f"codev/reward_{name}"] for name in LOOKED_RIGHT)
        assert step["reward"] == pytest.approx(step["codev/reward"], abs=1e-5) == pytest.approx(parts, abs=1e-5)
    assert images[True] == 2 * 8 * 2  # steps x rollouts x (scene and crop)


def test_a_dialect_without_programs_is_refused_before_the_first_rollout():
    with pytest.raises(ConfigError, match="dialect 'deepeyes' cannot run the programs of run_python"):
        environment_factory(**SCENES, dialect="deepeyes")()
