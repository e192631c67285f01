"""Differences between a run that is resumed and how it began."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from codev_env.files import read_rows, write_json
from codev_train.run.config import OPTIONS
from codev_train.run.env_options import EnvOptions
from codev_train.run.environments import held_out_env
from codev_train.run.held_out import HeldOutOptions
from codev_train.run.monitor import HISTORY
from codev_train.run.options import TrainOptions

T = TypeVar("T")
EVALUATION_OPTIONS = "options.json"
"""Options of the evaluation before, in its folder, once a run was resumed."""
_UNMEASURED = ("every", "env.only", "env.farm")  # of training, or of the machine
_OF_EPISODES = ("max_tokens", "max_length", "max_pixels")


def written_options(run: Path) -> dict[str, Any]:
    """Return the options that a run was started with; empty if it has none."""
    path = run / OPTIONS
    return dict(yaml.safe_load(path.read_text("utf-8"))["train"]) if path.is_file() else {}


def changed_evaluation(run: Path, options: TrainOptions) -> list[str]:
    """Return the options by which a run's evaluation before differs from the one after; none if it has none yet."""
    if not (run / "before" / "metrics.json").exists():
        return []
    kept = run / "before" / EVALUATION_OPTIONS
    known = json.loads(kept.read_text("utf-8")) if kept.is_file() else _of_evaluation(written_options(run))
    now = _of_evaluation(dataclasses.asdict(options))
    names = [name for name, value in now.items() if known.get(name, value) != value]
    names = [name for name in names if name.removeprefix("env.") == name or name.removeprefix("env.") not in names]
    dotted = [name if "." in name or name in _OF_EPISODES else f"eval.{name}" for name in names]
    return [f"--{name.replace('_', '-')}" for name in dotted]


def keep_evaluation_options(run: Path) -> None:
    """Keep the options that the evaluation before was made with, before others are written."""
    kept = run / "before" / EVALUATION_OPTIONS
    if (run / "before" / "metrics.json").exists() and not kept.exists():
        write_json(kept, _of_evaluation(written_options(run)))


def other_start(run: Path, model: str) -> str:
    """Return the model that a run began with, if another is named now; else empty."""
    known = str(written_options(run).get("model", ""))
    return known if known and Path(known).resolve() != Path(model).resolve() else ""


def continues(run: Path, checkpoint: Path | None, done: int) -> list[str]:
    """Say where a run goes on, and what is lost of it."""
    if checkpoint is None:
        return [f"{run} has no checkpoint: it begins with the first update."]
    said = [f"{run} goes on after update {done} ({checkpoint})."]
    rows = len({row["step"] for row in read_rows(run / HISTORY) if row["step"] <= done})
    if rows < done:
        said.append(f"{run / HISTORY} has {rows} of these {done} updates: its report shows no others.")
    return said


def _of_evaluation(train: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an evaluation depends on: options of `eval` by name, of its environment as `env.NAME`, others."""
    held_out = train.get("eval", {})
    found = {**held_out, **{name: train[name] for name in _OF_EPISODES if name in train}}
    if "env" in train:
        options = TrainOptions(env=_known(EnvOptions, train["env"]), eval=_known(HeldOutOptions, held_out))
        found |= {f"env.{name}": value for name, value in dataclasses.asdict(held_out_env(options)).items()}
    plain: dict[str, Any] = json.loads(json.dumps(found))  # tuples are lists
    # Where "auto" is asked for, the policy says how many pixels these are.
    return {name: value for name, value in plain.items() if name not in _UNMEASURED and value != "auto"}


def _known(kind: type[T], given: Mapping[str, Any]) -> T:
    """Make options of those names that this version knows."""
    names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in given.items() if name in names})
