"""The results of one run, or before and after training: tiles, and groups of rows, with 95 % intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from codev_eval.report import plots
from codev_eval.report.formats import UNDEFINED, is_number, percent
from codev_eval.report.plots import SHARES, Axis
from codev_eval.report.tables import Table

Results = Sequence[tuple[str, Mapping[str, Any]]]
"""Name of the run (`"before"`, `"after"`, or `""` for an evaluation) and its metrics, in order."""


@dataclass(frozen=True)
class Metric:
    """A metric for people: its name, its meaning, and whether it is a share of one or a number per episode."""

    label: str
    meaning: str
    share: bool = False
    count: bool = False


METRICS = {
    "faithful": Metric("Faithful-tool rate", "episodes in which some crop clearly shows the evidence", share=True),
    "accuracy": Metric("Accuracy", "episodes with the right answer", share=True),
    "contrast_accuracy": Metric("Accuracy, contrast", "right answers on the scenes of eval.contrast", share=True),
    "faithful_given_correct": Metric("Faithful, given correct", "of the right answers, those that looked", share=True),
    "faithful_and_correct": Metric("Faithful and correct", "looked at the evidence and answered right", share=True),
    "any_crop": Metric("Any crop", "some crop alone shows the evidence: the papers' criterion", share=True),
    "any_crop_and_correct": Metric(
        "Any crop, and correct", "the papers' criterion, and the answer is right", share=True
    ),
    "any_crop_given_correct": Metric(
        "Any crop, given correct", "of the right answers, those that looked by the papers' criterion", share=True
    ),
    "lazy": Metric("Lazy crops", "episodes with a crop of more than 90 % of the image", share=True),
    "lazy_crops": Metric("Lazy share of crops", "crops of more than 90 % of the image", share=True),
    "hallucinated_tool_use": Metric(
        "Hallucinated tool use", "episodes that claim a crop in their text and made none", share=True
    ),
    "accuracy_without": Metric("Accuracy without the tool", "the same tasks, no tool is offered", share=True),
    "tool_gain": Metric("Gain by the tool", "accuracy with it minus accuracy without", share=True),
    "accuracy_at_once": Metric("Accuracy at once", "the same tasks, made to answer before it looks", share=True),
    "look_gain": Metric("Gain by looking", "accuracy minus that of answers at once", share=True),
    "call_gain": Metric("Gain by calls", "wrong without the tool, right with a call", share=True),
    "call_harm": Metric("Harm by calls", "right without the tool, wrong with a call", share=True),
    "schema_gain": Metric("Gain by the offer", "wrong without the tool, right with no call", share=True),
    "schema_harm": Metric("Harm by the offer", "right without the tool, wrong with no call", share=True),
    "tool_calls": Metric("Tool calls", "programs run per episode", count=True),
    "crops": Metric("Crops", "returned images with a known place in the original, per episode", count=True),
    "errors": Metric("Errors", "programs that failed, per episode", count=True),
    "invalid_turns": Metric("Invalid turns", "turns that could not be parsed, per episode", count=True),
    "turns": Metric("Turns", "per episode", count=True),
    "reward_mean": Metric("Reward", "sum over an episode, mean"),
}


TILES = ("faithful", "accuracy", "contrast_accuracy", "faithful_and_correct")
MAIN = (
    "faithful_given_correct",
    "any_crop",
    "any_crop_given_correct",
    "accuracy_without",
    "tool_gain",
    "look_gain",
    "tool_calls",
)
"""Rows that are always open; the rest is behind a disclosure."""
COUNTS = ("n", "n_judged", "n_failed", "n_not_tried", "n_cut", "tasks", "samples")
"""Numbers that the page gives in a sentence, not in a row."""


def names_of(results: Results) -> list[str]:
    """The names of the metrics to show: the known ones first, then any other number."""
    names = {name for _, metrics in results for name, value in metrics.items() if is_number(value)}
    return [name for name in METRICS if name in names] + sorted(names - METRICS.keys() - set(COUNTS))


def shown(name: str, value: Any) -> str:
    """A metric's value for people; `–` where it is not defined."""
    if not is_number(value):
        return UNDEFINED
    if isinstance(value, int):
        return str(value)
    return percent(value) if name in METRICS and METRICS[name].share else f"{value:.2f}"


def interval_of(metrics: Mapping[str, Any], name: str) -> tuple[float, float] | None:
    """The 95 % interval of a metric, `None` where there is none."""
    pair = (metrics.get("ci95") or {}).get(name) or metrics.get(f"{name}_ci95")
    return (float(pair[0]), float(pair[1])) if pair else None


@dataclass(frozen=True)
class Row:
    """A metric of every run: value and interval (empty where undefined) as text, and as a strip (or `None`)."""

    metric: Metric
    cells: tuple[tuple[str, str], ...]
    strip: plots.Strip | None


@dataclass(frozen=True)
class RowGroup:
    """Rows whose strips share an axis: title, the axis (or `None`) and the rows."""

    title: str
    axis: plots.Axis | None
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Section:
    """The results of one benchmark, or of a training run.

    Attributes:
        key: Id of the section in the page.
        title: Heading.
        episodes: How many episodes there are, in a sentence; may be empty.
        tiles: The most important metrics, which no row repeats.
        runs: Name of each run, in the order of the cells; empty for a single one.
        main: Groups of rows that are always open.
        more: The other groups.
        note: A sentence below the rows; may be empty.
        plots: Distributions.
        tables: Further tables.
        axis: Of the tiles.
    """

    key: str
    title: str
    episodes: str
    tiles: tuple[Row, ...]
    runs: tuple[str, ...]
    main: tuple[RowGroup, ...]
    more: tuple[RowGroup, ...]
    note: str = ""
    plots: tuple[plots.Histogram, ...] = ()
    tables: tuple[Table, ...] = ()
    axis: Axis = SHARES


def metrics_section(results: Results, title: str = "", key: str = "results") -> Section | None:
    """Return tiles and rows of each run's metrics; `None` without results.

    Args:
        results: Of each run.
        title: Heading; by default the one that fits the runs.
        key: Id of the section.
    """
    if not results:
        return None
    names = names_of(results)
    counts = " and ".join(dict.fromkeys(str(metrics["n"]) for _, metrics in results if is_number(metrics.get("n"))))
    parts = [run for run, _ in results if run in ("before", "after")]
    return Section(
        key,
        title or (f"{' and '.join(parts)} training".capitalize() if parts else "Results"),
        f"{counts} {'held-out ' if parts else ''}episode{'' if counts == '1' else 's'}; " if counts else "",
        tuple(_row(name, results, plots.SHARES) for name in names if name in TILES),
        tuple(run for run, _ in results),
        _groups([name for name in names if name in MAIN], results),
        _groups([name for name in names if name not in (*TILES, *MAIN)], results),
        note=definition_note([metrics for _, metrics in results]),
    )


def definition_note(found: Sequence[Mapping[str, Any]]) -> str:
    """Say by which definition of *faithful* metrics were made, and warn if it is not one and the same."""
    names = list(dict.fromkeys(str(m["faithful_definition"]) for m in found if m.get("faithful_definition")))
    if not names:
        return ""
    if len(names) > 1 or names[0].startswith("mixed"):
        return f"Different definitions of faithful, whose rates cannot be compared: {'; '.join(names)}."
    return f"Definition of faithful: {names[0]}."


def _groups(names: Sequence[str], results: Results) -> tuple[RowGroup, ...]:
    """Return rows as groups: shares, numbers per episode, and those with a unit of their own, which have no axis."""
    of = {name: METRICS.get(name, Metric(name.replace("_", " "), "")) for name in names}
    shares = [name for name in names if of[name].share]
    counts = [name for name in names if of[name].count]
    others = [name for name in names if name not in (*shares, *counts)]
    groups = (
        ("Rates", plots.SHARES, shares),
        ("Per episode", plots.axis(max([0.0, *(end for name in counts for end in _ends(name, results))])), counts),
        ("Others", None, others),
    )
    return tuple(
        RowGroup(title, axis, tuple(_row(name, results, axis) for name in found))
        for title, axis, found in groups
        if found
    )


def _ends(name: str, results: Results) -> list[float]:
    """The values of a metric and the ends of its intervals."""
    values = [float(metrics[name]) for _, metrics in results if is_number(metrics.get(name))]
    return values + [end for _, metrics in results for end in interval_of(metrics, name) or ()]


def _row(name: str, results: Results, axis: plots.Axis | None) -> Row:
    points = [
        (run or "after", float(metrics[name]), interval_of(metrics, name))
        for run, metrics in results
        if is_number(metrics.get(name))
    ]
    drawn = axis is not None and points and all(value >= 0 for _, value, _ in points)
    return Row(
        METRICS.get(name, Metric(name.replace("_", " "), "")),
        tuple((shown(name, m.get(name)), bracket(m, name)) for _, m in results),
        plots.intervals(points, axis.high, axis.low) if axis is not None and drawn else None,
    )


def bracket(metrics: Mapping[str, Any], name: str) -> str:
    """Return the 95 % interval of a metric as text, `[low, high]`; empty where there is none."""
    interval = interval_of(metrics, name)
    return f"[{shown(name, interval[0])}, {shown(name, interval[1])}]" if interval else ""
