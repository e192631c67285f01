"""Balance: trajectories shared out over processes by what they cost, and moved to the process that trains on them."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist
from accelerate import Accelerator

from codev_train.learn.packing import plan

T = TypeVar("T")
Passes = list[list[int]]
"""The trajectories of each pass, by number."""
CROSSOVER = 65536
"""Tokens of a trajectory whose attention costs as much as all else: weights of the decoder / (layers * width), 7B."""
VIEW = 0.4
"""Cost of seeing a token of an image beside that of a token: a tenth of the decoder's weights, four patches, 7B."""
PIECE = 2**28  # bytes that a process sends at once: as much again arrives


def cost(length: int) -> float:
    """Time of a trajectory relative to that of one token without attention.

    Per layer, matrix products take 2 operations per weight and token, causal attention 2 * width per pair of tokens.
    """
    return length + length**2 / CROSSOVER


def share_out(costs: Sequence[float], homes: Sequence[int], processes: int, most: int = 0) -> list[int]:
    """Assign trajectories to processes, the most expensive first.

    Each stays in its process while that is loaded below the mean, and goes to the least loaded process otherwise (LPT
    scheduling). No load exceeds the mean by more than (1 - 1/processes) of the greatest cost (Graham, 1969), if `most`
    leaves the choice.

    Args:
        costs: Of each trajectory.
        homes: Process that has each trajectory.
        processes: How many there are.
        most: Most trajectories per process; 0 for any number.

    Returns:
        The process of each trajectory.
    """
    mean, most = sum(costs) / processes, most or len(costs)
    loads, counts, chosen = [0.0] * processes, [0] * processes, [0] * len(costs)
    for row in sorted(range(len(costs)), key=lambda r: -costs[r]):
        process = homes[row]
        if counts[process] == most or loads[process] + costs[row] > mean:
            process = min((p for p in range(processes) if counts[p] < most), key=loads.__getitem__)
        loads[process] += costs[row]
        counts[process] += 1
        chosen[row] = process
    return chosen


def schedule(
    rows: Sequence[int],
    lengths: Sequence[int],
    homes: Sequence[int],
    processes: int,
    budget: int,
    micro_batch: int,
    scenes: Sequence[int] = (),
    views: Sequence[int] = (),
) -> list[Passes]:
    """Distribute trajectories over forward passes, as many in each process.

    With several processes the passes of each are even and run in the order of their costs, so that those that run at
    the same time are alike; the last ones of a process without enough trajectories are empty. Packed passes are made as
    even as possible, or with the trajectories of a scene together, whichever takes less time.

    Args:
        rows: Numbers of the trajectories.
        lengths: Tokens of all trajectories, by number.
        homes: Process of all trajectories, by number.
        processes: How many there are.
        budget: Most tokens of a packed pass; 0 for padded passes.
        micro_batch: Most trajectories of a padded pass.
        scenes: See `plan`; of all trajectories, by number. Used for packed passes.
        views: Tokens of the image that each trajectory begins with, by number; for `scenes` of several processes.

    Returns:
        For each process the trajectories of each of its passes.
    """
    rows = sorted(rows, key=lambda row: lengths[row])
    shares = [[row for row in rows if homes[row] == process] for process in range(processes)]
    sizes = [[lengths[row] for row in share] for share in shares]
    groups = [[scenes[row] for row in share] if scenes else [] for share in shares]
    if budget:
        least = [plan(own, budget, group if processes == 1 else ()) for own, group in zip(sizes, groups, strict=True)]
    else:
        least = [_cut(len(own), range(0, len(own) + micro_batch, micro_batch)) for own in sizes]
    if processes == 1:
        return [[[shares[0][i] for i in part] for part in least[0]]]
    count = max(map(len, least))

    def table(way: Iterable[Passes | None]) -> list[Passes]:
        found = []
        for share, parts, instead in zip(shares, way, least, strict=True):
            made = [[share[i] for i in part] for part in parts or instead]
            made += [[] for _ in range(count - len(made))]
            found.append(sorted(made, key=lambda part: -sum(cost(lengths[row]) for row in part)))
        return found

    if not budget:
        return table(_cut(len(own), [len(own) * i // max(count, 1) for i in range(count + 1)]) for own in sizes)
    even = table(level(own, budget, count) for own in sizes)
    if not (scenes and views):
        return even
    near = table(together(own, group, budget, count) for own, group in zip(sizes, groups, strict=True))
    return min(even, near, key=lambda made: _duration(made, lengths, scenes, views))


def _cut(count: int, ends: Sequence[int]) -> Passes:
    return [list(range(start, min(end, count))) for start, end in itertools.pairwise(ends)]


def together(lengths: Sequence[int], scenes: Sequence[int], budget: int, count: int) -> Passes | None:
    """Distribute over `count` passes of similar cost, those of a scene one after the other.

    No cost exceeds the mean by more than that of the most expensive trajectory.

    Args:
        lengths: Tokens of each trajectory.
        scenes: See `plan`.
        budget: Most tokens per pass; a longer trajectory gets a pass of its own.
        count: Number of passes.

    Returns:
        Numbers of the trajectories of each pass, or None if they do not fit.
    """
    order = sorted(range(len(lengths)), key=lambda row: (scenes[row], -lengths[row]))
    costs = [cost(lengths[row]) for row in order]
    total, passes = sum(costs), [list[int]() for _ in range(count)]
    for row, own, end in zip(order, costs, itertools.accumulate(costs), strict=True):
        passes[int((end - own / 2) / total * count)].append(row)
    fits = all(len(part) < 2 or sum(lengths[row] for row in part) <= budget for part in passes)
    return passes if fits else None


def _duration(table: Sequence[Passes], lengths: Sequence[int], scenes: Sequence[int], views: Sequence[int]) -> float:
    """Cost of a schedule: of passes that run at the same time the greatest counts, with the images that each sees."""

    def whole(part: Sequence[int]) -> float:
        seen = {scenes[row]: views[row] for row in part}
        return sum(cost(lengths[row]) for row in part) + VIEW * sum(seen.values())

    return sum(max(map(whole, at_once)) for at_once in zip(*table, strict=True))


def idle(lengths: Sequence[int], table: Sequence[Sequence[Sequence[int]]]) -> tuple[float, float]:
    """Measure a schedule.

    Returns:
        The share of passes without trajectories, and the share of the processes' time, by `cost`, in which they wait
        for the passes of others; NaN for no passes.
    """
    costs = np.array([[sum(cost(lengths[row]) for row in part) for part in made] for made in table])
    if not costs.size:
        return math.nan, math.nan
    return float((costs == 0).mean()), 1 - float(costs.mean(0).sum() / costs.max(0).sum())


def level(lengths: Sequence[int], budget: int, count: int) -> Passes | None:
    """Distribute trajectories over `count` passes of similar cost: the most expensive first, into the cheapest pass.

    Args:
        lengths: Tokens of each trajectory.
        budget: Most tokens per pass; a longer trajectory gets a pass of its own.
        count: Number of passes.

    Returns:
        Numbers of the trajectories of each pass, or None if they do not fit.
    """
    passes: list[list[int]] = [[] for _ in range(count)]
    tokens, costs = [0] * count, [0.0] * count
    for row in sorted(range(len(lengths)), key=lambda r: -lengths[r]):
        fitting = [i for i in range(count) if not passes[i] or tokens[i] + lengths[row] <= budget]
        if not fitting:
            return None
        place = min(fitting, key=costs.__getitem__)
        passes[place].append(row)
        tokens[place] += lengths[row]
        costs[place] += cost(lengths[row])
    return passes


def exchange(accelerator: Accelerator, parcels: Sequence[T]) -> list[T]:
    """Send one object to each process; tensors in it arrive as they were, on the CPU.

    Args:
        accelerator: Processes and devices.
        parcels: For each process the object that it gets.

    Returns:
        The objects that arrived, by sender; this process's own is not copied.
    """
    count, rank, device = accelerator.num_processes, accelerator.process_index, accelerator.device
    arrived = list(parcels)
    # In every round a process has one receiver and one sender: one parcel at a time is in memory as bytes.
    for shift in range(1, count):
        receiver, sender = (rank + shift) % count, (rank - shift) % count
        buffer = io.BytesIO()
        torch.save(parcels[receiver], buffer)
        out = torch.frombuffer(buffer.getbuffer(), dtype=torch.uint8)
        size = torch.zeros(1, dtype=torch.long, device=device)
        _swap(torch.tensor([len(out)], device=device), receiver, size, sender)
        into = torch.empty(int(size), dtype=torch.uint8)
        for start in range(0, max(len(out), len(into)), PIECE):
            part = torch.empty_like(into[start : start + PIECE], device=device)
            _swap(out[start : start + PIECE].to(device), receiver, part, sender)
            into[start : start + PIECE] = part
        arrived[sender] = torch.load(io.BytesIO(into.numpy().data), "cpu", weights_only=False)
    return arrived


def _swap(sent: torch.Tensor, receiver: int, received: torch.Tensor, sender: int) -> None:
    """Send a tensor and receive one, neither of which has to have elements."""
    operations = [dist.P2POp(dist.isend, sent, receiver)] if len(sent) else []
    operations += [dist.P2POp(dist.irecv, received, sender)] if len(received) else []
    for work in dist.batch_isend_irecv(operations) if operations else ():
        work.wait()
