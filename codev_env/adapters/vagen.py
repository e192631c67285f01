"""VAGEN: an image environment (`GymImageEnv`) for its agent loop.

VAGEN makes environments by import path, with the `config` of the data set's environment specification, and calls them
from one event loop: what blocks runs in a thread. Use its concatenated mode, since a turn refers to those before it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from codev_env.adapters.episodes import EpisodeRunner
from codev_env.messages import restore_stop, to_pil
from codev_env.types import IMAGE_PLACEHOLDER, Observation

if TYPE_CHECKING:
    GymImageEnv: Any
else:
    try:
        from vagen.envs.gym_image_env import GymImageEnv
    except ImportError:  # VAGEN asks for the methods, not for the base class
        GymImageEnv = object


class CodeVImageEnv(GymImageEnv):
    """One trajectory at a time.

    Args:
        env_config: `{"env": id, ...}` and arguments of the environment.
    """

    def __init__(self, env_config: dict[str, Any]) -> None:
        self.config = dict(env_config)
        options = dict(env_config)
        self._player = EpisodeRunner(options.pop("env", "CodeV-VStar-v0"), **options)

    async def system_prompt(self) -> dict[str, Any]:
        """Return the environment's system prompt."""
        return {"obs_str": self._player.base.system_prompt}

    async def reset(self, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start an episode of the task that the seed draws, the same for all rollouts of a group."""
        return _observation(await asyncio.to_thread(self._player.reset, seed=seed)), dict(self._player.info)

    async def step(self, action_str: str) -> tuple[dict[str, Any], float, bool, dict[str, Any]]:
        """Take one turn of the model; `info["success"]` says whether the answer is right."""
        player = self._player
        observation = await asyncio.to_thread(player.step, restore_stop(action_str, player.base.dialect.stop))
        info = {**player.info, "success": bool(player.info["is_correct"])}
        if player.done:
            info["metrics"] = {"turn_metrics": {}, "traj_metrics": {**player.summary(), "success": info["success"]}}
        return _observation(observation), player.turn_reward, player.done, info

    async def close(self) -> None:
        """Give the environment back."""
        self._player.close()


def _observation(observation: Observation) -> dict[str, Any]:
    found: dict[str, Any] = {"obs_str": observation["text"]}
    if observation["images"]:
        found["multi_modal_input"] = {IMAGE_PLACEHOLDER: [to_pil(image) for image in observation["images"]]}
    return found
