"""Generated scenes as a task set: named presets, and one seed stream per split and index."""

from __future__ import annotations

import operator
import string
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from codev_env.errors import ConfigError, TaskError, unknown
from codev_env.tasks.generators.charts import ChartOptions
from codev_env.tasks.generators.counting import CountingOptions
from codev_env.tasks.generators.documents import DocumentOptions
from codev_env.tasks.generators.fine import FineLetterOptions, FineOptions
from codev_env.tasks.generators.generator import SPLIT_KEYS, SceneOptions
from codev_env.tasks.generators.grid import GridOptions
from codev_env.tasks.generators.hr import HRBenchOptions
from codev_env.tasks.generators.mix import MixOptions, TurnedOptions
from codev_env.tasks.generators.panels import ChartPageOptions, FormPageOptions
from codev_env.tasks.generators.puzzles import PuzzleOptions
from codev_env.tasks.generators.search import SearchOptions
from codev_env.tasks.generators.sequences import AlbumOptions, VideoOptions
from codev_env.tasks.generators.sums import SumsOptions
from codev_env.tasks.readers.cache import TASKS
from codev_env.types import Source, Task, TaskSet

__all__ = ["SCENES", "SIZES", "GridOptions", "SceneOptions", "SceneTaskSet", "SearchOptions", "parse_scenes"]

SCENES: dict[str, SceneOptions] = {
    "tiny": GridOptions(grid=5, cell=56, sprite=40, jitter=8, glyph=3),
    "toy": GridOptions(),
    "chart-page": ChartPageOptions(grid=5, cell=56, sprite=40, jitter=8, glyph=3),
    "form-page": FormPageOptions(grid=5, cell=56, sprite=40, jitter=8, glyph=3),
    "glance": MixOptions(parts=(FineOptions(), FineLetterOptions()), weights=(1, 1)),
    "vstar": SearchOptions(),
    "vstar-4k": SearchOptions(
        sizes=((3840, 2160),), distractors=(60, 120), target_share=(0.011, 0.018), distractor_share=(0.011, 0.035)
    ),
    "hrbench-4k": HRBenchOptions(),
    "hrbench-8k": HRBenchOptions(
        sizes=((7680, 4320),), distractors=(80, 160), target_share=(0.006, 0.01), distractor_share=(0.006, 0.025)
    ),
    "counting": CountingOptions(),
    "charts": ChartOptions(),
    "sums": SumsOptions(),
    "mathvista": MixOptions(parts=(ChartOptions(), SumsOptions(), CountingOptions()), weights=(3, 2, 1)),
    "documents": DocumentOptions(),
    "puzzles": PuzzleOptions(),
    "album": AlbumOptions(grid=5, cell=56, sprite=40, jitter=8, glyph=3),
    "pair": AlbumOptions(
        grid=5, cell=56, sprite=40, jitter=8, glyph=3, categories=("find",), count=2, digits=6, cue_p=0.0
    ),
    "video": VideoOptions(grid=5, cell=56, sprite=40, jitter=8, glyph=3),
    "tirbench": MixOptions(
        parts=(PuzzleOptions(), SearchOptions(), SumsOptions(), CountingOptions()), weights=(3, 1, 1, 1)
    ),
    "mvtool": TurnedOptions(scenes=DocumentOptions().at_difficulty(1)),
    "deepeyes": SearchOptions().at_difficulty(0.8),
    "codev-rl": MixOptions(
        parts=(SearchOptions(), ChartOptions(), SumsOptions(), CountingOptions()), weights=(4, 3, 2, 1)
    ),
    "codevision-rl": MixOptions(
        parts=(
            TurnedOptions(scenes=DocumentOptions().at_difficulty(0.7)),
            TurnedOptions(scenes=SearchOptions(categories=("direct_attributes",), attributes=("color",))),
        ),
        weights=(2, 1),
    ),
}
"""Presets by name. `tiny`, `chart-page`, `form-page`: 280 x 280, for a model of a million weights; `album`, `pair`,
`video`: four or two such images, and frames; `toy`: 672 x 672, a millisecond each; `glance`: 560 x 560, panels that
only a crop shows; `vstar`: 1024 to 2048 a side; `vstar-4k`: 3840 x 2160; `counting`, `charts`, `sums`, `documents` and
`puzzles` are one kind each; the others replace the data sets of their names."""

DEFAULT_SCENES = "vstar"

SIZES: dict[str, int] = {"train": 1_000_000, "val": 1_000, "test": 1_000}
"""Default number of scenes of each split; a scene is drawn only when it is read."""


class SceneTaskSet:
    """Generated scenes, each drawn when it is read; equal arguments give equal scenes."""

    name: str
    source: Source = "generated"

    def __init__(
        self, options: SceneOptions, split: str = "train", size: int | None = None, seed: int = 0, bench: str = ""
    ) -> None:
        """Make a task set; nothing is drawn yet.

        Args:
            options: The kind of scenes and their options.
            split: `"train"`, `"val"` or `"test"`: streams of scenes that have nothing in common.
            size: Number of scenes, or `None` for the split's entry in `SIZES`.
            seed: Seeds all scenes.
            bench: The benchmark that they replace; scorers read it in `meta["bench"]`; `""` for none.

        Raises:
            ConfigError: An unknown split, or a size or seed out of range.
        """
        if split not in SPLIT_KEYS:
            raise unknown("split", split, SPLIT_KEYS)
        self.options, self.split = options, split
        self.size = _at_least("size", SIZES[split] if size is None else size, 1)
        self.seed = _at_least("seed", seed, 0)
        self.bench = bench
        self.name = f"{options.kind}-{split}-{self.seed}"

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Task:
        number = place_of(index, self)
        scene, turn = divmod(number, self.options.cycles)
        task = TASKS.get((self.options, self.split, self.seed, scene), lambda: self._draw(scene))
        if self.options.cycles > 1:
            task = _cycled(task, f"{self.name}-{number}", turn)
        return replace(task, meta={"bench": self.bench, **task.meta}) if self.bench else task

    def _draw(self, scene: int) -> Task:
        stream = np.random.SeedSequence(self.seed, spawn_key=(SPLIT_KEYS[self.split], scene))
        return self.options.draw(f"{self.name}-{scene}", stream)

    def index_of(self, task_id: str) -> int:
        """Return the index of a task; raises `TaskError` if there is none."""
        prefix, _, number = task_id.rpartition("-")
        if prefix == self.name and number.isdecimal() and str(int(number)) == number and int(number) < self.size:
            return int(number)
        raise TaskError(f"no task {task_id!r} here; the ids go from {self.name}-0 to {self.name}-{self.size - 1}.")

    def __repr__(self) -> str:
        bench = f", bench={self.bench!r}" if self.bench else ""
        return f"SceneTaskSet({self.options!r}, split={self.split!r}, size={self.size}, seed={self.seed}{bench})"


def place_of(index: int, tasks: TaskSet) -> int:
    """Return an index, which may count from the end, as one from 0; raises `IndexError` out of range."""
    number = operator.index(index)
    if not -len(tasks) <= number < len(tasks):
        raise IndexError(f"index {index} is out of range: {tasks.name} has {len(tasks)} tasks")
    return number % len(tasks)


def _cycled(task: Task, task_id: str, turn: int) -> Task:
    """Rotate the choices of a task by `turn` places, which become `meta["cycle_category"]`."""
    choices = task.choices[turn:] + task.choices[:turn]
    own = {"cycle_category": str(turn), "label": string.ascii_uppercase[choices.index(task.answer)]}
    return replace(task, task_id=task_id, choices=choices, meta={**task.meta, **own})


def parse_scenes(
    scenes: str | Mapping[str, Any] | SceneOptions | None,
    split: str,
    category: str | None = None,
    *,
    default: str = DEFAULT_SCENES,
    bench: str = "",
) -> SceneTaskSet:
    """Make the task set that a `scenes` option describes.

    Args:
        scenes: A name in `SCENES`; a mapping with options to change, `"preset"` (the name to start from),
            `"difficulty"` (0 to 1, set before the other options), `"size"` and `"seed"` of the task set; options; or
            `None` for the default preset. The parts of a mixture and the scenes that are turned may be such names and
            mappings too, without `"size"` and `"seed"`.
        split: `"train"`, `"val"` or `"test"`.
        category: Only questions of this category, or `None` for all.
        default: The preset if `scenes` names none.
        bench: The benchmark that they replace; see `SceneTaskSet`.

    Raises:
        ConfigError: An unknown preset, option, category or split, or a value that is not allowed.
    """
    size, seed = None, 0
    if isinstance(scenes, Mapping):
        scenes = dict(scenes)
        size, seed = scenes.pop("size", None), scenes.pop("seed", 0)
    options = _options(scenes, default)
    return SceneTaskSet(options if category is None else options.only(category), split, size, seed, bench)


def _options(scenes: Any, default: str | None = None) -> SceneOptions:
    """Return the options that a name, a mapping or options describe; `default` is the preset if none is named."""
    changes = dict(scenes) if isinstance(scenes, Mapping) else {}
    start = changes.pop("preset", None) if isinstance(scenes, Mapping) else scenes
    options = start if isinstance(start, SceneOptions) else _preset(default if start is None else start)
    # The parts of a mixture come first: the other options apply to the new parts.
    made_of = {name: changes.pop(name) for name in ("parts", "weights", "scenes") if name in changes}
    if isinstance(made_of.get("parts"), list | tuple):
        made_of["parts"] = tuple(_options(part) for part in made_of["parts"])
        made_of.setdefault("weights", (1,) * len(made_of["parts"]))
    if "scenes" in made_of:
        made_of["scenes"] = _options(made_of["scenes"])
    options = options.with_overrides(made_of)
    if "difficulty" in changes:
        options = options.at_difficulty(changes.pop("difficulty"))
    return options.with_overrides(changes)


def _preset(name: object) -> SceneOptions:
    if not isinstance(name, str) or name not in SCENES:
        raise unknown("scene preset", name, SCENES)
    return SCENES[name]


def _at_least(option: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ConfigError(f"{option} of generated scenes is {value!r}; it must be an integer of at least {least}.")
    return int(value)
