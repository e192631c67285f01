"""The report: one self-contained HTML page of a training run, of an evaluation, or of two evaluations side by side."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from codev_env.app.options import words_of
from codev_env.errors import CodevError
from codev_env.trajectory import FILE_NAME as TRAJECTORIES
from codev_env.trajectory import Trajectory, read_trajectories
from codev_eval.bench.folder import REPORT
from codev_eval.report.differences import Compared
from codev_eval.report.formats import counted, is_number
from codev_eval.report.page import ConditionRow, Sections, render_page, write_page
from codev_eval.report.plots import histogram
from codev_eval.report.results import Results, Section, metrics_section
from codev_eval.report.tables import failures, page_tables
from codev_eval.report.text import counts_line
from codev_eval.report.training import Facts, curves_of, facts_of, read_history, seconds_of

RUN_TASKS = 12
"""Tasks shown in the report of a training run."""
EVAL_EPISODES = 1000
"""Episodes shown in the report of an evaluation."""
COMPARED_TASKS = 500
"""Tasks shown in the report of two evaluations."""
RUNS_NAMED = 5
"""Runs that an error names."""


class ReportError(CodevError, ValueError):
    """A folder of which no report can be made."""


def write_run_report(run_dir: str | os.PathLike[str]) -> Path:
    """Write `report.html` into the folder of a training run.

    Args:
        run_dir: Holds `summary.json` and, as far as the run got, `history.jsonl` and `before/` and `after/` with
            trajectories of the same held-out tasks.

    Returns:
        The path of the page.

    Raises:
        ReportError: If there is no readable `summary.json`.
        TrajectoryError: If trajectories cannot be read.
    """
    run = Path(run_dir)
    summary = read_summary(run)
    results = [(name, summary[name]) for name in ("before", "after") if isinstance(summary.get(name), dict)]
    history = read_history(run / "history.jsonl")
    played = {
        part: read_trajectories(run / part) for part in ("before", "after") if (run / part / TRAJECTORIES).is_file()
    }
    page = render_page(
        "run.html.j2",
        str(summary.get("name") or run.resolve().name),
        Sections(
            facts=facts_of(summary),
            results=_some(metrics_section(results)),
            curves=curves_of(history),
            seconds=seconds_of(summary.get("seconds") or {}, history),
        ),
        played,
        RUN_TASKS,
        about=str(summary.get("about") or ""),
    )
    return write_page(run / REPORT, page)


def write_report(
    out_dir: str | os.PathLike[str],
    trajectories: Sequence[Trajectory],
    metrics: Mapping[str, Any],
    title: str,
    conditions: Sequence[ConditionRow] = (),
) -> Path:
    """Write `report.html` of an evaluation.

    Args:
        out_dir: The folder, made if missing.
        trajectories: The episodes, in the order to show.
        metrics: The content of metrics.json, or the result of `codev_env.scoring.metrics.summarize` on the episodes.
        title: The page's title.
        conditions: Rows that lead to the pages of other conditions.

    Returns:
        The path of the page.
    """
    sections = Sections(
        facts=_facts(metrics) if "benches" in metrics else None,
        results=_results(metrics),
        conditions=tuple(conditions),
    )
    page = render_page("evaluation.html.j2", title, sections, {"": list(trajectories)}, EVAL_EPISODES)
    return write_page(Path(out_dir) / REPORT, page)


def write_comparison(
    path: Path,
    played: Mapping[str, Sequence[Trajectory]],
    differences: Sequence[Compared],
    title: str,
    facts: Mapping[str, str],
) -> Path:
    """Write the page of two evaluations side by side.

    Args:
        path: Of the page.
        played: The episodes by name of the run.
        differences: The differences on each benchmark.
        title: The page's title.
        facts: Settings by name.

    Returns:
        The path of the page.
    """
    sections = Sections(facts=facts_of(facts), differences=tuple(differences))
    return write_page(path, render_page("comparison.html.j2", title, sections, played, COMPARED_TASKS))


def live_page(
    run: Path, played: Mapping[str, Sequence[Trajectory]], results: Results, version: str, condition: str = ""
) -> str:
    """Return the page of a run in progress, which reloads itself when the server reports another version.

    Args:
        run: The run's folder.
        played: The newest episodes of each part of the run.
        results: Their metrics so far.
        version: The version that the server reports until something changes.
        condition: Name of the condition of the episodes; empty for the plain one.
    """
    section = metrics_section(results, title=f"Results so far: {condition}" if condition else "")
    sections = Sections(results=_some(section), curves=curves_of(read_history(run / "history.jsonl")))
    return render_page("live.html.j2", run.resolve().name, sections, played, RUN_TASKS * 5, live=version)


def _some(section: Section | None) -> tuple[Section, ...]:
    return (section,) if section else ()


def _facts(record: Mapping[str, Any]) -> Facts:
    """Return the options of an evaluation, its tokens and its cost."""
    used = record.get("usage") or {}
    spent = _spent(used, ("prompt_tokens", "completion_tokens"))
    for other in ("judge", "scorer"):
        spent |= _spent(used.get(other) or {}, ("requests", "prompt_tokens", "completion_tokens"), f"{other}'s ")
    names = ("model", "data", "source", "split", "scorer", "judge", "max_turns", "reward", "seed", "samples")
    tasks = record.get("tasks") or {}
    chosen = {name: words_of(tasks[name]) for name in ("scenes", "subset", "wrap", "only") if tasks.get(name)}
    return facts_of({name: record[name] for name in names if name in record} | chosen | spent)


def _spent(used: Mapping[str, Any], names: Sequence[str], whose: str = "") -> dict[str, Any]:
    """Return those of some counts that are not 0, and the cost."""
    counts = {f"{whose}{name.replace('_', ' ')}": used[name] for name in names if used.get(name)}
    return counts | ({f"{whose}cost": round(used["cost"], 2)} if used.get("cost") else {})


def _results(metrics: Mapping[str, Any]) -> tuple[Section, ...]:
    if "benches" not in metrics:
        return _some(metrics_section([("", metrics)]))
    sections = []
    for number, (bench, found) in enumerate(metrics["benches"].items()):
        title = f"Results: {bench}" if len(metrics["benches"]) > 1 else "Results"
        section = metrics_section([("", found)], title, f"results-{number}" if number else "results")
        assert section is not None
        counts = counts_line(found)
        sections.append(
            replace(
                section,
                note=" ".join(
                    part
                    for part in (f"{counts}." * (counts != counted(found.get("n"), "episode")), section.note)
                    if part
                ),
                plots=tuple(
                    histogram(title, found[name]["bins"], _spread(found[name]))
                    for name, title in (
                        ("coverage", "Share of the target in the best crop"),
                        ("iou", "IoU of the best crop"),
                    )
                    if (found.get(name) or {}).get("n")
                ),
                tables=(*page_tables(found), *failures(metrics, bench)),
            )
        )
    return tuple(sections)


def _spread(found: Mapping[str, Any]) -> str:
    """Return the mean and the quartiles of measured places as text."""
    return f"mean {found['mean']:.2f}, quartiles {', '.join(f'{q:.2f}' for q in found['quartiles'])}"


def read_summary(run: Path) -> dict[str, Any]:
    """Read `summary.json` of a training run."""
    path = run / "summary.json"
    try:
        summary = json.loads(path.read_text("utf-8"))
    except OSError as error:
        if not path.exists() and (run / "history.jsonl").is_file():
            folder = shlex.quote(str(run))
            raise ReportError(
                f"{run} is a run of `codev train` that has not ended, so it has no results yet. `codev view {folder}` "
                f"shows how far it is; `codev train --resume {folder}` continues one that was stopped."
            ) from error
        raise ReportError(
            f"cannot read {path}: {error.strerror}. Give the folder of a finished training run or evaluation, which "
            f"holds summary.json or metrics.json{runs_below(run, ('summary.json', 'metrics.json'))}."
        ) from error
    except ValueError as error:
        raise ReportError(f"{path} is not JSON ({error}). Train again or restore the file.") from error
    if not isinstance(summary, dict):
        raise ReportError(f"{path} holds {type(summary).__name__}, not an object with the results of a run.")
    if problem := _foreign(summary):
        raise ReportError(
            f"{path} is not what `codev train` writes ({problem}). Give the folder of a training run or an evaluation."
        )
    return summary


def _foreign(summary: Mapping[str, Any]) -> str:
    """Return why a summary is none of a training run: other programs write files of that name; empty if it is one."""
    parts = ("before", "after", "seconds", "options")
    if not any(name in summary for name in parts):
        return f"it has none of {', '.join(parts)}"
    for name in parts:
        if not isinstance(summary.get(name, {}), dict | None):
            return f"{name} is no object"
    for part in ("before", "after"):
        intervals = (summary.get(part) or {}).get("ci95") or {}
        if not isinstance(intervals, dict) or not all(_is_interval(pair) for pair in intervals.values()):
            return f"ci95 of {part} has no intervals"
    return ""


def _is_interval(pair: Any) -> bool:
    return pair is None or (isinstance(pair, list) and len(pair) == 2 and all(map(is_number, pair)))


def runs_below(folder: Path, files: Sequence[str]) -> str:
    """Return `, such as …` with the folders in `folder` that hold one of `files`; empty where none does."""
    found = sorted({str(path.parent) for name in files for path in folder.glob(f"*/{name}")})
    more = f" and {len(found) - RUNS_NAMED} more" if len(found) > RUNS_NAMED else ""
    return f", such as {', '.join(found[:RUNS_NAMED])}{more}" if found else ""
