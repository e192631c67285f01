"""Scenes from other scenes: a weighted mixture of several kinds, and scenes that are rotated or mirrored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from codev_env.errors import ConfigError, unknown
from codev_env.tasks.generators.generator import (
    SceneOptions,
    check_difficulty,
    child_seed,
    pick,
    require,
    require_names,
    stream,
)
from codev_env.transforms import CROP, TRANSFORMS, transform_box, transform_image
from codev_env.types import Task

TURNS = ("rotate_90", "rotate_180", "rotate_270", "flip_horizontal", "flip_vertical")
"""The five transforms of MVToolBench (CodeVision, arXiv 2512.03746); rotations are counter-clockwise."""


@dataclass(frozen=True)
class MixOptions(SceneOptions):
    """Options of a mixture: each task is of one of several kinds, the same one for the same index.

    `meta["kind"]` names it. Options that the mixture itself lacks are passed on to every part that has them.
    """

    kind: ClassVar[str] = "mix"

    parts: tuple[SceneOptions, ...] = ()
    """The options of each kind."""
    weights: tuple[float, ...] = ()
    """Relative frequency of each part."""

    def __post_init__(self) -> None:
        require(len(self.parts) > 0, "parts", self.parts, "options of one or more kinds of scenes")
        ok = len(self.weights) == len(self.parts) and min(self.weights) >= 0 and 0 < sum(self.weights) < float("inf")
        require(ok, "weights", self.weights, f"{len(self.parts)} numbers of at least 0, one for each part, not all 0")
        for part in self.parts:
            require(part.cycles == 1, "parts", part.kind, "kinds whose tasks do not come in cycles")

    def option_names(self) -> tuple[str, ...]:
        """Return its own options and those of its parts."""
        return tuple(dict.fromkeys((*super().option_names(), *(n for p in self.parts for n in p.option_names()))))

    def with_overrides(self, overrides: dict[str, Any]) -> SceneOptions:
        """Return a copy with other values; those of parts apply to every part with an option of that name."""
        names = super().option_names()
        own = {name: value for name, value in overrides.items() if name in names}
        for name in overrides:
            if name not in self.option_names():
                raise unknown(f"option of {self.kind} scenes", name, self.option_names())
        parts = tuple(
            part.with_overrides({n: v for n, v in overrides.items() if n not in own and n in part.option_names()})
            for part in self.parts
        )
        return super(MixOptions, replace(self, parts=parts)).with_overrides(own)

    def only(self, category: str) -> MixOptions:
        """Return a copy with the parts that have a category; raises `ConfigError` if none has."""
        found = []
        for part, weight in zip(self.parts, self.weights, strict=True):
            try:
                found.append((part.only(category), weight))
            except ConfigError:
                continue
        if not found:
            kinds = ", ".join(part.kind for part in self.parts)
            raise ConfigError(f"unknown category {category!r}: no part of this mixture has it (its parts: {kinds}).")
        return replace(self, parts=tuple(part for part, _ in found), weights=tuple(weight for _, weight in found))

    def at_difficulty(self, difficulty: float) -> MixOptions:
        """Return a copy with every part at a level of difficulty."""
        d = check_difficulty(difficulty)
        return replace(self, parts=tuple(part.at_difficulty(d) for part in self.parts))

    def draw(self, task_id: str, seed: np.random.SeedSequence) -> Task:
        """Draw the scene that belongs to a seed; see `SceneOptions.draw`."""
        shares = np.asarray(self.weights, float) / sum(self.weights)
        part = self.parts[int(stream(seed, 0).choice(len(self.parts), p=shares))]
        task = part.draw(task_id, child_seed(seed, 1))
        return replace(task, meta={"kind": part.kind, **task.meta})


@dataclass(frozen=True)
class TurnedOptions(SceneOptions):
    """Options of scenes that are rotated or mirrored; all boxes are in pixels of the resulting image.

    `Task.transform` is `"crop"` and the transform, as in MVToolBench. Options that it lacks itself are those of the
    scenes that it transforms.
    """

    kind: ClassVar[str] = "turned"

    scenes: SceneOptions | None = None
    """Options of the scenes that are transformed."""
    transforms: tuple[str, ...] = TURNS
    """The transforms; each scene takes one. See `codev_env.transforms`."""

    def __post_init__(self) -> None:
        require(self.scenes is not None, "scenes", self.scenes, "options of a kind of scenes")
        require(self._inner.cycles == 1, "scenes", self._inner.kind, "a kind whose tasks do not come in cycles")
        require_names("transforms", self.transforms, TRANSFORMS)

    @property
    def _inner(self) -> SceneOptions:
        if self.scenes is None:
            raise ConfigError("scene option 'scenes' is None; it must be options of a kind of scenes.")
        return self.scenes

    def option_names(self) -> tuple[str, ...]:
        """Return its own options and those of the scenes that it transforms."""
        return tuple(dict.fromkeys((*super().option_names(), *self._inner.option_names())))

    def with_overrides(self, overrides: dict[str, Any]) -> SceneOptions:
        """Return a copy with other values; options that it lacks itself apply to the scenes that it transforms."""
        names = super().option_names()
        own = {name: value for name, value in overrides.items() if name in names}
        inner = self._inner.with_overrides({name: value for name, value in overrides.items() if name not in own})
        return super(TurnedOptions, replace(self, scenes=inner)).with_overrides(own)

    def only(self, category: str) -> TurnedOptions:
        """Return a copy that asks questions of one category; raises `ConfigError` for one it does not have."""
        return replace(self, scenes=self._inner.only(category))

    def at_difficulty(self, difficulty: float) -> TurnedOptions:
        """Return a copy whose scenes are at a level of difficulty."""
        return replace(self, scenes=self._inner.at_difficulty(difficulty))

    def draw(self, task_id: str, seed: np.random.SeedSequence) -> Task:
        """Draw the scene that belongs to a seed; see `SceneOptions.draw`."""
        name = pick(stream(seed, 0), self.transforms)
        task = self._inner.draw(task_id, child_seed(seed, 1))
        size = task.image.size
        return replace(
            task,
            images=(transform_image(task.image, name), *task.images[1:]),
            targets=tuple(transform_box(box, size, name) for box in task.targets),
            transform=(CROP, *task.transform, name),
            meta={**task.meta, "objects": [_turned(item, size, name) for item in task.meta["objects"]]},
        )


def _turned(item: Mapping[str, Any], size: tuple[int, int], name: str) -> dict[str, Any]:
    """Map the boxes of an object: `"box"` and all keys that end with `"_box"`."""
    boxes = {key: list(transform_box(item[key], size, name)) for key in item if key == "box" or key.endswith("_box")}
    return {**item, **boxes}
