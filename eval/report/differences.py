"""Two evaluations side by side, as their page shows them: each rate of both, and the difference with its interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from codev_eval.report import plots
from codev_eval.report.formats import difference, points, share
from codev_eval.report.results import METRICS, Metric
from codev_eval.report.tables import Table


@dataclass(frozen=True)
class ComparedRate:
    """A rate of both runs: values, the difference B - A with its interval as text, and both as strips (or `None`)."""

    metric: Metric
    a: str
    b: str
    difference: str
    values: plots.Strip | None
    interval: plots.Strip | None


@dataclass(frozen=True)
class Compared:
    """The rates of two runs on a benchmark, and how many tasks each of them has right."""

    title: str
    note: str
    rows: tuple[ComparedRate, ...]
    who: Table
    shares: plots.Axis = plots.SHARES
    points: plots.Axis = plots.POINTS


def compared(bench: str, row: Mapping[str, Any]) -> Compared:
    """Return the comparison on one benchmark.

    Args:
        bench: Its name.
        row: Its entry in comparison.json.
    """
    note = f"{row['tasks']} tasks; 95 % intervals of the difference by paired bootstrap"
    if row["faithful_definition"]:
        note += f"; definition of faithful: {row['faithful_definition']}"
    rows = tuple(_rate(name, found) for name, found in row["rates"].items())
    return Compared(bench, f"{note}.", rows, who_is_right(bench, row["mcnemar"]))


def who_is_right(bench: str, found: Mapping[str, Any]) -> Table:
    """Return the tasks that each run has right as a table.

    Args:
        bench: The benchmark.
        found: The entry `mcnemar` of comparison.json.
    """
    return Table(
        f"{bench}: who is right",
        f"McNemar's exact test, p = {found['p']:.3g}",
        ("", "B right", "B wrong"),
        (
            ("A right", str(found["both"]), str(found["only_a"])),
            ("A wrong", str(found["only_b"]), str(found["neither"])),
        ),
    )


def _rate(name: str, found: Mapping[str, Any]) -> ComparedRate:
    both = [(run, float(found[run.lower()]), None) for run in ("A", "B") if found[run.lower()] is not None]
    change, interval = found["difference"], found["ci95"]
    return ComparedRate(
        METRICS.get(name, Metric(name.replace("_", " "), "")),
        share(found["a"]),
        share(found["b"]),
        difference(change, interval) if interval else points(change),
        plots.intervals(both, plots.SHARES.high) if both else None,
        None
        if change is None
        else plots.intervals(
            [("after", change, interval and (interval[0], interval[1]))], plots.POINTS.high, plots.POINTS.low
        ),
    )
