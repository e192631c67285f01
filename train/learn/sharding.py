"""Weights and optimizer states that processes share out (FSDP2): gathered one tensor at a time, and back."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import KwargsHandler
from torch.distributed.fsdp import MixedPrecisionPolicy


def make_accelerator(precision: str | None = None, handlers: Sequence[KwargsHandler] = ()) -> Accelerator:
    """Make the `Accelerator` of a run.

    Sharded weights are computed with in bf16, and their gradients are added up in fp32. Accelerate's own policy adds
    them up in bf16 and rounds log-probabilities to bf16 as well.

    Args:
        precision: "fp32" or "bf16"; None takes that of the `Accelerator` made before, or the launcher's.
        handlers: See `Accelerator`.
    """
    mixed = {"fp32": "no", None: None}.get(precision, precision)
    accelerator = Accelerator(mixed_precision=mixed, kwargs_handlers=list(handlers))
    if accelerator.is_fsdp2 and accelerator.mixed_precision == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        accelerator.state.fsdp_plugin.mixed_precision_policy = policy
    asked = os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
    if asked and not accelerator.is_fsdp2 and accelerator.is_main_process:
        print(
            "The launch configuration asks for FSDP2, but Accelerate shards nothing on CPUs: every process holds all "
            "weights, gradients and moments. Start it on GPUs, or without --config_file.",
            file=sys.stderr,
        )
    return accelerator


def prepare_frozen(accelerator: Accelerator, module: Any) -> Any:
    """Let Accelerate wrap a module that is not trained, with the same ways of sharing weights out."""
    if not accelerator.is_fsdp2:
        return accelerator.prepare_model(module, evaluation_mode=True)
    # `prepare` asks for an optimizer; and where only the main process reads weights, the others have none to keep.
    from accelerate.utils.fsdp_utils import fsdp2_prepare_model

    return fsdp2_prepare_model(accelerator, module)


def optimizer_state(optimizer: Any, keep: bool = True) -> dict[str, Any]:
    """Return the state of an optimizer as if one process had trained alone.

    Args:
        optimizer: As Accelerate wraps it; all processes have to call this.
        keep: Whether this process needs the result; it is empty otherwise.
    """
    return _map(optimizer.state_dict(), lambda value: _kept(value, keep))


def load_optimizer_state(optimizer: Any, state: dict[str, Any]) -> None:
    """Load a state that `optimizer_state` returned under any number of processes.

    Raises:
        ValueError: It is of another model or another optimizer.
    """
    optimizer.load_state_dict(_share_out(getattr(optimizer, "optimizer", optimizer), state))


def _map(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    if isinstance(value, dict):
        return {key: _map(part, change) for key, part in value.items()}
    if isinstance(value, list):
        return [_map(part, change) for part in value]
    return change(value) if isinstance(value, torch.Tensor) else value


def _kept(tensor: torch.Tensor, keep: bool) -> torch.Tensor | None:
    if not hasattr(tensor, "full_tensor"):
        return tensor
    full = tensor.full_tensor()
    return full.cpu() if keep else None


def _share_out(optimizer: Any, state: dict[str, Any]) -> dict[str, Any]:
    """Cut whole tensors down to this process's part of them."""
    if "parts" in state:
        if not hasattr(optimizer, "parts"):
            raise ValueError("the state of two optimizers in one")
        return {"parts": [_share_out(o, s) for o, s in zip(optimizer.parts, state["parts"], strict=True)]}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]

    def part(index: int, tensor: Any) -> Any:
        if not isinstance(tensor, torch.Tensor) or not tensor.ndim:
            return tensor
        parameter = parameters[index]
        if tensor.shape != parameter.shape:
            raise ValueError(f"moments of {tuple(tensor.shape)} for a weight of {tuple(parameter.shape)}")
        if not hasattr(parameter, "full_tensor"):
            return tensor
        from torch.distributed.tensor import distribute_tensor

        # Every process has read the whole tensor: it takes its own part of it, without communication.
        whole = tensor.to(parameter.device)
        return distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None)

    moments = {i: {name: part(i, value) for name, value in given.items()} for i, given in state["state"].items()}
    return state | {"state": moments}
