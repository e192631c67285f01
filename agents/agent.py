"""The agent protocol: an agent sees an observation and writes text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import gymnasium as gym

from codev_env.errors import AgentError as AgentError
from codev_env.errors import ContextFull as ContextFull
from codev_env.types import Observation


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

    def act(self, observation: Observation) -> str:
        """Answer an observation `{"text": str, "images": tuple of uint8 HxWx3 arrays}` with the text of one turn."""
        ...


@runtime_checkable
class MeteredAgent(Agent, Protocol):
    """An agent that counts what an episode costs.

    Attributes:
        meta: JSON-able counts of the last episode, such as token usage.
    """

    meta: Mapping[str, Any]
