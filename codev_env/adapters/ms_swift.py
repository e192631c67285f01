"""ms-swift: an `Env` for its `gym_scheduler`, in `swift rollout` as well as beside the trainer.

ms-swift makes an environment per trajectory with the row's `env_config`, puts the observations it returns into the
conversation, images as parts of a message, and takes the sum of the steps' rewards as the reward of the trajectory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from codev_env.adapters.episodes import EpisodeRunner
from codev_env.adapters.libraries import library_of
from codev_env.messages import content_parts, restore_stop

if TYPE_CHECKING:
    Env: Any
    envs: dict[str, Any]
else:
    with library_of("ms_swift"):
        from swift.rollout.gym_env import Env, envs

NAME = "codev"
"""The name in the data set's `env_config` column."""


class CodeVSwiftEnv(Env):
    """An episode as messages of the OpenAI API, images as data URLs.

    Args:
        env_config: The row's: `{"name": NAME, "index": 3}` or a `task_id`, and arguments of the environment, `env` its
            id. Without a task one is drawn, another for each rollout.
    """

    defaults: ClassVar[Mapping[str, Any]] = {}
    """The arguments that `register` was given."""

    def __init__(self, env_config: Mapping[str, Any]) -> None:
        super().__init__(env_config)
        options = {**self.defaults, **{name: value for name, value in env_config.items() if value is not None}}
        options.pop("name", None)
        self._task = {name: options.pop(name) for name in ("index", "task_id") if name in options}
        self._player = EpisodeRunner(options.pop("env", "CodeV-VStar-v0"), **options)

    async def reset(self, config: Any) -> tuple[list[dict[str, Any]], dict[str, Any], str]:
        """Start the episode; returns the first observation, the info, and the system prompt.

        Args:
            config: The row's request; its messages are replaced.
        """
        observation = await asyncio.to_thread(self._player.reset, **self._task)
        return content_parts(**observation), dict(self._player.info), self._player.base.system_prompt

    async def step(self, action: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], float, bool, dict[str, Any]]:
        """Take one turn of the model.

        Args:
            action: The conversation so far; the turn is its last message.
        """
        player = self._player
        turn = restore_stop(action[-1]["content"], player.base.dialect.stop)
        observation = await asyncio.to_thread(player.step, turn)
        info = {**player.info, **({"metrics": player.summary()} if player.done else {})}
        return content_parts(**observation), player.turn_reward, player.done, info

    async def close(self) -> None:
        """Give the environment back."""
        self._player.close()


def register(name: str = NAME, **env_config: Any) -> None:
    """Register with ms-swift, in the file that `--external_plugins` names.

    Args:
        name: The name in the data set's `env_config` column.
        env_config: As for `CodeVSwiftEnv`, for all episodes; the row's come first.
    """
    envs[name] = type(CodeVSwiftEnv.__name__, (CodeVSwiftEnv,), {"defaults": env_config})


def rows(indices: Iterable[int], name: str = NAME) -> list[dict[str, Any]]:
    """Return rows for ms-swift's data set, one per task.

    Args:
        indices: Which tasks.
        name: As given to `register`.
    """
    prompt = [{"role": "user", "content": "The environment asks."}]
    return [{"messages": prompt, "env_config": {"name": name, "index": index}} for index in indices]
