"""The examples that train PPO on crops, run with the real libraries on a smaller task: one shape on nine fields."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.integration
EXAMPLES = Path(__file__).parents[2] / "examples"
EASY: dict[str, Any] = {"preset": "tiny", "grid": 3, "objects": [1, 1], "colors": 4, "cue_p": 0.0}
CHANCE = 1 / 9
NEEDS = {
    "sb3_ppo": ("stable_baselines3", "pydantic"),
    "cleanrl_ppo": ("torch", "pydantic"),
    "rllib_ppo": ("ray", "tree", "torch", "pydantic"),
}


@pytest.fixture
def example(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    name = request.param
    for needed in NEEDS[name]:
        pytest.importorskip(needed, reason=f"{needed} is not installed")
    monkeypatch.syspath_prepend(EXAMPLES)
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("example", ["sb3_ppo"], indirect=True)
def test_stable_baselines_learns_to_crop(example: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example, "SCENES", EASY)
    model, curve = example.train(4096, seed=1)
    assert [steps for steps, _ in curve] == list(range(256, 4097, 256))
    assert curve[-1][1] > 3 * CHANCE > 1.5 * curve[0][1]
    assert example.evaluate(model, 40)["score"] > 3 * CHANCE


@pytest.mark.parametrize("example", ["sb3_ppo"], indirect=True)
def test_stable_baselines_has_nothing_to_say_about_the_environment(
    example: ModuleType, recwarn: pytest.WarningsRecorder
) -> None:
    from stable_baselines3.common.env_checker import check_env

    check_env(example.make_env())
    # It recommends uint8 images to use its own network for them, and to flatten what it cannot use it for.
    assert [str(w.message) for w in recwarn if "image" not in str(w.message).lower()] == []


@pytest.mark.parametrize("example", ["cleanrl_ppo"], indirect=True)
def test_the_single_file_learns_to_crop(example: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example, "SCENES", EASY)
    curve = example.train(example.Options(total_steps=4096))
    assert curve[-1][1] > 3 * CHANCE > 1.5 * curve[0][1]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("example", ["rllib_ppo"], indirect=True)
def test_rllib_learns_to_crop(example: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    import cleanrl_ppo
    import ray

    for name, value in (("USAGE_STATS_ENABLED", "0"), ("AUTH_MODE", "disabled"), ("raylet_start_wait_time_s", "300")):
        monkeypatch.setenv(f"RAY_{name}", value)
    monkeypatch.setattr(cleanrl_ppo, "SCENES", EASY)
    ray.init(num_cpus=1, include_dashboard=False, _node_ip_address="127.0.0.1", object_store_memory=80 << 20)
    try:
        curve = example.train(example.Options(total_steps=2048))
    finally:
        ray.shutdown()
    assert [steps for steps, _ in curve] == list(range(256, 2049, 256))
    assert curve[-1][1] > 3 * CHANCE > 1.5 * curve[0][1]
