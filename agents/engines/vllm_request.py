"""Requests to vLLM, in process or over HTTP: prompts, sampling parameters and seeds."""

from __future__ import annotations

from typing import Any

import numpy as np

from codev_agents.rollout.engine import Prompt, Sampling
from codev_agents.rollout.tokens import ChatProcessor

NEVER = -1e9
"""Bias of a banned id's logit: its probability becomes exactly 0."""


class Seeds:
    """A seed for each completion, from one seed and the number of completions before."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def take(self, count: int) -> list[int]:
        """Return the next `count` seeds."""
        return self._rng.integers(2**31, size=count).tolist()


def one_per_image(prompt: Prompt, image_id: int) -> list[int]:
    """Return a prompt's ids with one image token for each image instead of a run of them."""
    ids: list[int] = []
    images = iter(prompt.images)
    skip = 0
    for token in prompt.ids:
        if skip:
            skip -= 1
            continue
        ids.append(token)
        if token == image_id:
            skip = next(images).tokens - 1
    return ids


def sampling_params(sampling: Sampling, processor: ChatProcessor, seed: int | None) -> dict[str, Any]:
    """Return the arguments of vLLM's `SamplingParams` for one completion, without a seed of its own if that is None."""
    params = {
        "temperature": sampling.temperature,
        "max_tokens": sampling.max_tokens,
        "stop": list(sampling.stop),
        "include_stop_str_in_output": True,
        "stop_token_ids": sorted(processor.end_ids),
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "logit_bias": dict.fromkeys(processor.banned_ids, NEVER),
        "logprobs": 0,
    }
    return params if seed is None else params | {"seed": seed}
