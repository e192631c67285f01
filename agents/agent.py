"""The agent protocol: an agent sees an observation and writes text."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import gymnasium as gym

from codev_env.errors import CodevError


class AgentError(CodevError, RuntimeError):
    """An agent cannot act, for example because its server is gone."""


@runtime_checkable
class Agent(Protocol):
    """Plays episodes, one at a time.

    Attributes:
        name: For logs and tables.
    """

    name: str

    def reset(self, env: gym.Env[Any, Any]) -> None:
        """Forget the last episode; called after `env.reset`, so `env.unwrapped.task` is the new task."""
        ...

    def act(self, observation: dict[str, Any]) -> str:
        """Answer an observation `{"text": str, "images": tuple of uint8 HxWx3 arrays}` with the text of one turn."""
        ...
