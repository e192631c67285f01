"""The folder that an evaluation writes to: checked and locked first, then changed as episodes finish."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from codev_env.app.outputs import make_folder
from codev_env.errors import ConfigError
from codev_env.files import write_json
from codev_env.trajectory import FILE_NAME as TRAJECTORIES
from codev_env.trajectory import Trajectory, TrajectoryWriter
from codev_env.usage import EpisodeUsage
from codev_eval.bench.folder import (
    METRICS,
    REPORT,
    SCHEMA,
    STATE,
    check_same,
    condition_folders,
    evaluation_files,
    has_state,
    is_evaluation,
    keep_alone,
    read_episodes,
    read_failed_usage,
    remove_evaluation,
    remove_new,
)
from codev_eval.bench.models import is_folder, weights_of
from codev_eval.bench.options import EvalOptions
from codev_eval.bench.usage import rows_of, usage_of

_OF_TRAINING = ("options.yaml", "history.jsonl", "checkpoints")
"""Files that mark the folder of a training run."""


class ResultsFolder:
    """The folder of an evaluation: a new one, that of a stopped one with the same options, or one to replace.

    With `--overwrite` the earlier evaluation stays until the first episode of the new one has finished.

    Args:
        options: Options of the evaluation.
        held: Keeps other evaluations out of the folder until it ends.

    Raises:
        ConfigError: The folder cannot be made, or holds other files than those of such an evaluation.
    """

    def __init__(self, options: EvalOptions, held: ExitStack) -> None:
        self.path = out = options.out
        if any((out / name).exists() for name in _OF_TRAINING):
            raise ConfigError(f"--out {out} is the folder of a training run: give another one.")
        if is_there := out.is_dir():
            keep_alone(out, held)
        found = [path for path in evaluation_files(out) if path.exists()]
        mine = json.loads(json.dumps(options.fixed()))
        weights = weights_of(Path(options.model)) if is_folder(options.model) else ""
        self.replaces = options.overwrite and bool(found or condition_folders(out))
        """Whether it holds an evaluation whose place the new one has not taken yet."""
        if self.replaces:
            if found and not is_evaluation(out):
                raise ConfigError(
                    f"--out {out} holds {found[0].name}, but no evaluation that --overwrite could replace "
                    f"({TRAJECTORIES} or {STATE}): give another folder."
                )
        elif read_episodes(out) or (out / METRICS).exists() or (out / REPORT).exists():
            check_same(out, found[0], mine, weights)
        elif (out / STATE).exists() and not has_state(out):
            raise ConfigError(f"--out {out} holds {STATE}, which is of no evaluation: give another folder.")
        self._before = self._there()
        make_folder(out)
        if not is_there:
            keep_alone(out, held)
        failed = [] if self.replaces else read_failed_usage(out)
        self._state = {"schema": SCHEMA, "options": mine, "weights": weights, "failed_usage": failed}

    @property
    def failed_usage(self) -> dict[tuple[str, str], EpisodeUsage]:
        """By condition and benchmark: what failed episodes of earlier starts took."""
        return usage_of(self._state["failed_usage"])

    def episodes(self, condition: str) -> list[Trajectory]:
        """Return the episodes of a condition that need not be run again."""
        return [] if self.replaces else read_episodes(self.path / condition)

    def note(self) -> None:
        """Write the options down, unless an earlier evaluation is still there."""
        if not self.replaces:
            write_json(self.path / STATE, self._state)

    def note_failed(self, usage: Mapping[tuple[str, str], EpisodeUsage]) -> None:
        """Write down what failed episodes took, for the cost of later starts, too."""
        self._state["failed_usage"] = rows_of(usage)
        self.note()

    @contextmanager
    def writing(self, condition: str) -> Iterator[Callable[[Trajectory], None]]:
        """Give a function that writes an episode of a condition; the first one removes the evaluation to replace."""
        folder = self.path / condition
        with ExitStack() as opened:
            writer = None if self.replaces else opened.enter_context(TrajectoryWriter(folder))

            def write(trajectory: Trajectory) -> None:
                nonlocal writer
                if writer is None:
                    self._replace()
                    writer = opened.enter_context(TrajectoryWriter(folder))
                writer.append(trajectory)

            yield write

    def leave(self) -> None:
        """Remove what was written if there is not a single episode."""
        if not self.replaces and not read_episodes(self.path):
            remove_new(self.path, self._before)

    def _replace(self) -> None:
        remove_evaluation(self.path)
        self.replaces, self._before = False, self._there()
        self.note()

    def _there(self) -> set[Path]:
        return {path for path in (self.path, *evaluation_files(self.path)) if path.exists()}
