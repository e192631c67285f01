"""Folders, disks, GPU memory and CPU threads of a run."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

import torch

from codev_env.app.check import Check, Status
from codev_env.errors import ConfigError
from codev_train.run.estimate import memory
from codev_train.run.options import TrainOptions
from codev_train.run.sizes import ModelSize

_GB = 1e9


def make_folder(out: Path) -> None:
    """Make the folder of all runs; raises `ConfigError` if that fails."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {out} cannot be made: {error.strerror}. Give another folder.") from error


def free_folder(wanted: Path) -> Path:
    """Return `wanted`, or the same with the first free number: an earlier run is never overwritten."""
    folder, number = wanted, 2
    while folder.exists():
        folder, number = wanted.with_name(f"{wanted.name}-{number}"), number + 1
    return folder


def existing(folder: Path) -> Path:
    """Return the nearest folder above, or this one, that exists."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    return place


def room_check(folder: Path, wanted: float, what: str, lacking: Status, advice: str) -> Check:
    """Compare the bytes wanted for something with those that are free on the disk of a folder.

    Args:
        folder: The folder; it need not exist.
        wanted: Bytes.
        what: What they are for.
        lacking: Status if there is less.
        advice: What to do then.
    """
    place = existing(folder)
    free = shutil.disk_usage(place).free
    detail = f"{free / _GB:.1f} GB free in {place}, {wanted / _GB:.1f} GB wanted for {what}"
    return (
        Check("machine", "disk", lacking, detail, advice) if free < wanted else Check("machine", "disk", "ok", detail)
    )


def held_bytes(run: Path) -> float:
    """Return the bytes that checkpoints and policy of a run take; they are replaced as it goes on."""
    files = (path for part in ("checkpoints", "model") for path in (run / part).rglob("*"))
    return float(sum(path.stat().st_size for path in files if path.is_file()))


def gpu_check(size: ModelSize, options: TrainOptions, processes: int) -> Check | None:
    """Compare what each process keeps during an update with its GPU; `None` without a GPU.

    Weights, gradients and moments are certain; activations, which are estimated, are left to `--dry-run`.

    Args:
        size: Size of the model.
        options: The options.
        processes: How many processes share each update.
    """
    if not torch.cuda.is_available():
        return None
    copies = {"none": processes, "hsdp": options.replicas}.get(options.sharding, 1)
    shards = max(1, processes // copies)
    assumed = dataclasses.replace(options.estimate, gpus=processes, shards=shards)
    parts = memory(size, dataclasses.replace(options, estimate=assumed))
    kept, room = parts.weights + parts.gradients + parts.optimizer + parts.reference, torch.cuda.mem_get_info()[1]
    detail = f"{kept / 1e9:.0f} GB of weights, gradients and moments in each process, its GPU has {room / 1e9:.0f} GB"
    if kept <= room:
        return Check("machine", "GPU memory", "ok", detail)
    advice = "share them with --sharding fsdp2 and more --processes, or train adapters: --lora.rank 64"
    return Check("machine", "GPU memory", "fail", detail, advice)


@contextlib.contextmanager
def cpu_threads(threads: int) -> Iterator[None]:
    """Use this many CPU threads inside; 0 leaves torch's choice."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
