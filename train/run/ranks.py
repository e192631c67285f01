"""The processes of a run together: parts of a number, sums over them, their times and GPU memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from accelerate import Accelerator


def part_of(total: int, accelerator: Accelerator) -> int:
    """Return this process's part of a number of things; the parts of all processes differ by one at most."""
    rank, processes = accelerator.process_index, accelerator.num_processes
    return total * (rank + 1) // processes - total * rank // processes


def summed(values: Sequence[float], accelerator: Accelerator) -> list[float]:
    """Return the sums of numbers over processes; all processes call this with as many."""
    if accelerator.num_processes == 1:
        return list(values)
    return accelerator.reduce(torch.tensor(values, dtype=torch.float64, device=accelerator.device)).tolist()


def spread(values: Mapping[str, float], accelerator: Accelerator) -> dict[str, float]:
    """Return the least and the greatest value of any process, `ranks/NAME_min` and `ranks/NAME_max`.

    Args:
        values: Of this process, by name; all processes call this with the same names.
        accelerator: The processes.

    Returns:
        Empty with one process.
    """
    if accelerator.num_processes == 1:
        return {}
    own = torch.tensor([list(values.values())], device=accelerator.device)
    least, greatest = accelerator.gather(own).aminmax(dim=0)
    pairs = zip(values, least.tolist(), greatest.tolist(), strict=True)
    return {key: value for name, a, b in pairs for key, value in ((f"ranks/{name}_min", a), (f"ranks/{name}_max", b))}


def begin_peak(device: torch.device) -> None:
    """Measure the greatest memory from here on; without a GPU, nothing."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory(accelerator: Accelerator) -> dict[str, float]:
    """Return the most that PyTorch allocated and reserved since `begin_peak` on any process's GPU, in MiB.

    All processes call this. Memory of vLLM that PyTorch does not manage is not counted; without a GPU it is empty.
    """
    device = accelerator.device
    if device.type != "cuda":
        return {}
    peaks = [[torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)]]
    own = torch.tensor(peaks, device=device, dtype=torch.float64)
    allocated, reserved = (accelerator.gather(own).amax(dim=0) / 2**20).tolist()
    return {"memory/peak_allocated": allocated, "memory/peak_reserved": reserved}
