"""Trains Stable-Baselines3's PPO to crop, with the environment's own score of each crop as the reward.

    python examples/sb3_ppo.py --seeds 1 2 3 --out runs/ppo

Writes one JSON file per seed: the mean score of the crops of each update, and of greedy crops on test scenes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import gymnasium as gym
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from codev_env.adapters.crop import CropWrapper
from codev_env.app.arguments import parse
from codev_env.app.options import option_class

SCENES = {"preset": "tiny", "grid": 3, "objects": [3, 3], "colors": 4, "cue_p": 0.0}
PIXELS = 3  # per cell and side, in the observation


@option_class
class Options:
    """Options."""

    seeds: tuple[int, ...] = (1,)
    """Seeds of scenes, weights and samples; one training run each."""
    steps: int = 16_384
    """Crops per training run."""
    test: int = 300
    """Scenes of the test split for the final greedy crops."""
    out: Path = Path("runs/ppo")
    """Folder for the results."""


def make_env(split: str = "train") -> gym.Env:
    """Three coloured shapes on nine cells: crop the one that the question asks about."""
    env = gym.make(
        "codev_env:CodeV-VStar-v0",
        data="synthetic",
        split=split,
        scenes=SCENES,
        max_turns=1,
        reward_weights={"tool": 1.0},
    )
    cells = SCENES["grid"]
    return CropWrapper(env, grid=cells, sizes=(1 / cells,), scene_side=cells * PIXELS, crop_side=4, question_size=16)


class Fields(BaseFeaturesExtractor):
    """Features of each cell of the scene, multiplied by features of the question (FiLM, arXiv 1709.07871)."""

    def __init__(self, space: gym.spaces.Dict, width: int = 32) -> None:
        super().__init__(space, features_dim=width * (space["scene"].shape[0] // PIXELS) ** 2)
        self.look = nn.Sequential(nn.Conv2d(3, width, PIXELS, PIXELS), nn.ReLU(), nn.Conv2d(width, width, 1))
        self.ask = nn.Linear(space["question"].shape[0], width)

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        """Return features of shape (batch, width * cells)."""
        scene, question = observations["scene"].permute(0, 3, 1, 2) - 0.5, observations["question"]
        asked = self.ask(question * question.shape[1] ** 0.5)
        return torch.relu(self.look(scene) * asked[:, :, None, None]).flatten(1)


class Curve(BaseCallback):
    """Records the mean score of the crops of each update."""

    def __init__(self) -> None:
        super().__init__()
        self.points: list[tuple[int, float]] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.points.append((self.num_timesteps, float(self.model.rollout_buffer.rewards.mean())))
        print(f"{self.points[-1][0]:>7} crops: mean score {self.points[-1][1]:.3f}", flush=True)


def train(steps: int, seed: int) -> tuple[PPO, list[tuple[int, float]]]:
    """Train a policy; return it and the curve."""
    model = PPO(
        "MultiInputPolicy",
        make_vec_env(make_env, n_envs=8, seed=seed * 1000),
        n_steps=32,
        batch_size=64,
        n_epochs=10,
        learning_rate=lambda left: 3e-3 * left,
        ent_coef=0.01,
        policy_kwargs={"features_extractor_class": Fields, "net_arch": []},
        seed=seed,
        device="cpu",
    )
    curve = Curve()
    return model.learn(steps, callback=curve), curve.points


def evaluate(model: PPO, scenes: int) -> dict[str, float]:
    """Crop the first scenes of the test split greedily; return mean score and share of faithful crops."""
    env = make_env("test")
    score = faithful = 0.0
    for index in range(scenes):
        observation, _ = env.reset(options={"index": index})
        _, reward, _, _, info = env.step(model.predict(observation, deterministic=True)[0])
        score, faithful = score + reward, faithful + info["is_faithful"]
    env.close()
    return {"scenes": scenes, "score": score / scenes, "faithful": faithful / scenes}


def main(options: Options) -> None:
    """Train with each seed and write the results."""
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    for seed in options.seeds:
        model, curve = train(options.steps, seed)
        result = {"seed": seed, "test": evaluate(model, options.test), "curve": curve}
        print(f"seed {seed}: {result['test']}", flush=True)
        (options.out / f"seed{seed}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(parse(Options, sys.argv[1:], "sb3_ppo.py"))
