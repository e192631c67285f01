"""The requests that were sent to a model behind a server, their tokens and cost."""

from __future__ import annotations

from dataclasses import dataclass


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
