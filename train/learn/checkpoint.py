"""Checkpoints: written beside the old ones while training goes on, complete or not at all, found again, pruned."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import pickle
import re
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError

from codev_agents.engines.policy import Policy, PolicyWeights
from codev_agents.engines.weights import copied, is_sharded
from codev_env.errors import CodevError, ConfigError
from codev_env.threads import in_own_thread
from codev_train.learn.moments import OtherWeights, load_moments, moments, write_moments
from codev_train.learn.optimizer import parts

OPTIMIZER = "optimizer"
"""Folder of the moments in a checkpoint, in the format of `torch.distributed.checkpoint`."""
STATE = "state.json"
PATIENCE = datetime.timedelta(hours=6)  # for the slowest disk of all processes
GRACE_S = 5.0  # longest wait for a checkpoint after a second Ctrl-C, in seconds
_NAME = re.compile(r"step-(\d+)")


class CheckpointError(CodevError, RuntimeError):
    """A checkpoint cannot be written or read."""


@contextmanager
def replace_folder(folder: Path, scratch: str = "partial", again: str = "continue with --resume") -> Iterator[Path]:
    """Give a scratch folder that takes the place of `folder` at the end, or disappears if anything fails.

    Args:
        folder: The folder.
        scratch: Last part of the name of the scratch folder; several processes that write at once need several.
        again: What the user does when there is room, for the message.

    Raises:
        CheckpointError: The disk is full or the folder cannot be written; the earlier content is untouched.
    """
    partial = _partial(folder, scratch)
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
                f"free some disk space and {again}."
            ) from error
        raise
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _partial(folder: Path, scratch: str = "partial") -> Path:
    return folder.with_name(f".{folder.name}.{scratch}")


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


class CheckpointWriter:
    """Writes the checkpoints of a run while training goes on, one at a time.

    A checkpoint holds the policy (loadable with `from_pretrained`), the optimizer's moments, and the number of updates;
    the order of data and sampling are functions of seed and update, so nothing else is needed to continue. The main
    process writes the policy; each process writes its own shards of the moments. Any number of processes can continue.
    All processes make a writer and call its methods; used as a context manager, it waits at the end, after Ctrl-C for
    `GRACE_S` at most.
    """

    def __init__(self, run: Path, keep: int) -> None:
        """Start a writer.

        Args:
            run: The run folder.
            keep: How many checkpoints stay.
        """
        self._run = run
        self._keep = keep
        self._group, self._main = None, True
        if dist.is_initialized():
            # Its own group: it speaks while the main thread uses the other one.
            self._group, self._main = dist.new_group(timeout=PATIENCE, backend="gloo"), dist.get_rank() == 0
        self._pending: Future[None] | None = None

    def save(self, step: int, policy: Policy, optimizer: Any) -> None:
        """Copy the state after `step` updates to CPU memory and begin to write it; waits for the one before.

        Raises:
            CheckpointError: The one before could not be written.
        """
        self.wait()
        sharded = is_sharded(policy.model)
        weights = policy.weights(keep=self._main, copy=True)
        own = copied(moments(policy.model, optimizer)) if sharded or self._main else None
        state = {"step": step, "optimizer": [type(part).__name__ for part in parts(optimizer)]}
        folder = self._run / "checkpoints" / f"step-{step:06d}"
        if self._main:
            lead = folder, policy, weights, own or {}, state, not sharded
            self._pending, _ = in_own_thread("checkpoint", self._lead, *lead)
        else:
            self._pending, _ = in_own_thread("checkpoint", self._follow, folder, own)

    @property
    def failed(self) -> bool:
        """Whether the pending checkpoint could not be written; `wait` raises why."""
        return self._pending is not None and self._pending.done() and self._pending.exception() is not None

    def wait(self) -> None:
        """Wait until the pending checkpoint is complete in all processes.

        Raises:
            CheckpointError: It could not be written; the earlier ones are untouched.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KeyboardInterrupt) and self._pending:
            if not wait_for([self._pending], GRACE_S).done:
                return  # the next run removes what is left of it
        try:
            self.wait()
        except CheckpointError as failure:
            if error is None:
                raise
            print(failure, file=sys.stderr)  # beside the error that ends the run

    def _lead(
        self,
        folder: Path,
        policy: Policy,
        weights: PolicyWeights,
        own: dict[str, torch.Tensor],
        state: dict[str, Any],
        alone: bool,
    ) -> None:
        """Write as the main process: the folder appears when all processes have written their parts."""
        try:
            with replace_folder(folder) as partial:
                self._agree("")  # The others find the folder.
                write_moments(partial / OPTIMIZER, own, self._group, alone)
                policy.write(weights, partial / "model")
                (partial / STATE).write_text(json.dumps(state))
        except BaseException as error:
            self._agree(str(error) or repr(error))
            raise
        self._agree("")
        try:
            prune(self._run, self._keep)
        except OSError as error:  # this checkpoint is complete; the next one tries again
            print(f"cannot remove old checkpoints of {self._run}: {error}. Training goes on.", file=sys.stderr)

    def _follow(self, folder: Path, own: dict[str, torch.Tensor] | None) -> None:
        """Write this process's part between the two messages of the main process."""
        self._hear()
        if own is not None:
            with contextlib.suppress(Exception):  # The main process fails with the same and reports it.
                write_moments(_partial(folder) / OPTIMIZER, own, self._group, alone=False)
        self._hear()

    def _agree(self, failure: str) -> None:
        if self._group is not None:
            dist.broadcast_object_list([failure], src=0, group=self._group)

    def _hear(self) -> None:
        message = [""]
        dist.broadcast_object_list(message, src=0, group=self._group)
        if message[0]:
            raise CheckpointError(message[0])


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


def load_optimizer(checkpoint: Path, model: torch.nn.Module, optimizer: Any) -> int:
    """Load the optimizer's moments; returns the number of updates done. Its options stay those of this run.

    Raises:
        CheckpointError: The files are broken or belong to another model or optimizer, or to other options.
    """
    state = _read_state(checkpoint)
    own = [type(part).__name__ for part in parts(optimizer)]
    if state["optimizer"] != own:
        found = f"the moments of {', '.join(state['optimizer'])}, and optimizer.name makes {', '.join(own)}"
        raise CheckpointError(f"{checkpoint} cannot be resumed from: it has {found}. Leave optimizer.name as it was.")
    try:
        load_moments(checkpoint / OPTIMIZER, model, optimizer)
    except OtherWeights as error:
        raise CheckpointError(
            f"{checkpoint} cannot be resumed from: {error}. Leave train_vision and lora.rank as they were."
        ) from error
    except _UNREADABLE as error:
        raise broken(checkpoint, OPTIMIZER, error) from error
    return int(state["step"])


def read_step(checkpoint: Path) -> int:
    """Return the number of updates that are done; raises `CheckpointError` if the file is broken."""
    return int(_read_state(checkpoint)["step"])


def read_optimizer(checkpoint: Path) -> str:
    """Return the `optimizer.name` that the moments are of; raises `CheckpointError` if the file is broken."""
    names = [name.lower() for name in _read_state(checkpoint)["optimizer"]]
    return "muon" if "muon" in names else next(iter(names), "")


def _read_state(checkpoint: Path) -> dict[str, Any]:
    if (checkpoint / "optimizer.pt").exists():
        raise CheckpointError(
            f"{checkpoint} cannot be resumed from: its moments are in optimizer.pt, which this version does not read. "
            f"Start a new run from its weights: --model {checkpoint / 'model'}."
        )
    try:
        state = json.loads((checkpoint / STATE).read_text())
        return {"step": int(state["step"]), "optimizer": list(state["optimizer"])}
    except _UNREADABLE as error:
        raise broken(checkpoint, STATE, error) from error


_UNREADABLE = (OSError, EOFError, ValueError, LookupError, TypeError, RuntimeError, pickle.UnpicklingError)


def broken(checkpoint: Path, name: str, error: Exception) -> CheckpointError:
    """Return the error for a file or folder of a checkpoint that cannot be read."""
    return CheckpointError(
        f"{checkpoint} cannot be resumed from: {name} is broken or of another model ({type(error).__name__}: "
        f"{str(error)[:120]}). Remove the folder to go back to the checkpoint before."
    )
