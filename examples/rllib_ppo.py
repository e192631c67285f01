"""Trains RLlib's PPO to crop, on the task and with the network of `cleanrl_ppo.py`, in one process on a CPU.

`pip install "ray[rllib]" torch pydantic`, then `python examples/rllib_ppo.py --seed 1`.
"""

from __future__ import annotations

import sys
from typing import Any

import ray
import torch
from cleanrl_ppo import Policy, make_env
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core import Columns
from ray.rllib.core.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.tune import register_env
from torch import Tensor

from codev_env.app.arguments import parse
from codev_env.app.options import option_class

BATCH = 256


@option_class
class Options:
    """Options of a run."""

    total_steps: int = 16_384
    """Total number of crops."""
    seed: int = 1
    """Seed of scenes, weights and samples."""


class CropModule(TorchRLModule, ValueFunctionAPI):
    """Policy and value function, on the observation as it is: no flattening, no preprocessor."""

    def setup(self) -> None:
        """Make the network."""
        self.policy = Policy(self.observation_space["question"].shape[0], int(self.action_space.n))

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        return {Columns.ACTION_DIST_INPUTS: self._policy(batch)[0].logits}

    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> Tensor:
        """Return values, shape (batch,)."""
        return self._policy(batch)[1]

    def _policy(self, batch: dict[str, Any]) -> Any:
        return self.policy(batch[Columns.OBS]["scene"], batch[Columns.OBS]["question"])


def config(options: Options) -> PPOConfig:
    """Return the configuration, with the settings of `cleanrl_ppo.py`."""
    register_env("codev-crop", lambda _: make_env())
    return (
        PPOConfig()
        .environment("codev-crop")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .learners(num_learners=0)
        .training(
            train_batch_size_per_learner=BATCH,
            minibatch_size=64,
            num_epochs=10,
            lr=[[0, 3e-3], [options.total_steps, 0.0]],
            lambda_=0.95,
            clip_param=0.2,
            use_kl_loss=False,
            vf_loss_coeff=0.5,
            entropy_coeff=0.01,
            grad_clip=0.5,
        )
        .rl_module(rl_module_spec=RLModuleSpec(module_class=CropModule))
        .reporting(metrics_num_episodes_for_smoothing=BATCH)
        .debugging(seed=options.seed, log_level="ERROR")
    )


def train(options: Options) -> list[tuple[int, float]]:
    """Train, and return the curve: pairs of a step count and the mean score of the last update's crops."""
    torch.set_num_threads(1)
    algorithm = config(options).build_algo()
    curve: list[tuple[int, float]] = []
    while not curve or curve[-1][0] < options.total_steps:
        found = algorithm.train()["env_runners"]
        curve.append((int(found["num_env_steps_sampled_lifetime"]), float(found["episode_return_mean"])))
        print(f"{curve[-1][0]:>7} crops: mean score {curve[-1][1]:.3f}", flush=True)
    algorithm.stop()
    return curve


if __name__ == "__main__":
    ray.init(num_cpus=1, include_dashboard=False)
    train(parse(Options, sys.argv[1:], "rllib_ppo.py"))
