"""The policy's weights as engines and checkpoints see them: whole, under the names of the checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions


def is_sharded(model: Any) -> bool:
    """Whether this process holds only a part of the weights."""
    return any(hasattr(p, "full_tensor") for p in model.parameters())


def whole(tensor: Any) -> torch.Tensor:
    """Return the whole tensor of one that FSDP2 has sharded; all processes have to take part.

    Shards that are offloaded to CPU memory are gathered on the devices.
    """
    tensor = tensor.detach()
    return tensor.to(tensor.device_mesh.device_type).full_tensor() if hasattr(tensor, "full_tensor") else tensor


def copied(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copy tensors to CPU memory at once: tied ones stay tied, sharded ones sharded."""
    staged = DefaultStager(StagingOptions(False, False, False, False)).stage(state)
    return cast(dict[str, torch.Tensor], staged)


def named_weights(model: Any, dtype: torch.dtype | None = None) -> Iterator[tuple[str, torch.Tensor]]:
    """Iterate over a model's weights under the names of its checkpoint: whole, with adapters merged.

    Gathering a weight is a step that all processes take: each has to iterate to the end.

    Args:
        model: The model.
        dtype: Type of the result; None keeps each weight's.
    """
    modules = dict(model.named_modules())
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            continue
        layer, adapted, rest = name.rpartition(".base_layer.")
        weight = whole(parameter)
        if adapted and rest == "weight":
            weight = weight + whole(modules[layer].get_delta_weight("default"))
        yield (f"{layer}.{rest}" if adapted else name), weight.to(dtype or weight.dtype)


def weight_dtype(name: str, device: torch.device | str) -> torch.dtype:
    """Return the type of `VllmOptions.dtype` for a trainer on a device."""
    if name == "auto":
        name = "float32" if torch.device(device).type == "cpu" else "bfloat16"
    return getattr(torch, name)
