"""SkyRL: a `skyrl_gym` environment for its vision-language generator (`vision_language_generator=true`).

SkyRL makes an environment per trajectory with `env_config` (the same for all) and `extras` (the columns of the data
set's row), appends the messages it returns to the conversation, and puts each step's reward on that step's last token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from codev_env.adapters.episodes import EpisodeRunner
from codev_env.adapters.libraries import library_of
from codev_env.messages import content_parts, restore_stop
from codev_env.types import Observation

with library_of("skyrl"):
    import skyrl_gym
    from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

ENV_CLASS = "codev"
"""The name in the data set's `env_class` column."""


class CodeVSkyRLEnv(BaseTextEnv):
    """An episode as messages of the OpenAI API, images as data URLs.

    Args:
        env_config: `{"env": id, ...}` and arguments of the environment.
        extras: The row. `index` or `task_id` names the task, at the top or in `extra_info`; `max_turns`, which the
            generator adds, is the environment's.
    """

    defaults: ClassVar[Mapping[str, Any]] = {}
    """The `env_config` that `register` was given."""

    def __init__(self, env_config: Mapping[str, Any] | None = None, extras: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        extras = dict(extras or {})
        options = {"max_turns": int(extras.get("max_turns", 6)), **self.defaults, **dict(env_config or {})}
        row = {**(extras.get("extra_info") or {}), **extras}
        self._task = {name: row[name] for name in ("index", "task_id") if row.get(name) is not None}
        self._player = EpisodeRunner(options.pop("env", "CodeV-VStar-v0"), **options)
        self.max_turns = self._player.base.max_turns

    def init(self, prompt: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Start the episode; the row's prompt is replaced by the environment's system prompt and first observation."""
        messages = [{"role": "system", "content": self._player.base.system_prompt}]
        return messages + self._message(self._player.reset(**self._task)), {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Take one turn of the model."""
        observation = self._player.step(restore_stop(action, self._player.base.dialect.stop))
        self.turns = self._player.turns
        return BaseTextEnvStepOutput(
            observations=[] if self._player.done else self._message(observation),
            reward=self._player.turn_reward,
            done=self._player.done,
            metadata=dict(self._player.info),
        )

    def get_metrics(self) -> dict[str, Any]:
        """Return the episode's numbers, which SkyRL averages."""
        return self._player.summary()

    def close(self) -> None:
        """Give the environment back."""
        self._player.close()

    def _message(self, observation: Observation) -> list[dict[str, Any]]:
        return [{"role": "user", "content": content_parts(**observation)}]


def register(name: str = ENV_CLASS, **env_config: Any) -> None:
    """Register with `skyrl_gym`, in each process that makes environments.

    Args:
        name: The name in the data set's `env_class` column.
        env_config: As for `CodeVSkyRLEnv`, for all episodes.
    """
    if name not in skyrl_gym.envs.registration.registry:
        # A class of its own: the generator passes an `env_config` of its own, which replaces registered arguments.
        skyrl_gym.register(
            id=name, entry_point=type(CodeVSkyRLEnv.__name__, (CodeVSkyRLEnv,), {"defaults": env_config})
        )


def rows(indices: Iterable[int], name: str = ENV_CLASS) -> list[dict[str, Any]]:
    """Return rows for SkyRL's Parquet data set, one per task.

    Args:
        indices: Which tasks.
        name: As given to `register`.
    """
    prompt = [{"role": "user", "content": "The environment asks."}]
    return [{"prompt": prompt, "env_class": name, "extra_info": {"index": index}} for index in indices]
