"""The page of a report: its sections, its filters, its episodes and their images in one file."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from codev_env import __version__
from codev_env.files import write_text
from codev_env.trajectory import Trajectory
from codev_eval.bench.measures import bench_of, sample_of
from codev_eval.bench.suspicions import suspicions
from codev_eval.report.differences import Compared
from codev_eval.report.episodes import TaskView, task_of, variant_of
from codev_eval.report.formats import counted
from codev_eval.report.images import ImageStore
from codev_eval.report.rendering import render
from codev_eval.report.results import Section
from codev_eval.report.training import Curves, Facts, TimeSpent

Played = Mapping[str, Sequence[Trajectory]]
"""Episodes by name of the run."""


@dataclass(frozen=True)
class ConditionRow:
    """A condition of an evaluation: address of its page, its name, number of its episodes and two of their rates."""

    page: str
    label: str
    episodes: int
    accuracy: str
    faithful: str


@dataclass(frozen=True)
class Sections:
    """The sections of a page above the episodes; those that are empty or `None` are left out.

    Attributes:
        facts: The settings.
        results: The metrics, a section for each benchmark.
        differences: The differences of two runs, on each benchmark.
        conditions: The pages of other conditions.
        curves: The curves over training.
        seconds: The time by phase.
    """

    facts: Facts | None = None
    results: tuple[Section, ...] = ()
    differences: tuple[Compared, ...] = ()
    conditions: tuple[ConditionRow, ...] = ()
    curves: Curves | None = None
    seconds: TimeSpent | None = None


@dataclass(frozen=True)
class Choice:
    """A filter with a few values: name of the field, label, and label of each value."""

    name: str
    label: str
    values: Mapping[str, str]


@dataclass(frozen=True)
class Filters:
    """The filters above the episodes: those with buttons, those with a list, and the number of episodes."""

    buttons: tuple[Choice, ...]
    lists: tuple[Choice, ...]
    count: int


@dataclass(frozen=True)
class Episodes:
    """The episodes of a page.

    Attributes:
        shown: Which tasks of how many are shown, in words.
        filters: Above them.
        tasks: Each with its episodes.
    """

    shown: str
    filters: Filters
    tasks: tuple[TaskView, ...]


def render_page(
    template: str, title: str, sections: Sections, played: Played, limit: int, live: str = "", **data: Any
) -> str:
    """Return a page as HTML.

    Args:
        template: Name of the template; it extends `page.html.j2`.
        title: The title.
        sections: The sections above the episodes.
        played: The episodes by name of the run.
        limit: Most tasks to show.
        live: Version of a page that a server makes again; empty for a page that is a file.
        **data: Further variables of the template.
    """
    tasks = pair(played)
    store = ImageStore(*image_size(min(limit, len(tasks))))
    episodes = _episodes(played, tasks, limit, store, bool(live))
    files = resources.files("codev_eval.report") / "templates"
    script = (files / "report.js").read_text("utf-8")
    return render(
        template,
        title=title,
        sections=sections,
        episodes=episodes,
        images=store.elements(),
        script=script,
        script_hash=f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}",
        style=(files / "report.css").read_text("utf-8"),
        version=__version__,
        live=live,
        **data,
    )


def image_size(tasks: int) -> tuple[int, int]:
    """Greatest width in pixels and JPEG quality of the images of a page, which keep it below about 20 MB."""
    return (1024, 82) if tasks <= 24 else (480, 82) if tasks <= 60 else (320, 76) if tasks <= 300 else (256, 68)


def pair(played: Played) -> list[list[tuple[str, Trajectory]]]:
    """Group the episodes of all runs by task, in the order of the first run that has the task."""
    tasks: dict[tuple[str, str, int], list[tuple[str, Trajectory]]] = {}
    for run, trajectories in played.items():
        seen: set[tuple[str, str, int]] = set()
        for trajectory in trajectories:
            # A task that was sampled several times is shown several times; rollouts of training have no numbers.
            sample = sample_of(trajectory)
            while (key := (bench_of(trajectory), trajectory.task_id, sample)) in seen:
                sample += 1
            seen.add(key)
            tasks.setdefault(key, []).append((run, trajectory))
    return list(tasks.values())


def _episodes(
    played: Played, tasks: Sequence[Sequence[tuple[str, Trajectory]]], limit: int, store: ImageStore, is_live: bool
) -> Episodes | None:
    if not tasks:
        return None
    shown = tasks[:limit]
    # A live page gets the newest tasks alone, whose number says nothing of how many there are.
    which = counted(len(shown), "task") if is_live else _which(shown, tasks)
    return Episodes(which, _filters(played, shown), tuple(task_of(runs, store) for runs in shown))


def _which(shown: Sequence[Any], tasks: Sequence[Sequence[tuple[str, Trajectory]]]) -> str:
    """Say which of the tasks are shown; a task that was sampled several times is one task."""
    different = len({(bench_of(runs[0][1]), runs[0][1].task_id) for runs in tasks})
    total = counted(different, "task")
    if different < len(tasks):
        total = f"{counted(len(tasks), 'sample')} of {total}"
    if len(shown) < len(tasks):
        return f"The first {len(shown)} of {total}"
    return f"All {total}" if len(tasks) > 1 else total


def _filters(played: Played, shown: Sequence[Sequence[tuple[str, Trajectory]]]) -> Filters:
    buttons = [
        Choice("correct", "Answer", {"": "all", "1": "correct", "0": "wrong"}),
        Choice("faithful", "Looked", {"": "all", "1": "faithful", "0": "not"}),
    ]
    if len(played) > 1:
        buttons.append(Choice("run", "Run", {"": "both", **{name: name for name in played}}))
        buttons.append(
            Choice("differ", "Both runs", {"": "all", "answer": "answer differently", "correct": "one is right"})
        )
    episodes = [trajectory for runs in shown for _, trajectory in runs]
    lists = (
        ("bench", "Benchmark", {bench_of(t) for t in episodes}, 2),
        ("category", "Category", {t.category for t in episodes}, 2),
        ("variant", "Variant", {variant_of(t) for t in episodes}, 2),
        ("suspected", "Hack suspected", {sign for t in episodes for sign in suspicions(t)}, 1),
    )
    return Filters(
        tuple(buttons),
        tuple(
            Choice(name, label, {value: value.replace("_", " ") for value in sorted(values - {""})})
            for name, label, values, least in lists
            if len(values - {""}) >= least
        ),
        len(episodes),
    )


def write_page(path: Path, page: str) -> Path:
    """Write a page whole or not at all, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, page)
    return path
