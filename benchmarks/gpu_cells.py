"""Time and memory of a measurement, for the parts of `gpu.py`."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

GIB = 2**30
Row = dict[str, Any]
Cell = tuple[str, Callable[[], Row]]
"""A name, and the measurement."""
CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"


class Missing(Exception):
    """A package or a device that a cell needs is missing."""


def synchronize() -> None:
    if CUDA:
        torch.cuda.synchronize()


def timed(run: Callable[[], Any], repeats: int) -> float:
    """Median seconds of a call, after one that is not counted."""
    run()
    seconds = []
    for _ in range(repeats):
        synchronize()
        started = time.perf_counter()
        run()
        synchronize()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def memory() -> Row:
    """Peak GiB of PyTorch's tensors and of its pool, and all that is in use on the GPU, the CUDA context included."""
    if not CUDA:
        return {}
    free, total = torch.cuda.mem_get_info()
    return {
        "allocated_gib": torch.cuda.max_memory_allocated() / GIB,
        "reserved_gib": torch.cuda.max_memory_reserved() / GIB,
        "used_gib": (total - free) / GIB,
    }


def clear() -> None:
    gc.collect()
    if CUDA:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
