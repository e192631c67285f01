"""In which type the policy's weights go to an engine that keeps a copy of its own."""

from __future__ import annotations

from typing import Any

import torch


def weight_dtype(name: str, model: Any) -> torch.dtype:
    """Return the type of `VllmOptions.dtype`."""
    if name == "auto":
        name = "float32" if model.device.type == "cpu" else "bfloat16"
    return getattr(torch, name)
