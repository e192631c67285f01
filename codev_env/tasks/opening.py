"""Opens the real data of a benchmark with the reader of its row in `codev_env.benches`."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Protocol

from codev_env.benches import BENCHES, Bench
from codev_env.errors import FormatError, unknown
from codev_env.registry import Registry
from codev_env.tasks.readers import hub
from codev_env.tasks.readers.annotated import open_annotated
from codev_env.tasks.readers.chartqapro import open_chartqapro
from codev_env.tasks.readers.charxiv import open_charxiv
from codev_env.tasks.readers.dataset import open_dataset
from codev_env.tasks.readers.images import Rules
from codev_env.tasks.readers.lettered import open_lettered
from codev_env.tasks.readers.mathvista import open_mathvista
from codev_env.tasks.readers.rowset import OnError, RowTaskSet
from codev_env.tasks.readers.tirbench import open_tirbench
from codev_env.tasks.readers.verl import open_verl
from codev_env.tasks.readers.video import open_video
from codev_env.tasks.readers.vstar import open_vstar


class Reader(Protocol):
    """Opens data of one format; further keyword arguments are options of the format."""

    def __call__(
        self,
        path: str | Path,
        split: str,
        /,
        *,
        bench: Bench,
        subset: str | None,
        seed: int,
        on_error: OnError,
        images: Rules,
    ) -> RowTaskSet:
        """Open the rows of one split."""
        ...


READERS: Registry[Reader] = Registry(
    "reader",
    {
        "vstar": open_vstar,
        "lettered": open_lettered,
        "annotated": open_annotated,
        "figures": open_charxiv,
        "chartqapro": open_chartqapro,
        "mathvista": open_mathvista,
        "tir": open_tirbench,
        "verl": open_verl,
        "films": open_video,
        "dataset": open_dataset,
    },
)
"""The formats by name."""

_COMMON = ("bench", "subset", "seed", "on_error", "images")
_LOADING = ("columns", "image_folder")  # arguments of `load_tasks` itself


def open_bench(
    name: str,
    path: str | Path,
    split: str = "",
    /,
    *,
    subset: str | None = None,
    seed: int = 0,
    on_error: OnError = "raise",
    images: Rules = None,
    **options: Any,
) -> RowTaskSet:
    """Open the real data of a benchmark.

    Args:
        name: A name in `BENCHES`.
        path: The folder or file; `"hub"` downloads the data, or takes the earlier download.
        split: One of the benchmark's splits; `""` for the first.
        subset: Only this category.
        seed: Seeds what the data leaves open, such as the order of options.
        on_error: For bad rows: `"raise"`, or `"skip"` with a count.
        images: Which images are accepted; `None` for the defaults.
        options: More options of the reader (for `"dataset"`: `columns` and others).

    Raises:
        TaskError: Missing or invalid data.
        ConfigError: An unknown benchmark, or an option that cannot be used.
    """
    bench = get_bench(name)
    reader = READERS.find(bench.reader)
    own = [name for name in list(inspect.signature(reader).parameters)[2:] if name not in _COMMON]
    for option in options:
        if option not in own or option in bench.reader_options:
            free = set(own) - {*_LOADING, *bench.reader_options}
            raise unknown(f"option of the reader of {bench.name!r}", option, free)
    place = hub.fetch(bench.name) if isinstance(path, str) and path == "hub" else path
    given: dict[str, Any] = {"subset": subset, "seed": seed, "on_error": on_error, "images": images}
    try:
        return reader(place, split or bench.splits[0], bench=bench, **given, **bench.reader_options, **options)
    except FormatError as error:
        if bench.name == "dataset" or "bench='dataset'" in str(error):
            raise
        raise FormatError(f"{error} If these are rows of your own, use bench='dataset' (--bench dataset).") from None


def get_bench(name: str) -> Bench:
    """Return the row of a benchmark; raises `ConfigError` for an unknown name."""
    if name not in BENCHES:
        raise unknown("bench", name, BENCHES)
    return BENCHES[name]
