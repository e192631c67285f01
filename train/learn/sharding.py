"""Weights and optimizer states that processes share out (FSDP2, DeepSpeed): gathered one tensor at a time, and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType

from codev_env.errors import ConfigError

if TYPE_CHECKING:
    from codev_train.run.options import OptimizerOptions

_MOMENTS = ("exp_avg", "exp_avg_sq")


def prepare(accelerator: Accelerator, module: Any, optimizer: Any, options: OptimizerOptions) -> tuple[Any, Any]:
    """Let Accelerate wrap module and optimizer, as `accelerate launch` is configured.

    Args:
        accelerator: Processes and devices.
        module: The `Scorer`.
        optimizer: Over its weights.
        options: Options of the optimizer.

    Returns:
        Both as Accelerate wraps them.

    Raises:
        ConfigError: An optimizer that DeepSpeed cannot share out.
    """
    if accelerator.distributed_type == DistributedType.DEEPSPEED:
        if options.name != "adamw":
            raise ConfigError(
                f"optimizer.name is {options.name!r}, but DeepSpeed shares out 'adamw' only: use it, or FSDP2."
            )
        # DeepSpeed clips in its own step; passes are accumulated by `Updater`, so their size says nothing to it.
        config = accelerator.state.deepspeed_plugin.deepspeed_config
        config |= {"gradient_clipping": options.grad_clip, "train_micro_batch_size_per_gpu": 1}
        config["train_batch_size"] = accelerator.num_processes
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        groups = optimizer.state_dict()["param_groups"]
        module, optimizer = accelerator.prepare(module, optimizer)
        optimizer.zero = _Zero(optimizer.optimizer, parameters, groups)
        return module, optimizer
    return accelerator.prepare(module, optimizer)


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
    if hasattr(optimizer, "zero"):
        return optimizer.zero.state(keep)
    return _map(optimizer.state_dict(), lambda value: _kept(value, keep))


def load_optimizer_state(optimizer: Any, state: dict[str, Any]) -> None:
    """Load a state that `optimizer_state` returned under any number of processes.

    Raises:
        ValueError: It is of another model or another optimizer.
    """
    if hasattr(optimizer, "zero"):
        optimizer.zero.load(state)
    else:
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


@dataclass(frozen=True, eq=False)
class _Zero:
    """DeepSpeed's optimizer, whose moments lie flattened and in parts, with the parameters in AdamW's order."""

    optimizer: Any
    parameters: list[Any]
    groups: list[dict[str, Any]]

    def state(self, keep: bool) -> dict[str, Any]:
        """Return the state that AdamW would have; all processes have to take part."""
        from deepspeed.utils import safe_get_full_optimizer_state

        moments: dict[int, dict[str, Any]] = {}
        steps = self._steps()
        self._link()
        for index, parameter in enumerate(self.parameters if steps else ()):
            found = {name: safe_get_full_optimizer_state(parameter, name) for name in _MOMENTS}
            if keep:
                moments[index] = {name: value.cpu() for name, value in found.items()} | {"step": torch.tensor(steps)}
        return {"state": moments, "param_groups": self.groups}

    def load(self, state: dict[str, Any]) -> None:
        """Take over the state of an AdamW; raises `ValueError` if it is of another model."""
        from deepspeed.utils import safe_set_full_optimizer_state

        for flat in self._flats():
            step = state["state"][0]["step"].clone()
            self.optimizer.optimizer.state[flat] |= {"step": step} | {n: torch.zeros_like(flat) for n in _MOMENTS}
        self._link()
        for index, (parameter, given) in enumerate(zip(self.parameters, state["state"].values(), strict=True)):
            shape = getattr(parameter, "ds_shape", parameter.shape)
            for name in _MOMENTS:
                if given[name].shape != shape:
                    raise ValueError(f"{name} of {tuple(given[name].shape)} for weight {index} of {tuple(shape)}")
                safe_set_full_optimizer_state(parameter, given[name].to(parameter.device), name)

    def _flats(self) -> list[torch.Tensor]:
        """Return this process's part of each group of weights."""
        two = getattr(self.optimizer, "single_partition_of_fp32_groups", None)
        return two or self.optimizer.fp32_partitioned_groups_flat

    def _link(self) -> None:
        """Let ZeRO-2 find the moments of all groups: by itself it looks after the first step of the first group."""
        if hasattr(self.optimizer, "_lazy_init_hp_params_optimizer_state"):
            self.optimizer._hp_optimizer_states_linked = False
            self.optimizer._lazy_init_hp_params_optimizer_state()

    def _steps(self) -> float:
        states = self.optimizer.optimizer.state.values()
        return max((float(own["step"]) for own in states if "step" in own), default=0.0)
