"""Tasks: benchmarks and training sets from disk or the hub, and generated scenes, behind one loader."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from codev_env.benches import BENCHES, Bench
from codev_env.errors import BadRows, CodevError, ConfigError, TaskError, nearest_name, unknown
from codev_env.tasks.check import Checked, check_tasks
from codev_env.tasks.filtered import FilteredTaskSet
from codev_env.tasks.generators.charts import ChartOptions
from codev_env.tasks.generators.counting import CountingOptions
from codev_env.tasks.generators.documents import DocumentOptions
from codev_env.tasks.generators.hr import HRBenchOptions
from codev_env.tasks.generators.mix import MixOptions, TurnedOptions
from codev_env.tasks.generators.sums import SumsOptions
from codev_env.tasks.opening import READERS, get_bench, open_bench
from codev_env.tasks.readers.rowset import check_on_error
from codev_env.tasks.readers.vstar import VStarTaskSet
from codev_env.tasks.scenes import SCENES, GridOptions, SceneOptions, SceneTaskSet, SearchOptions, parse_scenes
from codev_env.tasks.wrappers import TransformedTaskSet, WrapOptions, parse_wrappers, wrap_tasks
from codev_env.types import TaskSet

__all__ = [
    "BENCHES",
    "READERS",
    "SCENES",
    "Bench",
    "ChartOptions",
    "Checked",
    "CountingOptions",
    "DocumentOptions",
    "FilteredTaskSet",
    "GridOptions",
    "HRBenchOptions",
    "MixOptions",
    "SceneOptions",
    "SceneTaskSet",
    "SearchOptions",
    "SumsOptions",
    "TransformedTaskSet",
    "TurnedOptions",
    "VStarTaskSet",
    "check_tasks",
    "default_split",
    "load_tasks",
    "narrow",
    "open_bench",
    "wrap_tasks",
]

_GENERATED_SPLITS = ("train", "val", "test")
_OWN = {"path", "source", "split", "subset", "on_error", "columns", "image_folder"}  # no keys of `reader`
_WORDS = ("synthetic", "auto", "hub")  # values of `data` besides paths


def default_split(bench: str) -> str:
    """Return the first split that the real data of a benchmark has; raises `ConfigError` for an unknown benchmark."""
    return get_bench(bench).splits[0]


def load_tasks(
    data: Any,
    split: str,
    *,
    bench: str = "vstar",
    scenes: str | Mapping[str, Any] | SceneOptions | None = None,
    subset: str | None = None,
    seed: int = 0,
    on_error: str = "raise",
    columns: Mapping[str, Any] | None = None,
    reader: Mapping[str, Any] | None = None,
    image_folder: str | Path | None = None,
    wrap: str | Sequence[str] | Mapping[str, Any] | None = None,
    only: str | Path | None = None,
) -> TaskSet:
    """Load the tasks of one split.

    Args:
        data: A path: the data's folder or file. `"hub"`: the published data, downloaded unless that was done before.
            `"synthetic"`: generated scenes. `"auto"`: the data if it is found under `$CODEV_DATA` or `./data`, else
            generated scenes with one warning. For `bench="dataset"` also a data set's name on the hub, `"owner/name"`,
            or rows in memory: a list of dicts, a `DataFrame` of pandas or polars, a `datasets.Dataset`; no `"auto"`.
        split: `"train"`, `"val"`, `"test"`, or another that the real data has.
        bench: The benchmark or training set: a name in `BENCHES`.
        scenes: The kind of generated scenes: a preset's name (`"toy"`, `"vstar"`, `"vstar-4k"`, …), a mapping of
            options with the key `"preset"`, or options; `None` for those that replace the benchmark. Also takes
            `"size"`, `"seed"` and `"difficulty"`.
        subset: Only tasks of this category, for example `"relative_position"`; with `wrap`, also the name of one of
            its variants, for example `"rotate_90"`; `None` for all.
        seed: Seeds choices that the real data leaves open, such as the order of the options of V*Bench.
        on_error: For bad rows of real data: `"raise"`, or `"skip"` with a count.
        columns: For `bench="dataset"`: the column of each task field, see `dataset.open_dataset`.
        reader: For `bench="dataset"`: more options of `dataset.open_dataset`.
        image_folder: For `bench="dataset"`: folder of relative image paths; `None` for the folder of the rows.
        wrap: Transforms and corruptions: a suite (`"orientation"`, `"corruption"`), names, or a mapping; see
            `wrappers.parse_wrappers`.
        only: A file of task ids, as `codev data filter` writes it: only these tasks, in the order of the file.

    Raises:
        TaskError: Missing or invalid data.
        ConfigError: An option that cannot be used.
    """
    found = get_bench(bench)
    if isinstance(data, os.PathLike):
        data = os.fspath(data)
    if not isinstance(data, str) and bench != "dataset":
        raise ConfigError(
            f"data is a {type(data).__name__}; bench={bench!r} reads files: give their path. "
            "Rows in memory are data of your own: bench='dataset'."
        )
    if isinstance(data, str) and not data:
        raise ConfigError("data is empty; give a path, or 'synthetic' for generated scenes.")
    if not isinstance(split, str):
        raise ConfigError(f"split is {split!r}; it must be the name of a split, such as 'test'.")
    check_on_error(on_error)
    if reader is not None and not (isinstance(reader, Mapping) and all(isinstance(name, str) for name in reader)):
        raise ConfigError(
            f"reader is {reader!r}; it must map options to values: reader={{'boxes': 'xywh'}} (--reader boxes=xywh)."
        )
    wrapped = parse_wrappers(wrap)
    variant = subset if wrapped is not None and subset in wrapped.transforms else None
    options: dict[str, Any] = {"subset": None if variant else subset, "seed": seed, "on_error": on_error}
    for name in sorted(_OWN & set(reader or {})):
        raise ConfigError(f"reader: {name!r} is no option of the reader; it is an argument of its own.")
    if bench == "dataset":
        options |= {"columns": columns, "image_folder": image_folder, **(reader or {})}
    elif columns or reader or image_folder:
        raise ConfigError(
            f"columns, reader and image_folder describe your own data: leave them out for bench={bench!r}."
        )
    if isinstance(data, str) and data == "synthetic" and bench == "dataset":
        for name, value in (("columns", columns), ("reader", reader), ("image_folder", image_folder)):
            if value:
                raise ConfigError(
                    f"option {name!r} is {value!r}, but data is 'synthetic': {name} only describes data of your own. "
                    "Leave it out, or give the path of your data."
                )
    if isinstance(data, str) and data in ("synthetic", "auto"):
        try:
            tasks = _generated_or_found(data, split, found, scenes, options)
        except ConfigError as error:
            raise _with_variants(error, options["subset"], wrapped) from None
    elif scenes is not None:
        given = f"the path {data!r}" if isinstance(data, str) else f"a {type(data).__name__}"
        raise ConfigError(
            f"option 'scenes' is {scenes!r}, but data is {given}: scenes only describe generated tasks. "
            "Leave it out, or use data='synthetic'."
        )
    else:
        if isinstance(data, str):
            _check_word(data)
        try:
            tasks = open_bench(bench, data, split, **options)
        except TaskError as error:
            raise _with_variants(error, options["subset"], wrapped) from None
    return narrow(wrap_tasks(tasks, wrap, variant), only)


def narrow(tasks: TaskSet, only: str | Path | None) -> TaskSet:
    """Return the tasks that a file names, in its order, or all tasks without a file; see `FilteredTaskSet`."""
    if only is None or only == "":
        return tasks
    if not isinstance(only, str | os.PathLike):
        raise ConfigError(
            f"only is {only!r}; it must be the path of a file of task ids (`codev data filter` writes one)."
        )
    if not Path(only).is_file():
        raise TaskError(
            f"only is {str(only)!r}: no such file. It must be a file of task ids, as `codev data filter` writes it."
        )
    return FilteredTaskSet(tasks, only)


def _with_variants(error: CodevError, subset: str | None, wrapped: WrapOptions | None) -> CodevError:
    """Add the names of the variants to the error for an unknown subset, which can be a variant as well."""
    if subset is None or wrapped is None or isinstance(error, BadRows) or repr(subset) not in str(error):
        return error
    return type(error)(f"{error} Variants of the transforms: {', '.join(wrapped.transforms)}.")


def _check_word(data: str) -> None:
    """Raise `ConfigError` for a value that is no path but close to a word that `data` accepts."""
    near = nearest_name(data, _WORDS, cutoff=0.7)
    if near and data not in _WORDS and not Path(data).exists():
        raise ConfigError(
            f"data is {data!r}, which is no file or folder. Did you mean {near!r}? Otherwise check the path."
        )


def _generated_or_found(data: str, split: str, bench: Bench, scenes: Any, options: dict[str, Any]) -> TaskSet:
    """Open the real data if `data` is `"auto"` and it is found, else generated scenes, with a warning."""
    splits = dict.fromkeys((*_GENERATED_SPLITS, *bench.splits))
    if split not in splits:
        raise unknown("split", split, splits)
    if data == "auto" and not bench.places():
        rows = ", or a list of dicts" if bench.name == "dataset" else ""
        raise ConfigError(
            f"{bench.env_id} is for data of your own and has no default folder. Name it: data='rows.jsonl' (JSONL, "
            f"JSON, TSV, Parquet or a folder; --data on the command line){rows}. "
            "data='synthetic' gives generated scenes."
        )
    place = bench.find() if data == "auto" else None
    if place is not None and split in bench.splits:
        return open_bench(bench.name, place, split, **options)
    kind = split if split in _GENERATED_SPLITS else "test"
    tasks = parse_scenes(scenes, kind, options["subset"], default=bench.scenes, bench=bench.name)
    if data == "auto":
        looked = " or ".join(str(path) for path in bench.places())
        reason = f"{bench.title} has no split {split!r}" if place else f"no {bench.title} found at {looked}"
        warnings.warn(
            f"{reason}: using generated scenes ({tasks.name}). Their scores are not those of the benchmark. "
            "Give the benchmark's folder as data, or data='synthetic' to ask for generated scenes.",
            stacklevel=3,
        )
    return tasks
