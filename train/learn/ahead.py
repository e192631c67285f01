"""Rollouts of later updates, played while the policy is updated: `--staleness N` (docs/async.md)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import torch
from accelerate import Accelerator

from codev_agents.rollout.engine import Engine, Sampling
from codev_agents.rollout.runner import RolloutRunner
from codev_agents.rollout.selection import any_group
from codev_agents.rollout.stream import RolloutStream, StreamOptions, TakenGroups
from codev_train.learn.progress import GroupLog
from codev_train.learn.resample import has_signal
from codev_train.run.options import TrainOptions


class Ahead:
    """The groups of a run with `staleness`: taken as they complete, noted in the run folder, described for the history.

    Each process plays its own share; none of them waits for another one's episodes but in the update itself.

    Args:
        options: The options.
        runner: Plays the episodes; nothing else may play with it meanwhile.
        engine: Samples them, apart from the trainer.
        tasks: Gives the indices of the tasks of batch number 0, 1, …; called in another thread.
        run: The run folder.
        done: Updates that are done.
        accelerator: The processes.
    """

    def __init__(
        self,
        options: TrainOptions,
        runner: RolloutRunner,
        engine: Engine,
        tasks: Callable[[int], Sequence[int]],
        run: Path,
        done: int,
        accelerator: Accelerator,
    ) -> None:
        processes = accelerator.num_processes
        count = options.prompts // processes
        self._runner, self._accelerator = runner, accelerator
        self._log = GroupLog(run, count, done, accelerator.process_index, processes)
        self._stream = RolloutStream(
            runner,
            engine,
            Sampling(options.temperature, options.max_tokens),
            tasks,
            StreamOptions(
                count, options.group, options.staleness, done, options.steps, options.in_flight, options.resample
            ),
            self._log.used,
            self._log.start,
            has_signal if options.resample else any_group,
        )
        self._again = {"async/groups_again": self._log.again, "async/updates_again": self._log.updates}
        self._numbers: dict[str, float] = {}
        self._since, self._idle_s, self.seconds = time.perf_counter(), 0.0, 0.0

    def __enter__(self) -> Ahead:
        self._stream.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stream.close()

    def take(self, step: int) -> TakenGroups:
        """Return the groups of an update, numbered from 0, when they are complete; raises as `RolloutStream.take`."""
        started = time.perf_counter()
        taken = self._stream.take()
        self._log.note(step + 1, taken)
        now, idle_s = time.perf_counter(), self._runner.idle_s
        self._numbers = {
            "async/groups_dropped": taken.dropped,
            "async/groups_ready": taken.ready,
            "async/episodes_playing": taken.playing,
            **self._again,
            "async/idle_trainer": (now - started) / (now - self._since),
            "async/idle_engine": min(1.0, (idle_s - self._idle_s) / (now - self._since)),
        }
        self._again = dict.fromkeys(self._again, 0)
        self.seconds = now - self._since
        self._since, self._idle_s = now, idle_s
        return taken

    def updating(self) -> AbstractContextManager[None]:
        """The engine gets the next weights inside; raises as `RolloutStream.updating`."""
        return self._stream.updating()

    def row(self, step: int) -> dict[str, float]:
        """Return numbers for the history: sums over processes, for shares of time means. All processes call this."""
        values = torch.tensor(list(self._numbers.values()), device=self._accelerator.device, dtype=torch.float32)
        total = self._accelerator.reduce(values).tolist()
        shares = {name for name in self._numbers if "/idle" in name}
        processes = self._accelerator.num_processes
        row = {n: v / processes if n in shares else v for n, v in zip(self._numbers, total, strict=True)}
        return {"async/version": float(step)} | row
