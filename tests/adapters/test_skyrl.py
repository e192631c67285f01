"""The adapter for SkyRL, against the real base class and registry of `skyrl_gym`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

skyrl_gym = pytest.importorskip("skyrl_gym", reason="skyrl-gym is not installed: pip install skyrl-gym")

from chat_server import LOOKED_RIGHT, SCENES, images_of, oracle  # noqa: E402

from codev_env.adapters.skyrl import CodeVSkyRLEnv, register, rows  # noqa: E402

sys.path.append(str(Path(__file__).parents[2] / "examples"))


def play(env, act, prompt):
    """Play as SkyRL's generator does; returns the conversation and the steps."""
    conversation, _ = env.init(prompt)
    steps = []
    while not steps or not steps[-1]["done"]:
        text = act(conversation)
        steps.append(env.step(text))
        conversation = [*conversation, {"role": "assistant", "content": text}, *steps[-1]["observations"]]
    return conversation, steps


def test_the_registry_makes_an_environment_that_plays():
    register("codev-test", **SCENES)
    [row] = rows([3], "codev-test")
    env = skyrl_gym.make(row["env_class"], env_config={}, extras={"extra_info": row["extra_info"], "max_turns": 3})
    assert isinstance(env, CodeVSkyRLEnv) and env.max_turns == 3
    conversation, steps = play(env, oracle([3], **SCENES), row["prompt"])
    assert [message["role"] for message in conversation] == ["system", "user", "assistant", "user", "assistant"]
    assert [len(images_of(message)) for message in conversation] == [0, 1, 0, 1, 0]
    assert sum(step["reward"] for step in steps) == pytest.approx(1.8)
    metrics = env.get_metrics()
    assert {name: metrics[f"reward_{name}"] for name in LOOKED_RIGHT} == pytest.approx(LOOKED_RIGHT)
    assert metrics["correct"] == metrics["faithful"] == 1.0 and metrics["turns"] == 2.0
    env.close()


def test_a_stop_string_that_was_cut_off_is_no_flaw():
    env = CodeVSkyRLEnv(SCENES, {"index": 3})
    act = oracle([3], **SCENES)
    _, steps = play(env, lambda messages: act(messages).replace("</code>", "").replace("</answer>", ""), [])
    assert sum(step["reward"] for step in steps) == pytest.approx(1.8)


def test_the_generators_turns_are_the_environments():
    env = CodeVSkyRLEnv({name: SCENES[name] for name in ("data", "scenes")}, {"index": 0, "max_turns": 2})
    _, steps = play(env, lambda messages: "well", [])
    assert len(steps) == 2 and steps[-1]["metadata"]["stop_reason"] == "max_turns" and not steps[-1]["observations"]


def test_metrics_of_many_episodes_are_averaged():
    act = oracle([3], **SCENES)
    metrics = []
    for policy in (act, lambda messages: "<answer>nothing</answer>"):
        env = CodeVSkyRLEnv(SCENES, {"index": 3})
        play(env, policy, [])
        metrics.append(env.get_metrics())
        env.close()
    assert CodeVSkyRLEnv.aggregate_metrics(metrics)["correct"] == 0.5


def test_the_example_runs(capsys):
    import skyrl_env

    skyrl_env.main()
    assert "reward 1.80" in capsys.readouterr().out
