"""The table of benchmarks and training sets: where each is looked for and what opens it."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codev_env.errors import unknown
from codev_env.tasks.readers.checks import Rules
from codev_env.tasks.readers.rowset import OnError
from codev_env.types import TaskSet

_GIVEN = {"path", "source", "split", "subset", "seed", "on_error", "images", "columns", "image_folder"}
"""Arguments of openers that have options of their own, or none; what else an opener takes are its reader's options."""


@dataclass(frozen=True)
class Bench:
    """One benchmark or training set.

    Attributes:
        name: What `bench=` takes, and `task.meta["bench"]`.
        title: What people call it.
        folder: Folder that `data="auto"` looks for under `$CODEV_DATA` and `./data`; `""` for none.
        splits: Splits that the real data has.
        opener: `"module:function"`, called as `open_…(path, split, subset=…, seed=…, on_error=…, images=…)`.
        scenes: Preset of the generated scenes that stand in for it.
        needs: What a file in `folder` must be called, as a shell pattern, where several benchmarks share the folder.
    """

    name: str
    title: str
    folder: str
    splits: tuple[str, ...]
    opener: str
    scenes: str = "vstar"
    needs: str = ""

    def places(self) -> tuple[Path, ...]:
        """Return where `data="auto"` looks, first place first."""
        roots = (os.environ.get("CODEV_DATA"), "data")
        return tuple(Path(root) / self.folder for root in roots if root and self.folder)

    def find(self) -> Path | None:
        """Return the folder with the data, or `None`."""
        return next((place for place in self.places() if place.is_dir() and self._is_in(place)), None)

    def _is_in(self, place: Path) -> bool:
        return not self.needs or any(any(folder.glob(self.needs)) for folder in (place, place / "data"))

    def open(
        self,
        path: str | Path,
        split: str,
        *,
        subset: str | None = None,
        seed: int = 0,
        on_error: OnError = "raise",
        images: Rules = None,
        **options: Any,
    ) -> TaskSet:
        """Open the real data.

        Args:
            path: The folder or file; `"hub"` to download it, or use what was downloaded before.
            split: A split of `splits`.
            subset: Only this category.
            seed: Seeds what the data set leaves open, such as the order of options.
            on_error: What to do about bad rows: `"raise"` or `"skip"`.
            images: What pictures are accepted; `None` for the defaults.
            options: More options of the opener (for `"dataset"`: `columns` and others).

        Raises:
            TaskError: Data that is missing or makes no sense.
            ConfigError: An option that cannot be used.
        """
        if str(path) == "hub":
            from codev_env.tasks.readers.hub import fetch

            path = fetch(self.name)
        opener = resolve(self.opener)
        known = inspect.signature(opener).parameters
        for name in options:
            if name not in known:
                raise unknown(f"option of the reader of {self.name!r}", name, known.keys() - _GIVEN)
        opened: TaskSet = opener(path, split, subset=subset, seed=seed, on_error=on_error, images=images, **options)
        return opened


def resolve(name: str) -> Callable[..., Any]:
    """Import what `"module:function"` names."""
    module, _, attribute = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return found


_READERS = "codev_env.tasks.readers"

BENCHES = {
    bench.name: bench
    for bench in (
        Bench("vstar", "V*Bench", "vstar_bench", ("test",), f"{_READERS}.vstar:open_vstar"),
        Bench(
            "hrbench4k",
            "HR-Bench 4K",
            "HR-Bench",
            ("test",),
            f"{_READERS}.hrbench:open_hrbench4k",
            "hrbench-4k",
            "*4[kK]*",
        ),
        Bench(
            "hrbench8k",
            "HR-Bench 8K",
            "HR-Bench",
            ("test",),
            f"{_READERS}.hrbench:open_hrbench8k",
            "hrbench-8k",
            "*8[kK]*",
        ),
        Bench(
            "mathvista",
            "MathVista",
            "MathVista",
            ("test", "testmini"),
            f"{_READERS}.mathvista:open_mathvista",
            "mathvista",
        ),
        Bench("mvtool", "MVToolBench", "MVToolBench", ("test",), f"{_READERS}.mvtool:open_mvtool", "mvtool"),
        Bench("codev-rl", "CodeV-RL-Data", "CodeV-RL-Data", ("train",), f"{_READERS}.verl:open_codev_rl", "codev-rl"),
        Bench(
            "codevision-rl",
            "CodeVision-RL",
            "CodeVision-RL",
            ("train",),
            f"{_READERS}.verl:open_codevision_rl",
            "codevision-rl",
        ),
        Bench(
            "deepeyes",
            "DeepEyes-Datasets-47k",
            "DeepEyes-Datasets-47k",
            ("train",),
            f"{_READERS}.verl:open_deepeyes",
            "deepeyes",
        ),
        Bench("dataset", "your own data", "", ("train", "val", "test"), f"{_READERS}.dataset:open_dataset"),
    )
}
"""All benchmarks and training sets by name."""
