"""The requests that were sent to a model behind a server, their tokens and cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

COUNTS = ("requests", "prompt_tokens", "completion_tokens", "truncated_turns")
"""Counts in an agent's `meta`."""


@dataclass(frozen=True)
class Usage:
    """Requests, tokens and cost; falsy where nothing was sent.

    Attributes:
        requests: Requests sent, retries too.
        prompt_tokens: As the server reports them, as are `completion_tokens`.
        completion_tokens: Tokens of the replies.
        cost: In the currency of the prices; 0 without prices.
    """

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.requests + other.requests,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cost + other.cost,
        )

    def __bool__(self) -> bool:
        return self.requests > 0


@dataclass(frozen=True)
class EpisodeUsage:
    """The requests of one episode or several: of the agent, the judge and the scorer.

    Attributes:
        agent: `COUNTS` of the agent.
        judge: Requests of the judge.
        scorer: Requests of the scorer.
    """

    agent: Mapping[str, int] = field(default_factory=lambda: counts_of({}))
    judge: Usage = Usage()
    scorer: Usage = Usage()

    def __add__(self, other: EpisodeUsage) -> EpisodeUsage:
        agent = {name: self.agent[name] + other.agent[name] for name in COUNTS}
        return EpisodeUsage(agent, self.judge + other.judge, self.scorer + other.scorer)

    def __bool__(self) -> bool:
        return any(self.agent.values()) or bool(self.judge) or bool(self.scorer)


def counts_of(meta: Mapping[str, Any]) -> dict[str, int]:
    """Return `COUNTS` from the `meta` of an agent; 0 for those that it does not have."""
    return {name: int(meta.get(name, 0)) for name in COUNTS}
