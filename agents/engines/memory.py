"""GPU memory between the trainer and an engine in the same process."""

from __future__ import annotations

import gc
import logging

import torch

_LOG = logging.getLogger(__name__)


def release(purpose: str) -> dict[str, float]:
    """Return the blocks that PyTorch has cached to the GPU, so that another allocator can map them.

    Args:
        purpose: Names the use of the memory, in the log and in the result.

    Returns:
        The MiB that PyTorch reserves before and after it, `memory/reserved_before_PURPOSE` and
        `memory/reserved_at_PURPOSE`.
    """
    before = _reserved_mib()
    gc.collect()
    torch.cuda.empty_cache()
    after = _reserved_mib()
    free = torch.cuda.mem_get_info()[0] / 2**20
    _LOG.info("%s: PyTorch reserves %.0f MiB, %.0f before; %.0f MiB are free", purpose, after, before, free)
    return {f"memory/reserved_before_{purpose}": before, f"memory/reserved_at_{purpose}": after}


def _reserved_mib() -> float:
    return torch.cuda.memory_reserved() / 2**20
