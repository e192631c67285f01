"""The options that choose tasks, the same for `codev eval` and every `codev data` command that works on tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from codev_env.app.named_values import columns_of, reader_of, scenes_of
from codev_env.app.options import Field, option_class
from codev_env.tasks import load_tasks
from codev_env.types import TaskSet


@option_class
class TaskOptions:
    """Which tasks of a benchmark or data set."""

    split: str = "test"
    """Split of the data."""
    scenes: str | None = None
    """Generated scenes: a preset such as `toy`; or JSON such as `{"preset": "toy", "cue_p": 0}`."""
    difficulty: float | None = None
    """Difficulty of generated scenes, from 0 (easiest) to 1 (hardest)."""
    subset: str | None = None
    """Only this category, or this variant of `--wrap`."""
    wrap: tuple[str, ...] = ()
    """Transforms and corruptions: a suite (`orientation`, `corruption`), names (`rotate_90 jpeg:3`), or JSON."""
    columns: tuple[str, ...] = ()
    """Own data: the column of each field, such as `image=photo answer=label choices=A,B,C,D`."""
    reader: tuple[str, ...] = ()
    """Own data: more options of its reader, such as `boxes=xywh shuffle_choices=true`."""
    image_folder: Path | None = None
    """Own data: folder of the images, if not the file's."""
    on_error: Literal["raise", "skip"] = "raise"
    """Bad rows: stop, or leave them out and count them."""
    only: Path | None = None
    """File of the tasks to take, as `codev data filter` writes it."""
    n: Annotated[int | None, Field(ge=1)] = None
    """Only the first N tasks."""

    def described(self) -> dict[str, Any]:
        """Return what `load_tasks` takes besides data, split and bench; JSON-able."""
        return {
            "scenes": self._scenes(),
            "subset": self.subset,
            "wrap": list(self.wrap),
            "columns": columns_of(self.columns),
            "reader": reader_of(self.reader),
            "image_folder": None if self.image_folder is None else str(self.image_folder),
            "on_error": self.on_error,
            "only": None if self.only is None else str(self.only),
        }

    def _scenes(self) -> Any:
        scenes = scenes_of(self.scenes)
        if self.difficulty is None:
            return scenes
        named = scenes if isinstance(scenes, dict) else {"preset": scenes} if scenes else {}
        return {"difficulty": self.difficulty, **named}


@option_class
class TaskChoice(TaskOptions):
    """Which tasks a command works on."""

    data: str
    """`synthetic` for generated scenes, `hub` for the published data, or the path of a benchmark or data set."""
    bench: str = "vstar"
    """Benchmark: `vstar`, `hrbench4k`, `hrbench8k`, `mathvista`, `mvtool`, `treebench`, `visualprobe`,
    `mme-realworld-lite`, `o3bench`, `zoombench`, `zoombench-crop`, `blink`, `charxiv`, `charxiv-descriptive`,
    `chartqapro`, `tirbench`, `video`, training sets, `dataset`."""

    def load(self) -> TaskSet:
        """Load the tasks, all of them whatever `n` says; raises `ConfigError` and `TaskError` as `load_tasks` does."""
        return load_tasks(self.data, self.split, bench=self.bench, **self.described())
