"""The policy's weights on their way to an engine that keeps a copy of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


def weight_dtype(name: str, model: Any) -> torch.dtype:
    """Return the type of `VllmOptions.dtype`."""
    if name == "auto":
        name = "float32" if model.device.type == "cpu" else "bfloat16"
    return getattr(torch, name)


def named_weights(model: Any, dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
    """Iterate over a model's weights under the names of its checkpoint: whole where they are sharded, adapters merged.

    Where processes share a model, gathering a weight is a step that all of them take: each has to iterate to the end.
    """
    modules = dict(model.named_modules())
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            continue
        weight = _whole(parameter)
        layer, adapted, rest = name.rpartition(".base_layer.")
        if adapted and rest == "weight":
            weight = weight + _whole(modules[layer].get_delta_weight("default"))
        yield (f"{layer}.{rest}" if adapted else name), weight.to(dtype)


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
