"""Task sets under transforms and corruptions: every variant of every task, or one variant per task."""

from __future__ import annotations

import bisect
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from codev_env.errors import ConfigError, TaskError, nearest_name, unknown
from codev_env.geometry import image_of, same_image
from codev_env.tasks.corruption_kinds import CORRUPTIONS, SEVERITIES
from codev_env.tasks.corruptions import LIBRARY, check_library, corrupt, widen
from codev_env.tasks.frames import FRAMES, Frame, is_relational, turn_words, turns_of
from codev_env.tasks.readers.cache import TASKS
from codev_env.tasks.readers.images import in_rgb
from codev_env.tasks.scenes import place_of
from codev_env.tasks.task_fields import checked
from codev_env.transforms import CROP, TRANSFORMS, transform_box, transform_image
from codev_env.types import Source, Task, TaskSet

Mode = Literal["each", "one"]
MODES: tuple[Mode, ...] = ("each", "one")

SOURCE = "source"
"""The variant without any transform, as the tables of CodeVision name it."""

SUITES: tuple[str, ...] = ("orientation", "corruption")


@dataclass(frozen=True)
class Variant:
    """The transforms and corruptions that are applied to a task, in order; none for the source.

    Attributes:
        name: The steps joined by `+`, or `"source"`.
        steps: Names in `TRANSFORMS`, `"name:severity"` of a corruption, and `"crop"`, which asks for a crop of the
            targets, where a task has any, and moves no pixel.
    """

    name: str
    steps: tuple[str, ...]


@dataclass(frozen=True)
class WrapOptions:
    """How to wrap a task set; see `TransformedTaskSet`."""

    transforms: tuple[str, ...]
    mode: Mode = "each"
    seed: int = 0
    shares: tuple[float, ...] | None = None
    frame: Frame = "upright"


def suite(name: str, severities: Sequence[int] = SEVERITIES, *, moving: bool = False) -> tuple[str, ...]:
    """Return the variants of a named suite, the source first.

    Args:
        name: `"orientation"`: three rotations and two flips, as CodeVision's tables have them. `"corruption"`: every
            corruption that moves no pixels.
        severities: Of the corruptions.
        moving: Include the corruptions that move pixels, for which target boxes are not exact.

    Raises:
        ConfigError: An unknown suite or severity.
    """
    if name not in SUITES:
        raise unknown("suite", name, SUITES)
    if name == "orientation":
        return (SOURCE, *TRANSFORMS[:5])
    if not isinstance(severities, Sequence) or not severities or not set(severities) <= set(SEVERITIES):
        raise ConfigError(f"severities is {severities!r}; it must be a list of numbers from 1 to 5.")
    entries = [entry for entry in CORRUPTIONS.values() if moving or not entry.moves_pixels]
    return (SOURCE, *(f"{entry.name}:{severity}" for entry in entries for severity in severities))


def parse_variant(text: str) -> Variant:
    """Parse the name of a variant.

    Args:
        text: `"source"`, a transform (`"rotate_90"`), `"crop"`, a corruption with its severity (`"jpeg:3"`), or several
            of these joined by `+`, applied from left to right (`"rotate_90+jpeg:3"`).

    Raises:
        ConfigError: A name that does not exist, with the nearest one that does, or a severity that is missing or wrong.
    """
    if not isinstance(text, str):
        raise ConfigError(f"a transform is {text!r}; it must be a name such as 'rotate_90' or 'jpeg:3'.")
    if text.strip() == SOURCE:
        return Variant(SOURCE, ())
    steps = tuple(_parse_step(part.strip()) for part in text.split("+"))
    return Variant("+".join(steps), steps)


def _parse_step(text: str) -> str:
    if text in TRANSFORMS or text == CROP:
        return text
    name, colon, severity = text.partition(":")
    if name in CORRUPTIONS:
        if colon and severity in {str(number) for number in SEVERITIES}:
            return text
        raise ConfigError(f"corruption {text!r} has no severity from 1 to 5. Write for example '{name}:3'.")
    if colon and (name in TRANSFORMS or name == CROP):
        raise ConfigError(f"transform {text!r} has a severity, which only corruptions have. Write {name!r}.")
    if text in SUITES:
        raise ConfigError(f"{text!r} is a suite of many transforms: give it alone, not in a list or joined by '+'.")
    names = (*SUITES, SOURCE, *TRANSFORMS, CROP, *CORRUPTIONS)
    near = nearest_name(name, names)
    kind = "the suite " if near in SUITES else ""
    hint = f" Did you mean {kind}{near + (':3' if near in CORRUPTIONS else '')!r}?" if near else ""
    raise ConfigError(
        f"unknown transform {text!r}.{hint} Transforms: {', '.join((*TRANSFORMS, CROP))}. "
        f"Corruptions, written with a severity from 1 to 5 such as 'jpeg:3': {', '.join(CORRUPTIONS)}."
    )


def parse_wrappers(spec: str | Sequence[str] | Mapping[str, Any] | None) -> WrapOptions | None:
    """Parse how to wrap a task set, from a command line, YAML or JSON.

    Args:
        spec: `None` or an empty list for none. A suite's name (`"orientation"`, `"corruption"`). A variant or a list
            of variants (`["rotate_90", "jpeg:3"]`): every task in each of them. Or a mapping with `"transforms"` (one
            of these) and optionally `"mode"`, `"seed"`, `"shares"` (variant to weight, for mode `"one"`), `"frame"`
            and, for the corruption suite, `"severities"` and `"moving"`; also as JSON text. A list of one text is that
            text.

    Returns:
        The options, or `None` for no wrapping.

    Raises:
        ConfigError: An unknown key or name, or a value that cannot be used.
    """
    if spec is None or (isinstance(spec, Sequence) and not spec):
        return None
    if isinstance(spec, Sequence) and len(spec) == 1 and isinstance(spec[0], str):
        spec = spec[0]
    if isinstance(spec, str) and spec.lstrip().startswith("{"):
        try:
            spec = json.loads(spec)
        except ValueError as error:
            raise ConfigError(f"wrap {spec!r} is not JSON ({error}). Put it in quotes for the shell.") from error
    if not isinstance(spec, Mapping | Sequence):
        raise ConfigError(
            f"wrap is {spec!r}; it must be a suite ({', '.join(SUITES)}), or a list of names, or a mapping."
        )
    if not isinstance(spec, Mapping):
        return WrapOptions(_names(spec, {}))
    keys = ("transforms", "mode", "seed", "shares", "frame", "severities", "moving")
    for key in spec:
        if key not in keys:
            raise unknown("key of wrap", key, keys)
    if "transforms" not in spec:
        raise ConfigError(f"wrap is {dict(spec)!r} without 'transforms'. Give a suite ({', '.join(SUITES)}) or a list.")
    names = _names(spec["transforms"], {key: spec[key] for key in ("severities", "moving") if key in spec})
    shares = spec.get("shares")
    if shares is not None:
        if not isinstance(shares, Mapping):
            raise ConfigError(f"shares is {shares!r}; it must map variants to weights, such as {{'source': 1}}.")
        for name in shares:
            if name not in names:
                raise unknown("variant in shares", name, names)
        shares = tuple(shares.get(name, 0) for name in names)
    return WrapOptions(names, spec.get("mode", "each"), spec.get("seed", 0), shares, spec.get("frame", "upright"))


def _names(spec: Any, options: Mapping[str, Any]) -> tuple[str, ...]:
    if isinstance(spec, str) and spec in SUITES:
        if spec == "orientation" and options:
            raise ConfigError(f"{next(iter(options))!r} is only an option of the corruption suite. Leave it out.")
        return suite(spec, **options)
    if options:
        raise ConfigError(f"{next(iter(options))!r} is only an option of the corruption suite. Leave it out.")
    if not isinstance(spec, str | Sequence):
        raise ConfigError(f"transforms is {spec!r}; it must be a suite ({', '.join(SUITES)}) or a list of names.")
    if not isinstance(spec, str):
        return tuple(parse_variant(text).name for text in spec)
    return (parse_variant(spec).name,)


def wrap_tasks(
    tasks: TaskSet, spec: str | Sequence[str] | Mapping[str, Any] | None, subset: str | None = None
) -> TaskSet:
    """Wrap a task set as `spec` says; returns the set itself for an empty `spec`.

    Args:
        tasks: Any task set, wrapped ones included.
        spec: The wrapping, see `parse_wrappers`.
        subset: Only the tasks of this variant.

    Raises:
        ConfigError: See `parse_wrappers` and `TransformedTaskSet`.
    """
    options = parse_wrappers(spec)
    if options is None:
        return tasks
    return TransformedTaskSet(
        tasks,
        options.transforms,
        options.mode,
        options.seed,
        shares=options.shares,
        subset=subset,
        frame=options.frame,
    )


class TransformedTaskSet:
    """The tasks of another set under transforms and corruptions; each is made when it is read.

    A task's id is the source's with `@` and the variant's name. The steps are appended to `transform`, targets are
    mapped, and all images of a task get the same steps. Question and answer stay: they are about the upright image.
    `meta` gains `variant`, and from the innermost source `source_task_id` and `source_size` (width, height); all its
    other values, positions included, are those of the source.
    """

    name: str
    source: Source

    def __init__(
        self,
        tasks: TaskSet,
        transforms: Iterable[str],
        mode: Mode = "each",
        seed: int = 0,
        *,
        shares: Sequence[float] | None = None,
        subset: str | None = None,
        frame: Frame = "upright",
    ) -> None:
        """Wrap a task set; no task is read yet.

        Args:
            tasks: Any task set.
            transforms: Names of variants, see `parse_variant`; `"source"` keeps the task as it is.
            mode: `"each"`: every task in every variant, the variants of a task in a row. `"one"`: one variant for each
                task, decided by seed and task id, so that it does not depend on other tasks.
            seed: Seeds that decision and the corruptions, whose patterns otherwise depend on the task's id alone.
            shares: For mode `"one"`: a weight for each variant; equal if `None`.
            subset: For mode `"each"`: only this variant.
            frame: Where questions about left, right, above and below are asked: `"upright"` as CodeVision does, the
                answer stays, and the image has to be turned back; or `"shown"`, where question, choices and answer name
                the directions of the image as it is shown, and `transform` asks for nothing.

        Raises:
            ConfigError: A name, mode, seed or weight that cannot be used, a variant given twice, or a corruption whose
                library is missing.
        """
        variants = tuple(parse_variant(text) for text in transforms)
        names = [variant.name for variant in variants]
        if not variants:
            raise ConfigError("transforms is empty. Give at least one, for example 'rotate_90'.")
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"transform {name!r} is given twice. Remove one of them.")
        if mode not in MODES:
            raise unknown("mode", mode, MODES)
        if frame not in FRAMES:
            raise unknown("frame", frame, FRAMES)
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise ConfigError(f"seed is {seed!r}; it must be an integer of at least 0.")
        if shares is not None and mode != "one":
            raise ConfigError("shares are given with mode 'each', which makes every variant. Use mode='one'.")
        if subset is not None:
            if mode != "each":
                raise ConfigError(f"subset {subset!r} is given with mode 'one', which has no parts. Use mode='each'.")
            if subset not in names:
                raise unknown("subset", subset, names)
            variants = (variants[names.index(subset)],)
        self._version = check_library() if any(":" in step for v in variants for step in v.steps) else ""
        self.tasks, self.variants, self.mode, self.seed = tasks, variants, mode, int(seed)
        self.frame: Frame = frame
        self._bounds = _cumulative(shares, len(variants))
        self._places = {variant.name: place for place, variant in enumerate(variants)}
        self._token = object()
        label = variants[0].name if len(variants) == 1 else f"{mode}-of-{len(variants)}"
        self.name, self.source = f"{tasks.name}@{label}", tasks.source

    def __len__(self) -> int:
        return len(self.tasks) * (len(self.variants) if self.mode == "each" else 1)

    def __getitem__(self, index: int) -> Task:
        number = place_of(index, self)
        # The token, which the cache keeps alive, distinguishes this set from all others.
        return TASKS.get((self._token, number), lambda: self._make(number))

    def index_of(self, task_id: str) -> int:
        """Return the index of a task; raises `TaskError` if there is none."""
        inner, _, name = task_id.rpartition("@")
        place = self._places.get(name)
        if place is None or not inner:
            known = ", ".join(self._places)
            raise TaskError(f"no task {task_id!r} in {self.name}: ids end in '@' and one of {known}.")
        index = self.tasks.index_of(inner)
        if self.mode == "each":
            return index * len(self.variants) + place
        chosen = self._choose(inner).name
        if chosen != name:
            raise TaskError(f"no task {task_id!r} in {self.name}: this task has the variant {chosen!r} here.")
        return index

    def _choose(self, task_id: str) -> Variant:
        digest = hashlib.blake2b(f"{self.seed} {task_id}".encode(errors="surrogatepass"), digest_size=8).digest()
        share = int.from_bytes(digest, "big") / 2**64
        return self.variants[min(bisect.bisect_right(self._bounds, share), len(self.variants) - 1)]

    def _make(self, number: int) -> Task:
        if self.mode == "each":
            index, place = divmod(number, len(self.variants))
            task, variant = self.tasks[index], self.variants[place]
        else:
            task = self.tasks[number]
            variant = self._choose(task.task_id)
        return _apply(in_rgb(checked(task)), variant, self.seed, self._version, self.frame)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_token"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._token = object()

    def __repr__(self) -> str:
        names = [variant.name for variant in self.variants]
        return f"TransformedTaskSet({self.tasks!r}, {names!r}, mode={self.mode!r}, seed={self.seed})"


def _cumulative(shares: Sequence[float] | None, count: int) -> list[float]:
    """Return the upper bounds, from 0 to 1, of the variants' intervals."""
    weights = [1.0] * count if shares is None else list(shares)
    numbers = all(isinstance(w, int | float) and not isinstance(w, bool) and math.isfinite(w) for w in weights)
    if len(weights) != count or not numbers or min(weights) < 0 or sum(weights) <= 0:
        raise ConfigError(f"shares is {shares!r}; it must hold {count} weights of at least 0, not all of them 0.")
    bounds = np.cumsum(weights) / sum(weights)
    # Rounding must not leave an interval for a variant of weight 0 at the upper end.
    bounds[bounds >= bounds[-1]] = 1.0
    return [float(bound) for bound in bounds]


def _apply(task: Task, variant: Variant, seed: int, version: str, frame: Frame) -> Task:
    images, targets = task.images, task.targets
    done = [step for step in variant.steps if step != CROP or targets]  # without targets there is nothing to crop
    for step in done:
        if step == CROP:
            continue
        name, _, severity = step.partition(":")
        sizes = [image.size for image in images]
        if severity:
            images = tuple(
                corrupt(image, name, int(severity), _stream(seed, task.task_id, name, place))
                for place, image in enumerate(images)
            )
            targets = tuple(same_image(widen(box, sizes[image_of(box)], name, int(severity)), box) for box in targets)
        else:
            images = tuple(transform_image(image, name) for image in images)
            targets = tuple(same_image(transform_box(box, sizes[image_of(box)], name), box) for box in targets)
    meta = dict(task.meta)
    meta.setdefault("source_task_id", task.task_id)
    meta.setdefault("source_size", list(task.image.size))
    meta["variant"] = f"{meta['variant']}+{variant.name}" if "variant" in meta else variant.name
    if any(":" in step for step in variant.steps):
        meta["corrupted_by"] = f"{LIBRARY} {version}"
    if frame == "shown" and is_relational((task.question, *task.choices)):
        turn = turns_of(done, TRANSFORMS)
        done = [step for step in done if step not in TRANSFORMS]
        meta |= {"frame": frame, "shown_transform": turn}
        task = replace(
            task,
            question=turn_words(task.question, turn),
            answer=turn_words(task.answer, turn),
            choices=tuple(turn_words(choice, turn) for choice in task.choices),
        )
    return replace(
        task,
        task_id=f"{task.task_id}@{variant.name}",
        images=images,
        targets=targets,
        transform=(*task.transform, *done),
        meta=meta,
    )


def _stream(seed: int, task_id: str, corruption: str, image: int) -> np.random.SeedSequence:
    """Return the seed of one image of a task; it omits the severity, so that all severities share a pattern."""
    return np.random.SeedSequence(seed, spawn_key=(*f"{task_id} {corruption}".encode(errors="surrogatepass"), image))
