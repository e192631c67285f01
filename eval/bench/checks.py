"""Checks before the first episode of an evaluation: its data exist, and its scorer knows their questions."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress

from codev_env.benches import BENCHES
from codev_env.errors import ConfigError
from codev_env.scoring import get_scorer
from codev_env.types import TaskSet

ALWAYS = "rules"
"""The scorer that reads any answer to any question."""


def check_scorer(name: str, tasks: Mapping[str, TaskSet]) -> None:
    """Ask a scorer about an empty answer to three tasks of each benchmark.

    Generated scenes may be of another kind than the benchmark's questions: there a refusal is only a warning.

    Args:
        name: The scorer.
        tasks: The tasks of each benchmark.

    Raises:
        ConfigError: It does not know the questions of a benchmark.
    """
    if name == ALWAYS:
        return
    scorer = get_scorer(name)
    problems: dict[str, Exception] = {}
    for bench, chosen in tasks.items():
        for index in sorted({0, len(chosen) // 2, len(chosen) - 1}):
            with suppress(Exception):  # Others, such as a broken image, are reported with their episode.
                task = chosen[index]
                try:
                    scorer(task, "")
                except ConfigError as error:
                    problems.setdefault(bench, error)
    real = [bench for bench in problems if tasks[bench].source == "real"]
    if problems:
        bench = (real or list(problems))[0]
        text = (
            f"--scorer {name} cannot score {', '.join(real or problems)}: {problems[bench]} "
            "Give another --scorer, such as official, or leave these benchmarks out."
        )
        if real:
            raise ConfigError(text)
        warnings.warn(text, RuntimeWarning, stacklevel=2)


def missing_on_hub(benches: Iterable[str]) -> dict[str, str]:
    """Return the benchmarks that are neither on the hub nor in their folder here, with the places of the folder."""
    rows = (BENCHES[bench] for bench in benches if bench in BENCHES)
    return {
        row.name: " or ".join(map(str, row.places()))
        for row in rows
        if row.folder and row.hub is None and row.find() is None
    }
