"""Single-file PPO that learns where to crop, in the style of CleanRL.

    python examples/cleanrl_ppo.py --seed 1

The loss is that of PPO (arXiv 1707.06347): clipped ratio, squared error of the value, entropy bonus.
"""

from __future__ import annotations

import sys

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor, nn
from torch.distributions import Categorical

from codev_env.adapters.crop import CropWrapper
from codev_env.app.arguments import parse
from codev_env.app.options import option_class

SCENES = {"preset": "tiny", "grid": 3, "objects": [3, 3], "colors": 4, "cue_p": 0.0}
PIXELS = 3  # per cell and side, in the observation


@option_class
class Options:
    """Options of a run."""

    total_steps: int = 16_384
    """Total number of crops."""
    num_envs: int = 8
    """Number of parallel environments."""
    rollout: int = 32
    """Crops per environment between two updates."""
    epochs: int = 10
    """Epochs over the data of an update."""
    minibatches: int = 4
    """Minibatches per epoch."""
    learning_rate: float = 3e-3
    """Learning rate of Adam; decays to 0."""
    gamma: float = 0.99
    """Discount factor."""
    gae_lambda: float = 0.95
    """Lambda of generalised advantage estimation, arXiv 1506.02438."""
    clip: float = 0.2
    """Clip range of the probability ratio."""
    entropy: float = 0.01
    """Weight of the entropy bonus."""
    value: float = 0.5
    """Weight of the value loss."""
    max_grad_norm: float = 0.5
    """Maximum gradient norm."""
    seed: int = 1
    """Seed of scenes, weights and samples."""


def make_env() -> gym.Env:
    """Three coloured shapes on nine cells: crop the one that the question asks about."""
    env = gym.make(
        "codev_env:CodeV-VStar-v0",
        data="synthetic",
        split="train",
        scenes=SCENES,
        max_turns=1,
        reward_weights={"tool": 1.0},
    )
    cells = SCENES["grid"]
    return CropWrapper(env, grid=cells, sizes=(1 / cells,), scene_side=cells * PIXELS, crop_side=4, question_size=16)


class Policy(nn.Module):
    """Features of each cell, multiplied by features of the question (FiLM, arXiv 1709.07871), then linear heads."""

    def __init__(self, question_size: int, actions: int, width: int = 32) -> None:
        super().__init__()
        self.look = nn.Sequential(nn.Conv2d(3, width, PIXELS, PIXELS), nn.ReLU(), nn.Conv2d(width, width, 1))
        self.ask = nn.Linear(question_size, width)
        self.actor, self.critic = nn.Linear(width * actions, actions), nn.Linear(width * actions, 1)
        nn.init.orthogonal_(self.actor.weight, 0.01)  # a nearly uniform initial policy

    def forward(self, scene: Tensor, question: Tensor) -> tuple[Categorical, Tensor]:
        """Take shapes (batch, height, width, 3) and (batch, size); return a distribution and values, (batch,)."""
        asked = self.ask(question * question.shape[1] ** 0.5)[:, :, None, None]
        hidden = torch.relu(self.look(scene.permute(0, 3, 1, 2) - 0.5) * asked).flatten(1)
        return Categorical(logits=self.actor(hidden)), self.critic(hidden).squeeze(-1)


def tensors(observation: dict[str, np.ndarray]) -> tuple[Tensor, Tensor]:
    """Return the inputs of the policy: the scenes and the questions."""
    return torch.as_tensor(observation["scene"]), torch.as_tensor(observation["question"])


def advantages_of(rewards: Tensor, dones: Tensor, values: Tensor, options: Options) -> Tensor:
    """Generalised advantage estimates, shape (rollout, envs); `values` has one row more."""
    advantages = torch.zeros_like(rewards)
    following = torch.zeros_like(rewards[0])
    for t in reversed(range(len(rewards))):
        goes_on = 1 - dones[t]
        delta = rewards[t] + options.gamma * goes_on * values[t + 1] - values[t]
        following = advantages[t] = delta + options.gamma * options.gae_lambda * goes_on * following
    return advantages


def train(options: Options) -> list[tuple[int, float]]:
    """Train, and return the curve: pairs of a step count and the mean score of the last update's crops."""
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    # The observation after an end is the first of the next episode, so no step is wasted or misattributed.
    envs = SyncVectorEnv([make_env] * options.num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
    policy = Policy(envs.single_observation_space["question"].shape[0], int(envs.single_action_space.n))
    optimizer = torch.optim.Adam(policy.parameters(), lr=options.learning_rate, eps=1e-5)
    batch = options.rollout * options.num_envs
    updates = max(1, options.total_steps // batch)
    seen = tensors(envs.reset(seed=options.seed * 1000)[0])
    curve = []
    for update in range(updates):
        optimizer.param_groups[0]["lr"] = options.learning_rate * (1 - update / updates)
        rows: list[tuple[Tensor, ...]] = []
        with torch.no_grad():
            for _ in range(options.rollout):
                choices, value = policy(*seen)
                action = choices.sample()
                after, reward, terminated, truncated, _ = envs.step(action.numpy())
                done = torch.as_tensor(np.logical_or(terminated, truncated), dtype=torch.float32)
                pay = torch.as_tensor(reward, dtype=torch.float32)
                rows.append((*seen, action, choices.log_prob(action), value, pay, done))
                seen = tensors(after)
            last = policy(*seen)[1]
        *inputs, taken, logp, values, rewards, dones = (torch.stack(column) for column in zip(*rows, strict=True))
        advantages = advantages_of(rewards, dones, torch.cat([values, last[None]]), options)
        flat = [x.flatten(0, 1) for x in (*inputs, taken, logp, advantages, advantages + values)]
        for _ in range(options.epochs):
            for part in torch.randperm(batch).chunk(options.minibatches):
                scene, question, taken, old, advantage, target = (column[part] for column in flat)
                choices, value = policy(scene, question)
                ratio = (choices.log_prob(taken) - old).exp()
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                clipped = ratio.clamp(1 - options.clip, 1 + options.clip)
                gain = torch.minimum(ratio * advantage, clipped * advantage).mean()
                value_loss = (value - target).pow(2).mean()
                loss = -gain + options.value * value_loss - options.entropy * choices.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(policy.parameters(), options.max_grad_norm)
                optimizer.step()
        curve.append(((update + 1) * batch, float(rewards.mean())))
        if update % 10 == 9 or update == updates - 1:
            recent = [score for _, score in curve[-10:]]
            print(f"{curve[-1][0]:>7} crops: mean score {sum(recent) / len(recent):.3f}", flush=True)
    envs.close()
    return curve


if __name__ == "__main__":
    train(parse(Options, sys.argv[1:], "cleanrl_ppo.py"))
