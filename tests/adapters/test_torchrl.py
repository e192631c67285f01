from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from codev_env.adapters.crop import CropWrapper

pytest.importorskip("torchrl", reason="torchrl is not installed")

import torch  # noqa: E402
from tensordict import NonTensorData  # noqa: E402
from tensordict.nn import TensorDictModule  # noqa: E402
from torchrl.data import NonTensor  # noqa: E402
from torchrl.envs import GymEnv, GymWrapper  # noqa: E402
from torchrl.envs.utils import check_env_specs  # noqa: E402

from codev_env.adapters.torchrl import InfoReader  # noqa: E402

pytestmark = pytest.mark.integration
ARGS = {"data": "synthetic", "scenes": "toy", "max_turns": 3}
CROP = "<code>show(image.crop((10, 20, 90, 120)))</code>"


def test_specs_are_those_of_the_environment() -> None:
    env = GymEnv("codev_env:CodeV-VStar-v0", **ARGS)
    assert isinstance(env.observation_spec["images"], NonTensor)
    assert isinstance(env.observation_spec["text"], NonTensor)
    assert isinstance(env.action_spec, NonTensor)
    env.set_info_dict_reader(InfoReader(["outcome", "format", "tool"]))
    check_env_specs(env)


def test_a_rollout_holds_what_the_environment_gives() -> None:
    env = GymEnv("codev_env:CodeV-VStar-v0", **ARGS)
    env.set_info_dict_reader(InfoReader(["outcome", "format", "tool"]))
    env.set_seed(3)
    turns = iter([CROP, "nothing", "<answer>4</answer>"])
    policy = TensorDictModule(lambda text: NonTensorData(next(turns)), in_keys=["text"], out_keys=["action"])
    rollout = env.rollout(max_steps=3, policy=policy)
    plain = gym.make("codev_env:CodeV-VStar-v0", **ARGS)
    observation, _ = plain.reset(options={"task_id": env._env.unwrapped.task.task_id})
    assert len(rollout) == 3
    for step, turn in zip(rollout, (CROP, "nothing", "<answer>4</answer>"), strict=True):
        assert (step["text"], step["action"]) == (observation["text"], turn)
        observation, reward, terminated, truncated, info = plain.step(turn)
        after = step["next"]
        assert after["text"] == observation["text"]
        assert len(after["images"]) == len(observation["images"])
        for theirs, ours in zip(after["images"], observation["images"], strict=True):
            np.testing.assert_array_equal(theirs, ours)
        assert after["reward"].item() == pytest.approx(reward)
        assert (after["terminated"].item(), after["truncated"].item()) == (terminated, truncated)
        assert after["is_correct"].item() == info["is_correct"]
        terms = {name: value.item() for name, value in after["reward_terms"].items()}
        assert terms == pytest.approx(info["reward_terms"])


def test_crops_are_tensors() -> None:
    env = GymWrapper(CropWrapper(gym.make("codev_env:CodeV-VStar-v0", **ARGS), grid=2, sizes=(0.5,), scene_side=8))
    check_env_specs(env)
    rollout = env.rollout(max_steps=3)
    assert rollout["next", "scene"].shape == (3, 8, 8, 3)
    assert rollout["next", "scene"].dtype == torch.float32
    assert rollout["next", "terminated"].flatten().tolist() == [False, False, True]
