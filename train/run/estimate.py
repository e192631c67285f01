"""Memory and time of a run, computed from the sizes of its model before anything is started. Pure functions.

Bytes and seconds are those of one process (one GPU). The assumptions are in `EstimateOptions` and beside
each function; what is allocated inside kernels, fragmentation and the CUDA context (some GiB) are not counted.
`benchmarks/memory.py` compares the bytes of an update with those of its tensors.
"""

from codev_train.run.footprint import (
    Memory,
    activation_bytes,
    cache_tokens,
    checkpoint_bytes,
    copied_bytes,
    engine_bytes,
    episodes_at_once,
    host_bytes,
    memory,
    optimizer_bytes,
    pixel_bytes,
    step_bytes,
    trained_parameters,
)
from codev_train.run.loads import (
    decoding_gpus,
    learned,
    longest_trajectory,
    looks,
    mean_trajectory,
    passes_per_step,
    sampled_tokens,
    tokens_per_pass,
)
from codev_train.run.pace import Seconds, push_bytes, seconds, update_flops

__all__ = [
    "Memory",
    "Seconds",
    "activation_bytes",
    "cache_tokens",
    "checkpoint_bytes",
    "copied_bytes",
    "decoding_gpus",
    "engine_bytes",
    "episodes_at_once",
    "host_bytes",
    "learned",
    "longest_trajectory",
    "looks",
    "mean_trajectory",
    "memory",
    "optimizer_bytes",
    "passes_per_step",
    "pixel_bytes",
    "push_bytes",
    "sampled_tokens",
    "seconds",
    "step_bytes",
    "tokens_per_pass",
    "trained_parameters",
    "update_flops",
]
