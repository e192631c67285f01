"""Episodes of a saved model, in batches sampled by one of the engines."""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Iterable
from itertools import islice
from typing import Any

import gymnasium as gym

from codev_env.trajectory import Trajectory
from codev_eval.bench.runner import Describe, Failure, Key, keys, no_meta

MAX_LENGTH = 32768
"""Longest episode, in tokens, for models that take so many; a longer one is cut off between turns."""
USUAL_TURN = 2048
"""Tokens per turn up to which `MAX_LENGTH` holds; more are added to it, because an episode is cut off where a whole
turn does not fit, and one of 16 384 tokens would leave no room for images."""


def longest_episode(max_tokens: int, positions: int = 0) -> int:
    """Return the longest episode, in tokens.

    Args:
        max_tokens: Tokens per turn.
        positions: Tokens that the model takes; 0 for any number.
    """
    longest = MAX_LENGTH + max(0, max_tokens - USUAL_TURN)
    return min(longest, positions or longest)


class SavedModel:
    """A saved vision-language model that plays episodes.

    Args:
        path: Folder of the model, or its name on the hub.
        engine: `"hf"` or `"vllm"`.
        seed: Seeds sampling.
        temperature: Sampling temperature; 0 is greedy.
        max_tokens: Tokens per turn.
        max_pixels: Most pixels of an image that the model sees; `None` for the limit of its image processor.
        batch: Episodes side by side.
        workers: Threads that step environments.

    Raises:
        ConfigError: There is no model that sees images in `path`, it cannot be downloaded, or its image processor has
            no limit on pixels.
    """

    def __init__(
        self,
        path: str,
        *,
        engine: str = "hf",
        seed: int = 0,
        temperature: float = 0.0,
        max_tokens: int = 2048,
        max_pixels: int | None = None,
        batch: int = 32,
        workers: int = 2,
    ) -> None:
        import torch

        from codev_agents.engines import make_engine
        from codev_agents.engines.lean import import_transformers
        from codev_agents.engines.model_files import check_available
        from codev_agents.engines.options import VllmOptions

        import_transformers()
        check_available(path, f"--model {path}")  # transformers would try for half a minute
        from codev_agents.engines.policy import Policy
        from codev_agents.rollout.engine import Sampling
        from codev_agents.rollout.families import positions_of

        self.name = path
        self.batch, self.workers, self.seed = batch, workers, seed
        policy = Policy.load(path)
        if max_pixels is not None:
            policy.processor.limit_pixels(max_pixels)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        policy.model.to(device)
        self._processor = policy.processor
        self._longest = longest_episode(max_tokens, positions_of(policy.model.config))
        self._engine = make_engine(
            engine, policy.model, policy.processor, batch, seed, VllmOptions(exact_replay=True), self._longest, device
        )
        self._engine.sync(policy.model)
        self._sampling = Sampling(temperature, max_tokens)

    def play(
        self,
        make_env: Callable[[], gym.Env[Any, Any]],
        indices: Iterable[int],
        *,
        samples: int = 1,
        skip: Container[Key] = (),
        meta: Describe = no_meta,
    ) -> Generator[Trajectory | Failure]:
        """Play episodes of each task and yield the outcomes in order; arguments are those of `runner.play`."""
        from codev_agents.rollout.runner import RolloutRunner

        left = keys(indices, samples, skip)
        with RolloutRunner(
            make_env, self._processor, self.workers, self.batch, self._longest, name=self.name
        ) as runner:
            while wave := list(islice(left, self.batch)):
                # The samples are a function of the seed and of which episodes are in the batch.
                index, sample = wave[0]
                self._engine.seed(self.seed + 1_000_003 * sample + index)
                tasks, metas = [index for index, _ in wave], [meta(key) for key in wave]
                outcomes = runner.attempt(self._engine, tasks, self._sampling, metas)
                for key, outcome in zip(wave, outcomes, strict=True):
                    yield outcome if isinstance(outcome, Trajectory) else Failure.of(key, outcome)

    def guesses(self, make_env: Callable[[], gym.Env[Any, Any]], indices: Iterable[int]) -> list[bool]:
        """Return for each task whether the model, made to answer at once, begins with the right answer."""
        from codev_agents.rollout.runner import RolloutRunner

        left, right = iter(indices), list[bool]()
        with RolloutRunner(make_env, self._processor, self.workers, self.batch, self._longest) as runner:
            while wave := list(islice(left, self.batch)):
                right += runner.guesses(self._engine, wave, self._sampling.max_tokens)
        return right
