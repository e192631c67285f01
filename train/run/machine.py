"""Folders and CPU threads of a run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import torch

from codev_env.errors import ConfigError


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


@contextlib.contextmanager
def cpu_threads(threads: int) -> Iterator[None]:
    """Use this many CPU threads inside; 0 leaves torch's choice."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
