"""The assumptions of `codev train --dry-run`."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from codev_env.app.options import ValueRefused, option_class
from codev_train.run.ranges import Count, CountOrNone, Positive, PositiveShare


@option_class
class EstimateOptions:
    """Assumptions of `--dry-run` about machines and episodes; training reads none of these."""

    gpus: CountOrNone = 0
    """GPUs that train, one process each; 0 is the CPU of this machine."""
    gpu: Literal["rtx4090", "a100", "h100", "h200"] = "h200"
    """Kind of GPU."""
    shards: Count = 1
    """Processes that share one copy of weights, gradients and moments (FSDP, ZeRO-3)."""
    servers: CountOrNone = 0
    """GPUs of the `vllm-server`; 0 is as many as train."""
    trajectory: CountOrNone = 0
    """Tokens of a mean trajectory, half of the longest; 0 is half of `max_length`."""
    response: CountOrNone = 0
    """Sampled tokens of a mean trajectory; 0 is half of its text tokens."""
    images: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Share of the tokens that stand for images."""
    spread: Annotated[float, Field(ge=0)] = 0.7
    """Spread of the lengths of trajectories, in the simulated schedule: standard deviation of their logarithms."""
    mfu: PositiveShare = 0.3
    """Share of the GPU's peak that forward and backward passes reach."""
    decode: PositiveShare = 0.5
    """Share of the GPU's memory bandwidth that decoding reaches."""
    network: Positive = 25.0
    """Speed at which weights reach engines, in GB/s."""

    @model_validator(mode="after")
    def _shards_divide_the_processes(self) -> Self:
        if (processes := max(1, self.gpus)) % self.shards:
            raise ValueRefused("shards", self.shards, f"a divisor of the {processes} processes")
        return self
