"""`codev report` and `codev view`: the pages of a run that is finished, or under way."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from codev_env.app.arguments import parse
from codev_env.app.options import POSITIONAL, Field, option_class
from codev_env.errors import ConfigError
from codev_eval.bench.folder import METRICS, PLAIN, STATE, TRAJECTORIES, read_metrics, read_played
from codev_eval.bench.measures import bench_of, sample_of
from codev_eval.report.condition_pages import write_condition_pages
from codev_eval.report.rendering import require
from codev_eval.report.report import ReportError, runs_below, write_report, write_run_report
from codev_eval.report.view import WATCHED, serve


@option_class
class ReportOptions:
    """Make report.html again from the files of a training run or an evaluation."""

    folder: Annotated[Path, POSITIONAL]
    """The run's folder: it holds summary.json (`codev train`) or metrics.json (`codev eval`)."""


@option_class
class ViewOptions:
    """Show a run in the browser while it is under way; the page is made again on every request."""

    folder: Annotated[Path, POSITIONAL]
    """The run's folder, of `codev train` or `codev eval`."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8321
    """Port on this machine; 0 takes a free one."""


def report(argv: Sequence[str]) -> int:
    """Run `codev report` and return its exit code."""
    folder = parse(ReportOptions, argv, "codev report").folder
    require()
    parts = (folder,) if (folder / METRICS).is_file() else (folder / "before", folder / "after")
    print(report_again(folder) if len(parts) == 1 else write_run_report(folder))
    if not any((part / TRAJECTORIES).is_file() for part in parts):
        names = " or ".join(str(part / TRAJECTORIES) for part in parts)
        print(f"It shows no episodes: there is no {names}.", file=sys.stderr)
    return 0


def view(argv: Sequence[str]) -> int:
    """Run `codev view` until it is interrupted, and return its exit code."""
    options = parse(ViewOptions, argv, "codev view")
    if not options.folder.is_dir():
        raise ConfigError(f"{options.folder} is no folder; give one that `codev train` or `codev eval` writes to.")
    files = (*WATCHED, STATE)
    if not any((options.folder / name).exists() for name in files):
        raise ConfigError(
            f"{options.folder} holds no run: give a folder that `codev train` or `codev eval` writes to"
            f"{runs_below(options.folder, files)}."
        )
    require()
    serve(options.folder, options.port)
    return 0


def title_of(record: dict[str, Any]) -> str:
    """Return the title of the report of an evaluation: the model without its folders or server, and the benchmarks."""
    benches = list(record["benches"])
    model = str(record["model"]).rstrip("/").rpartition("/")[2] or str(record["model"])
    model = model.rpartition("#")[2] or model  # URL#NAME
    return f"{model} on {' and '.join(benches) if len(benches) < 3 else f'{len(benches)} benchmarks'}"


def report_again(folder: Path) -> Path:
    """Make the report of an evaluation again."""
    record = read_metrics(folder)
    if "model" not in record:
        raise ReportError(f"{folder / METRICS} is not what `codev eval` writes (it names no model); evaluate again.")
    title = title_of(record)
    order = {bench: number for number, bench in enumerate(record["benches"])}
    played = {
        condition: sorted(episodes, key=lambda t: (order.get(bench_of(t), 0), t.index, sample_of(t)))
        for condition, episodes in read_played(folder).items()
    }
    return write_report(folder, played[PLAIN], record, title, write_condition_pages(folder, played, title))
