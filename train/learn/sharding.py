"""Modules whose weights processes share out (FSDP2)."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
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


def place(accelerator: Accelerator, model: Any) -> Any:
    """Move a model that Accelerate is going to wrap to this process's device; one to be sharded stays where it is.

    Accelerate sends a model that it shards to the devices weight by weight: none of them holds it whole.
    """
    return model if accelerator.is_fsdp2 else model.to(accelerator.device)


def prepare_frozen(accelerator: Accelerator, module: Any) -> Any:
    """Let Accelerate wrap a module that is not trained, with the same ways of sharing weights out."""
    if not accelerator.is_fsdp2:
        return accelerator.prepare_model(module, evaluation_mode=True)
    # `prepare` asks for an optimizer; and where only the main process reads weights, the others have none to keep.
    from accelerate.utils.fsdp_utils import fsdp2_prepare_model

    return fsdp2_prepare_model(accelerator, module)
