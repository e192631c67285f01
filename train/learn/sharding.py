"""Modules and optimizers of a run, and how processes share weights out (FSDP2)."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import KwargsHandler
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy


@dataclass(frozen=True)
class Layout:
    """How a launcher makes its processes hold the weights.

    Attributes:
        sharding: `TrainOptions.sharding` that asks for the same, or the name of a kind that the trainer does not have.
        replicas: Copies of the weights whose shards are spread over processes; 1 without `hsdp`.
    """

    sharding: str
    replicas: int = 1


def layout_of(accelerator: Accelerator) -> Layout:
    """Return how the processes hold the weights."""
    kind = accelerator.distributed_type.value
    if kind == "NO" or kind.startswith("MULTI_"):
        return Layout("none")
    if not accelerator.is_fsdp2:
        return Layout("FSDP, version 1" if kind == "FSDP" else kind)
    sizes = accelerator.parallelism_config
    replicas = sizes.dp_replicate_size if sizes else 1
    if isinstance(accelerator.state.fsdp_plugin.cpu_offload, CPUOffloadPolicy):
        return Layout("fsdp2-offload", replicas)
    return Layout("hsdp" if replicas > 1 else "fsdp2", replicas)


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
    accelerator.gradient_accumulation_steps = 1  # a launcher's number would divide every gradient
    if accelerator.is_fsdp2:
        plugin = accelerator.state.fsdp_plugin
        plugin.cpu_ram_efficient_loading = True  # see `reads_weights`
        if isinstance(plugin.cpu_offload, CPUOffloadPolicy) and accelerator.device.type == "cpu":
            plugin.cpu_offload = CPUOffloadPolicy(pin_memory=False)  # pinned for a GPU
        if accelerator.mixed_precision == "bf16":
            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
            plugin.mixed_precision_policy = policy
    asked = os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
    if asked and not accelerator.is_fsdp2 and accelerator.is_main_process:
        print(
            "The launch configuration asks for FSDP2, but Accelerate shards nothing on CPUs: every process holds all "
            "weights, gradients and moments. Start it on GPUs, or without --config_file.",
            file=sys.stderr,
        )
    return accelerator


@contextlib.contextmanager
def computing_in_fp32(accelerator: Accelerator) -> Iterator[None]:
    """Modules that are prepared inside compute in fp32, whatever the precision of the run.

    All accelerators of a process share one precision and one plugin for FSDP2.
    """
    accelerator.native_amp = False
    plugin = accelerator.state.fsdp_plugin if accelerator.is_fsdp2 else None
    policy = plugin.mixed_precision_policy if plugin else None
    if plugin:
        plugin.mixed_precision_policy = MixedPrecisionPolicy()
    try:
        yield
    finally:
        if plugin:
            plugin.mixed_precision_policy = policy


def reads_weights(accelerator: Accelerator) -> bool:
    """Return whether this process reads weights from disk; if they are sharded, the main process alone does.

    The others make their models on the meta device, and `prepare` sends them their shards: see `Policy.load`.
    """
    return accelerator.is_main_process or not accelerator.is_fsdp2


def reshard(module: torch.nn.Module) -> None:
    """Free the weights that FSDP2 keeps gathered after a forward pass for a backward pass that does not come.

    They are those outside the layers, such as the embedding table.
    """
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.reshard()


def prepare(accelerator: Accelerator, module: torch.nn.Module, trained: bool = True) -> Any:
    """Wrap a module for the processes and their devices; all of them have to call this.

    Weights that are sharded are sent from the main process one by one: no device holds them whole. Optimizers are made
    afterwards, from the parameters of the result.

    Args:
        accelerator: Processes and devices.
        module: On the CPU; if weights are sharded, on the meta device in the processes that have read none.
        trained: Whether it gets gradients; if not, whole copies need not be kept equal.
    """
    if not accelerator.is_fsdp2:
        return accelerator.prepare_model(module, evaluation_mode=not trained)
    # Not `Accelerator.prepare`, which finds the weights of an optimizer by their addresses: on meta they have none.
    from accelerate.utils.fsdp_utils import fsdp2_prepare_model

    for name, buffer in module.named_buffers(remove_duplicate=False):
        value = torch.empty_like(buffer, device=accelerator.device)
        value = value if buffer.is_meta else value.copy_(buffer)
        dist.broadcast(value, src=0)
        owner, _, own = name.rpartition(".")
        setattr(module.get_submodule(owner), own, value)
    return fsdp2_prepare_model(accelerator, module)
