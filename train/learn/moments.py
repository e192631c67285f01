"""An optimizer's moments under the names of their weights, as a checkpoint keeps them: each process its own shards."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from codev_agents.engines.weights import is_sharded
from codev_train.learn.optimizer import parts

# A process without others writes and reads alone on purpose.
warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")

# `torch.distributed.checkpoint.state_dict` is not used: for weights without moments it takes an optimizer step with
# zero gradients, which counts as a step afterwards.


class OtherWeights(ValueError):
    """Saved moments are of weights that are not trained."""


def moments(model: torch.nn.Module, optimizer: Any) -> dict[str, torch.Tensor]:
    """Return the moments as `NAME OF THE WEIGHT.NAME OF THE MOMENT`; moments of 8 bits are unpacked.

    Args:
        model: The model whose weights are trained.
        optimizer: The optimizer; Accelerate may have wrapped it.
    """
    found = {}
    names: dict[torch.Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    for part in parts(optimizer):
        for parameter, state in part.state.items():
            for moment, value in state.items():
                if isinstance(value, torch.Tensor):
                    found[f"{names[parameter]}.{moment}"] = _unpacked(value)
    return found


def write_moments(folder: Path, state: dict[str, torch.Tensor], group: Any = None, alone: bool = True) -> None:
    """Write what `moments` returned; raises what went wrong in the first process that failed.

    Args:
        folder: A folder that all processes see.
        state: The moments, or a copy of them.
        group: The processes that write.
        alone: Whether this process writes everything.
    """
    try:
        dcp.save(state, storage_writer=dcp.FileSystemWriter(folder), process_group=group, no_dist=alone)
    except CheckpointException as error:
        raise _cause(error) from error


def load_moments(folder: Path, model: torch.nn.Module, optimizer: Any) -> None:
    """Load moments that any number of processes have written; each process reads the parts that it needs.

    Raises:
        OtherWeights: They are of weights that are not trained.
        ValueError: They are of another model.
    """
    reader = dcp.FileSystemReader(folder)
    named = dict(model.named_parameters())
    owners = {p: part for part in parts(optimizer) for group in part.param_groups for p in group["params"]}
    targets: dict[str, torch.Tensor] = {}
    for key, entry in reader.read_metadata().state_dict_metadata.items():
        name = key.rpartition(".")[0]
        parameter = named.get(name)
        if parameter is None or parameter not in owners or not isinstance(entry, TensorStorageMetadata):
            raise OtherWeights(f"{key} is of a weight that is not trained")
        dtype = entry.properties.dtype
        if not entry.size:
            targets[key] = torch.empty((), dtype=dtype)
        elif entry.size == parameter.shape:
            targets[key] = torch.empty_like(parameter, dtype=dtype, requires_grad=False)
        else:
            raise ValueError(f"{key} has the shape {tuple(entry.size)}, the weight {tuple(parameter.shape)}")
    try:
        dcp.load(targets, storage_reader=reader, no_dist=not is_sharded(model))
    except CheckpointException as error:
        raise _cause(error) from error
    for key, value in targets.items():
        name, _, moment = key.rpartition(".")
        part = owners[named[name]]
        part.state[named[name]][moment] = _packed(part, named[name], moment, value)


def _cause(error: CheckpointException) -> BaseException:
    return next(iter(error.failures.values()))[0]


def _local(value: torch.Tensor) -> torch.Tensor:
    return value.to_local() if isinstance(value, DTensor) else value


def _unpacked(value: torch.Tensor) -> torch.Tensor:
    """Return a moment in a type that can be cut anywhere: 8 bits share a scale with their neighbours."""
    own = _local(value)
    if not is_traceable_wrapper_subclass(own):
        return value
    own = own.dequantize()
    if not isinstance(value, DTensor):
        return own
    mesh, placements = value.device_mesh, value.placements
    return DTensor.from_local(own, mesh, placements, run_check=False, shape=value.shape, stride=value.stride())


def _packed(part: Any, parameter: torch.Tensor, moment: str, value: torch.Tensor) -> torch.Tensor:
    """Return a moment in the type that the optimizer keeps it in."""
    if not value.ndim:  # the number of steps, which a fused optimizer reads where the weights are
        return value.to(parameter.device) if part.defaults.get("fused") else value
    if type(part).__module__.partition(".")[0] != "torchao":
        return value
    packed = part._new_buffer(parameter, moment == "exp_avg")
    _local(packed).copy_(_local(value))
    return packed
