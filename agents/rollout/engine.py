"""The engine protocol: completions for prompts of token ids and images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from codev_agents.rollout.tokens import PixelBlock
from codev_env.errors import CodevError


class EngineError(CodevError, RuntimeError):
    """An engine cannot sample; the message says what to do."""


@dataclass(frozen=True, eq=False)
class Prompt:
    """Token ids up to the start of the completion, with the images whose tokens are among them."""

    ids: Sequence[int]
    images: Sequence[PixelBlock] = ()


@dataclass(frozen=True)
class Sampling:
    """How to sample.

    Attributes:
        temperature: 0 is greedy.
        max_tokens: Longest completion.
        stop: Strings that end a completion; they stay part of it.
    """

    temperature: float = 1.0
    max_tokens: int = 512
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Completion:
    """Sampled ids with their log-probabilities under the distribution that was sampled from.

    Attributes:
        ids: Sampled ids, with the end-of-turn token if it was sampled.
        logprobs: Natural logarithms, one per id.
        prompt_ids: The prompt ids that the engine used; rollouts compare them with their own.
        finish: `"stop"` (a stop string or the end-of-turn token) or `"length"`.
        versions: For each id the number of updates of the weights that sampled it; empty where these
            are always the newest, because nothing is sampled while the model is trained.
    """

    ids: list[int]
    logprobs: list[float]
    prompt_ids: Sequence[int] = field(repr=False)
    finish: Literal["stop", "length"] = "stop"
    versions: Sequence[int] = field(default=(), repr=False)


class Engine(Protocol):
    """Samples from the policy."""

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Completion]:
        """Sample one completion per prompt; the same `Prompt` object may occur several times."""
        ...

    def seed(self, seed: int) -> None:
        """Make the next samples a function of `seed`."""
        ...

    def sleep(self) -> None:
        """Give memory back to the trainer until the next `sync`."""
        ...

    def sync(self, model: Any) -> dict[str, float]:
        """Load the weights of `model`, and be ready to sample from them; returns numbers for the history."""
        ...


@runtime_checkable
class StagedEngine(Engine, Protocol):
    """Can load weights while the next ones are trained."""

    def stage(self, model: Any) -> Callable[[], dict[str, float]]:
        """Copy the weights of `model`; returns what `sync` has left to do, for another thread, one at a time."""
        ...


@runtime_checkable
class ReportingEngine(Engine, Protocol):
    """Has numbers for the history at any time."""

    def numbers(self) -> dict[str, float]:
        """Return them as they are now."""
        ...


@runtime_checkable
class ClosingEngine(Engine, Protocol):
    """Leaves something behind that others use."""

    def close(self) -> None:
        """Leave it as it was found; the engine cannot be used any more."""
        ...


@runtime_checkable
class AsyncEngine(Engine, Protocol):
    """Samples completions one by one: requests come and go while others are decoded."""

    def new_seed(self) -> int:
        """Return a number that depends on `seed` and on how many numbers were taken since."""
        ...

    async def complete(
        self, prompt: Prompt, sampling: Sampling, seed: int, decoding: AbstractContextManager[None]
    ) -> Completion:
        """Sample one completion; when cancelled, the engine drops it.

        Args:
            prompt: The prompt.
            sampling: How to sample.
            seed: Its own seed, if the engine repeats samples.
            decoding: Entered when the prompt is ready to be decoded, its images processed, and left at the end.
        """
        ...
