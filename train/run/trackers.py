"""Experiment trackers beside TensorBoard (W&B, trackio, MLflow, …), through Accelerate's classes."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker

from codev_env.app.check import Check
from codev_env.errors import unknown
from codev_env.files import write_json
from codev_train.run.options import TrainOptions

RUNS = "trackers.json"
"""File in a run folder: the run of each tracker that a resumed run continues."""
FENCE = "````"
"""Begins and ends what a transcript shows as it is."""
_NO_BREAK = "\N{NO-BREAK SPACE}"


Episode = tuple[np.ndarray[Any, Any], str]
"""Image and transcript of an episode."""


@dataclasses.dataclass(frozen=True)
class _Service:
    """How a tracker begins a run, how it names the run, and how it continues it; any other begins one each time.

    `show` logs episodes where Accelerate's class of the tracker does not, or not whole: it gets the class and the step.
    """

    begin: Callable[[Path], dict[str, str]]
    identity: Callable[[Any], str]
    resume: Callable[[str], dict[str, str]]
    show: Callable[[GeneralTracker, Sequence[Episode], int], None] | None = None


def _show_in_wandb(tracker: GeneralTracker, episodes: Sequence[Episode], step: int) -> None:
    import wandb

    shown = [(wandb.Image(image), text) for image, text in episodes]
    rows = [[number, image, text] for number, (image, text) in enumerate(shown)]
    table = wandb.Table(columns=["episode", "image", "transcript"], data=rows)
    tracker.log({"episodes": [image for image, _ in shown], "transcripts": table}, step=step)


def _show_in_trackio(tracker: GeneralTracker, episodes: Sequence[Episode], step: int) -> None:
    import trackio

    values: dict[str, Any] = {}
    for number, (image, text) in enumerate(episodes):
        values[f"episodes/{number}"] = trackio.Image(image)
        values[f"transcripts/{number}"] = trackio.Markdown(_in_paragraphs(text))
    tracker.log(values, step=step)


def _in_paragraphs(text: str) -> str:
    """Give each line a paragraph of its own: trackio's pages know no fences, no indents and no other line breaks."""
    lines = (line for line in text.split("\n") if line.strip() and line != FENCE)
    return "\n\n".join(_NO_BREAK * (len(line) - len(line.lstrip(" "))) + line.lstrip(" ") for line in lines)


def _show_in_mlflow(tracker: GeneralTracker, episodes: Sequence[Episode], step: int) -> None:
    import mlflow

    for number, (image, text) in enumerate(episodes):
        mlflow.log_image(image, key=f"episodes/{number}", step=step)
        mlflow.log_text(text, f"transcripts/step-{step:06d}-{number}.md")


_SERVICES = {
    "wandb": _Service(
        lambda run: {"name": run.name, "dir": str(run)},
        lambda own: own.id,
        lambda key: {"id": key, "resume": "allow"},
        _show_in_wandb,
    ),
    "trackio": _Service(
        lambda run: {"name": run.name},
        lambda own: own.name,
        lambda key: {"name": key, "resume": "allow"},
        _show_in_trackio,
    ),
    "mlflow": _Service(
        lambda run: {"run_name": run.name},
        lambda own: own.info.run_id,
        lambda key: {"run_id": key},
        _show_in_mlflow,
    ),
}


@runtime_checkable
class _ShowsImages(Protocol):
    def log_images(self, values: Mapping[str, Sequence[Any]], step: int) -> None: ...


@runtime_checkable
class _ShowsTables(Protocol):
    def log_table(self, table_name: str, columns: list[str], data: list[list[Any]], *, step: int) -> None: ...


class RunTracker:
    """A tracker of one run. A call that fails is reported once and not repeated: it never ends the run."""

    def __init__(self, name: str, run: Path, options: TrainOptions) -> None:
        self.name, self._tracker, self._failed = name, GeneralTracker(_blank=True), set[str]()
        self._attempt("start", lambda: self._start(run, options))

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Log numbers under their names."""
        self._attempt("numbers", lambda: self._tracker.log(dict(values), step=step))

    def episodes(self, images: Sequence[np.ndarray[Any, Any]], transcripts: Sequence[str], step: int) -> None:
        """Log images of episodes, and their transcripts as a table, if the tracker has these."""
        tracker, service = self._tracker, _SERVICES.get(self.name)
        if show := service and service.show:
            if "start" not in self._failed:
                self._attempt("images", lambda: show(tracker, list(zip(images, transcripts, strict=True)), step))
            return
        if isinstance(tracker, _ShowsImages):
            self._attempt("images", lambda: tracker.log_images({"episodes": list(images)}, step=step))
        if isinstance(tracker, _ShowsTables):
            rows = [[number, text] for number, text in enumerate(transcripts)]
            columns = ["episode", "transcript"]
            self._attempt("transcripts", lambda: tracker.log_table("transcripts", columns, rows, step=step))

    def close(self) -> None:
        """Send what is left and end the tracker's run."""
        self._attempt("end", self._tracker.finish)

    def _start(self, run: Path, options: TrainOptions) -> None:
        kind, service, file = LOGGER_TYPE_TO_CLASS[self.name], _SERVICES.get(self.name), run / RUNS
        runs = json.loads(file.read_text()) if file.exists() else {}
        given = service.begin(run) if service else {}
        if service and self.name in runs:
            given |= service.resume(runs[self.name])
        folder = [str(run)] if kind.requires_logging_directory else []
        tracker = kind(options.tracker_project, *folder, **given)
        tracker.start()
        self._tracker = tracker
        if self.name not in runs:  # Trackers may refuse options that differ from those of an earlier start.
            tracker.store_init_configuration(dict(_flat(dataclasses.asdict(options))))
        if service:
            write_json(file, runs | {self.name: service.identity(tracker.tracker)})

    def _attempt(self, what: str, call: Callable[[], object]) -> None:
        if what in self._failed:
            return
        try:
            call()
        except Exception as error:  # of whichever library the tracker is
            self._failed.add(what)
            reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
            print(f"tracker {self.name}: {what} failed and is left out; the run goes on: {reason}", file=sys.stderr)


def tracker_checks(names: Sequence[str]) -> Iterator[Check]:
    """Look whether each tracker is known and its package installed; raises `ConfigError` for an unknown name."""
    for name in names:
        known = LOGGER_TYPE_TO_CLASS.keys() - {"tensorboard"}  # Every run has TensorBoard.
        if name not in known:
            raise unknown("tracker (--trackers)", name, known)
        if LOGGER_TYPE_TO_CLASS[name].__module__ == GeneralTracker.__module__ and not importlib.util.find_spec(name):
            detail = f"--trackers {name} needs {name}, which is not installed"
            yield Check("options", "trackers", "fail", detail, f"pip install {name}")
        else:
            yield Check("options", "trackers", "ok", f"{name} gets what TensorBoard gets")


def _flat(options: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, bool | str | float]]:
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value if isinstance(value, bool | str | float | int) else str(value)
