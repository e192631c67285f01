"""Rollouts of later updates, played while the policy is updated: `--staleness N` (docs/async.md)."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from codev_agents.rollout.engine import Engine, ReportingEngine, Sampling, StagedEngine
from codev_agents.rollout.groups import StreamOptions, TakenGroups
from codev_agents.rollout.runner import RolloutRunner
from codev_agents.rollout.selection import any_group
from codev_agents.rollout.stream import RolloutStream
from codev_env.threads import in_own_thread
from codev_train.learn.checkpoint import checkpoints
from codev_train.learn.progress import FOLDER, GroupLog
from codev_train.learn.resample import has_signal
from codev_train.learn.saved import SavedGroups
from codev_train.run.options import TrainOptions
from codev_train.run.ranks import summed

_OF_EPISODES = (
    "env", "reward", "weights", "group", "temperature", "max_tokens", "max_length", "max_pixels", "mask_stragglers",
)  # fmt: skip
"""Options that make an episode what it is: with others, episodes that were saved are played again."""
_OF_NO_UPDATE = {
    "name", "out", "resume", "processes", "engine", "vllm", "engine_batch", "health", "workers", "threads", "eval",
    "save_every", "keep", "show_every", "trackers", "tracker_project", "push_to_hub", "push_private", "push_report",
    "estimate",
}  # fmt: skip
"""Options that do not change what an update makes of its groups."""
_PUSH_S = 5.0
"""Longest wait, in seconds, for a push whose weights nobody needs; one that is cut off may leave a server paused."""


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
        self._runner, self._engine, self._accelerator = runner, engine, accelerator
        self._pushing: Future[None] | None = None
        self._told: dict[str, float] = {}
        self._run, self._last, self._taken = run, options.steps, done
        episodes, updates = _keys(options)
        store = SavedGroups(run / FOLDER / str(accelerator.process_index), runner.processor, episodes)
        rank, agree = accelerator.process_index, lambda own: min(self._of_all(own))
        self._log = GroupLog(run, count, done, rank, processes, store, updates, agree)
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
            store.save,
            self._log.saved,
            self._log.planned,
        )
        self._again = {
            "async/groups_again": self._log.again,
            "async/groups_kept": len(self._log.saved),
            "async/groups_broken": store.broken,
            "async/updates_again": max(self._of_all(self._log.updates)),
        }
        self._numbers: dict[str, float] = {}
        self._since, self._idle_s, self.seconds = time.perf_counter(), 0.0, 0.0

    def __enter__(self) -> Ahead:
        self._stream.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            # A run that is interrupted needs no weights to evaluate, and waits for no episode that it gives up.
            if exc == (None, None, None) and self._taken == self._last:
                self.settle()
        finally:
            self._stream.close()
            if self._pushing:
                wait([self._pushing], _PUSH_S)
        if self._saved_steps() >= self._last:
            self._log.finish()

    def take(self, step: int) -> TakenGroups:
        """Return the groups of an update, numbered from 0, when they are complete; raises as `RolloutStream.take`."""
        started = time.perf_counter()
        self._log.settle(self._saved_steps())
        taken = self._stream.take()
        self._log.note(step + 1, taken)
        self._taken = step + 1
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

    def push(self, model: Any) -> None:
        """Give the engine the next weights, if it can, in another thread.

        Waits for the end of the push before. Its error is raised here or by `take`, whichever is called first.
        """
        self.settle()
        if isinstance(self._engine, StagedEngine):
            self._pushing, _ = in_own_thread("codev-push", self._push, self._engine.stage(model))
        else:
            self._push(functools.partial(self._engine.sync, model))

    def told(self) -> dict[str, float]:
        """Return the engine's newest numbers: those of the last push that has ended, and what it knows now."""
        return self._told | (self._engine.numbers() if isinstance(self._engine, ReportingEngine) else {})

    def settle(self) -> None:
        """Wait until the engine has the newest weights; raises as `RolloutStream.updating`."""
        if self._pushing:
            wait([self._pushing])  # an interrupt leaves it under way
            pushing, self._pushing = self._pushing, None
            pushing.result()

    def _push(self, action: Callable[[], dict[str, float]]) -> None:
        with self._stream.updating():
            started = time.perf_counter()
            self._told = action() | {"async/push_seconds": time.perf_counter() - started}

    def row(self, step: int) -> dict[str, float]:
        """Return numbers for the history: sums over processes, means of shares and updates. All processes call this."""
        total = summed(list(map(float, self._numbers.values())), self._accelerator)
        means = {name for name in self._numbers if "/idle" in name or "/updates" in name}
        processes = self._accelerator.num_processes
        row = {n: v / processes if n in means else v for n, v in zip(self._numbers, total, strict=True)}
        return {"async/version": float(step)} | row

    def _of_all(self, own: int) -> list[int]:
        """Return a number of each process. All processes call this."""
        return self._accelerator.gather(torch.tensor([own], device=self._accelerator.device)).tolist()

    def _saved_steps(self) -> int:
        """Return the updates in the newest complete checkpoint."""
        found = checkpoints(self._run)
        return int(found[-1].name.removeprefix("step-")) if found else 0


def _keys(options: TrainOptions) -> tuple[str, str]:
    """Return what names the options that make an episode, and those that make an update."""
    given = dataclasses.asdict(options)
    given["env"].pop("farm")
    updates = {name: value for name, value in given.items() if name not in _OF_NO_UPDATE}
    return _digest({name: given[name] for name in _OF_EPISODES}), _digest(updates)


def _digest(values: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(values, sort_keys=True, default=str).encode(), digest_size=8).hexdigest()
