"""Checkpoints: written beside the old ones, complete or not at all, found again, pruned."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from codev_agents.engines.policy import Policy
from codev_env.errors import CodevError, ConfigError
from codev_train.learn.sharding import load_optimizer_state, optimizer_state

_NAME = re.compile(r"step-(\d+)")


class CheckpointError(CodevError, RuntimeError):
    """A checkpoint cannot be written or read."""


@contextmanager
def replace_folder(folder: Path) -> Iterator[Path]:
    """Give a scratch folder that takes the place of `folder` at the end, or disappears if anything fails.

    Raises:
        CheckpointError: The disk is full or the folder cannot be written; the earlier content is untouched.
    """
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        yield partial
        for path in partial.rglob("*"):
            if path.is_file():
                _flush(path)
        _remove(folder)
        partial.rename(folder)
        _flush(folder.parent)
    except Exception as error:
        shutil.rmtree(partial, ignore_errors=True)
        if _is_failed_write(error):
            raise CheckpointError(
                f"could not write {folder}: {error}. Nothing of it was kept and earlier checkpoints are untouched; "
                "free some disk space and continue with --resume."
            ) from error
        raise
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _is_failed_write(error: Exception) -> bool:
    """Distinguish a full disk from a defect: every writer reports one in its own way."""
    signs = ("os error", "No space left", "inline_container", "iostream error")  # tokenizers and torch.save
    return isinstance(error, OSError | SafetensorError) or any(sign in str(error) for sign in signs)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checkpoints(run: Path) -> list[Path]:
    """Return the complete checkpoints of a run, oldest first."""
    folder = run / "checkpoints"
    found = [p for p in folder.iterdir() if _NAME.fullmatch(p.name)] if folder.is_dir() else []
    return sorted(found, key=lambda p: int(p.name.removeprefix("step-")))


def save(run: Path, step: int, policy: Policy, optimizer: Any, keep: int, write: bool = True) -> Path:
    """Write the checkpoint after `step` updates, then remove all but the newest `keep`.

    A checkpoint holds the policy (loadable with `from_pretrained`), the optimizer, and the number of updates; the
    order of data and sampling are functions of seed and update, so nothing else is needed to continue. Weights and
    moments are whole, even if processes share them, and any number of processes can continue from them.

    Args:
        run: The run folder.
        step: Updates that are done.
        policy: The policy.
        optimizer: As Accelerate wraps it.
        keep: How many checkpoints stay.
        write: Whether this process writes. All processes call this, because sharded weights are gathered.
    """
    folder = run / "checkpoints" / f"step-{step:06d}"
    if not write:
        policy.save(None)
        optimizer_state(optimizer, keep=False)
        return folder
    with replace_folder(folder) as partial:
        policy.save(partial / "model")
        torch.save(optimizer_state(optimizer), partial / "optimizer.pt")
        (partial / "state.json").write_text(json.dumps({"step": step}))
    prune(run, keep)
    return folder


def prune(run: Path, keep: int) -> None:
    """Remove all checkpoints but the newest `keep`, and partial ones that a killed process left behind."""
    for old in checkpoints(run)[:-keep]:
        _remove(old)
    for torn in (run / "checkpoints").glob(".step-*"):
        shutil.rmtree(torn)


def _remove(folder: Path) -> None:
    """Remove a folder so that no half of it is ever seen under its name."""
    hidden = folder.with_name(f".{folder.name}.removed")
    shutil.rmtree(hidden, ignore_errors=True)  # of a process that was killed here
    if folder.exists():
        folder.rename(hidden)
        shutil.rmtree(hidden)


def last(run: Path) -> Path | None:
    """Return the newest checkpoint of a run; None if it was killed before the first was complete.

    Raises:
        ConfigError: There is no such run.
    """
    if not run.is_dir():
        raise ConfigError(f"--resume: there is no folder {run}.")
    return next(reversed(checkpoints(run)), None)


def load_optimizer(checkpoint: Path, optimizer: Any) -> int:
    """Load the optimizer's state; returns the number of updates done.

    Raises:
        CheckpointError: The files are broken or belong to another model.
    """
    step = read_step(checkpoint)
    try:
        state = torch.load(checkpoint / "optimizer.pt", weights_only=True, map_location="cpu")
        load_optimizer_state(optimizer, state)
    except _UNREADABLE as error:
        raise _broken(checkpoint, "optimizer.pt", error) from error
    return step


def read_step(checkpoint: Path) -> int:
    """Return the number of updates that are done; raises `CheckpointError` if the file is broken."""
    try:
        return int(json.loads((checkpoint / "state.json").read_text())["step"])
    except _UNREADABLE as error:
        raise _broken(checkpoint, "state.json", error) from error


_UNREADABLE = (OSError, EOFError, ValueError, LookupError, TypeError, RuntimeError, pickle.UnpicklingError)


def _broken(checkpoint: Path, name: str, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"{checkpoint} cannot be resumed from: {name} is broken or of another model ({type(error).__name__}: "
        f"{str(error)[:120]}). Remove the folder to go back to the checkpoint before."
    )
