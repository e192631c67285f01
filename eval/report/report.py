"""The report: one self-contained HTML page of a training run, of an evaluation, or of two evaluations side by side."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from codev_env import __version__
from codev_env.errors import CodevError
from codev_env.files import write_text
from codev_env.trajectory import FILE_NAME as TRAJECTORIES
from codev_env.trajectory import Trajectory, read_trajectories
from codev_eval.bench.folder import REPORT
from codev_eval.bench.measures import bench_of
from codev_eval.bench.suspicions import suspicions
from codev_eval.report.episodes import task_section, variant_of
from codev_eval.report.images import ImageStore
from codev_eval.report.plots import histogram
from codev_eval.report.results import Results, counts_line, metrics_section
from codev_eval.report.tables import Table, failures, html_of, tables
from codev_eval.report.training import curves_section, facts_of, read_history, seconds_section

RUN_TASKS = 12
"""Tasks shown in the report of a training run."""
EVAL_EPISODES = 1000
"""Episodes shown in the report of an evaluation."""
COMPARED_TASKS = 500
"""Tasks shown in the report of two evaluations."""
RUNS_NAMED = 5
"""Runs that an error names."""

FAITHFUL = (
    "An answer can be right without a look at the evidence. So beside accuracy this page counts how often an episode is"
    " <em>faithful</em>: some tool call clearly showed what the question asks about as its main content."
)


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
    name = str(summary.get("name") or run.resolve().name)
    about = f'<p class="lead">{escape(str(summary["about"]))}</p>' if summary.get("about") else ""
    history = read_history(run / "history.jsonl")
    played = {
        part: read_trajectories(run / part) for part in ("before", "after") if (run / part / TRAJECTORIES).is_file()
    }
    page = render_page(
        kicker="Training run",
        title=name,
        lead=f'{about}<p class="lead">A policy answers questions about pictures; it may write Python that looks'
        f" closer, and gets back what that program shows. {FAITHFUL}</p>",
        facts=facts_of(summary),
        results=metrics_section(results),
        curves=curves_section(history),
        seconds=seconds_section(summary.get("seconds") or {}, history),
        played=played,
        limit=RUN_TASKS,
    )
    return write_page(run / REPORT, page)


def write_report(
    out_dir: str | os.PathLike[str],
    trajectories: Sequence[Trajectory],
    metrics: Mapping[str, Any],
    title: str,
    conditions: str = "",
) -> Path:
    """Write `report.html` of an evaluation.

    Args:
        out_dir: The folder, made if missing.
        trajectories: The episodes, in the order to show.
        metrics: The content of metrics.json, or what `codev_env.metrics.summarize` says of the episodes.
        title: The page's title.
        conditions: HTML that leads to the pages of other conditions.

    Returns:
        The path of the page.
    """
    page = render_page(
        kicker="Evaluation",
        title=title,
        lead=f'<p class="lead">{FAITHFUL}</p>',
        facts=_facts(metrics) if "benches" in metrics else "",
        results=_results(metrics) + conditions,
        played={"": list(trajectories)},
        limit=EVAL_EPISODES,
    )
    return write_page(Path(out_dir) / REPORT, page)


def write_comparison(
    path: Path, played: Mapping[str, Sequence[Trajectory]], parts: Sequence[Table], title: str
) -> Path:
    """Write the page of two evaluations side by side.

    Args:
        path: Of the page.
        played: The episodes by name of the run.
        parts: What to say about their differences.
        title: The page's title.

    Returns:
        The path of the page.
    """
    page = render_page(
        kicker="Comparison",
        title=title,
        lead=f'<p class="lead">{FAITHFUL}</p>',
        results=f'<section id="results"><h2>Results</h2>{_parts(parts)}</section>',
        played=played,
        limit=COMPARED_TASKS,
    )
    return write_page(path, page)


def live_page(
    run: Path, played: Mapping[str, Sequence[Trajectory]], results: Results, version: str, condition: str = ""
) -> str:
    """Return the page of a run under way, which loads itself again when the server tells another version.

    Args:
        run: The run's folder.
        played: The newest episodes of each part of the run.
        results: What they measure so far.
        version: What the server tells until something changes.
        condition: What is played other than the plain episodes.
    """
    history = read_history(run / "history.jsonl")
    return render_page(
        kicker="Live view",
        title=run.resolve().name,
        lead=f'<p class="lead">The newest episodes first. {FAITHFUL}</p>',
        results=metrics_section(results, title=f"Results so far: {condition}" if condition else ""),
        curves=curves_section(history),
        played=played,
        limit=RUN_TASKS * 5,
        live=version,
    )


def _facts(record: Mapping[str, Any]) -> str:
    """Say what was asked for, and what it took."""
    used = record.get("usage") or {}
    tokens = {name.replace("_", " "): used[name] for name in ("prompt_tokens", "completion_tokens") if used.get(name)}
    names = ("model", "data", "source", "split", "scorer", "judge", "reward", "seed", "samples")
    cost = {"cost": round(used["cost"], 2)} if used.get("cost") else {}
    return facts_of({name: record[name] for name in names if name in record} | tokens | cost)


def _results(metrics: Mapping[str, Any]) -> str:
    if "benches" not in metrics:
        return metrics_section([("", metrics)])
    sections = []
    for number, (bench, found) in enumerate(metrics["benches"].items()):
        plots = "".join(
            histogram(title, found[name]["bins"])
            for name, title in (("coverage", "Share of the target in the best crop"), ("iou", "IoU of the best crop"))
            if (found.get(name) or {}).get("n")
        )
        parts = _parts([*tables(found), *failures(metrics, bench)])
        parts = f'<div class="curves">{plots}</div>{parts}' if plots else parts
        counts = counts_line(found)
        note = f'<p class="note">{escape(counts)}.</p>' if counts != f"{found.get('n')} episodes" else ""
        title = f"Results: {bench}" if len(metrics["benches"]) > 1 else "Results"
        key = "results" if number == 0 else f"results-{number}"
        sections.append(metrics_section([("", found)], note + parts, title, key))
    return "".join(sections)


def _parts(parts: Sequence[Table]) -> str:
    return f'<div class="parts">{"".join(map(html_of, parts))}</div>'


def read_summary(run: Path) -> dict[str, Any]:
    """Read `summary.json` of a training run."""
    path = run / "summary.json"
    try:
        summary = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ReportError(
            f"cannot read {path}: {error.strerror}. Give the folder of a finished training run or evaluation, which "
            f"holds summary.json or metrics.json{runs_below(run, ('summary.json', 'metrics.json'))}."
        ) from error
    except ValueError as error:
        raise ReportError(f"{path} is not JSON ({error}). Train again or restore the file.") from error
    if not isinstance(summary, dict):
        raise ReportError(f"{path} holds {type(summary).__name__}, not an object with the results of a run.")
    return summary


def runs_below(folder: Path, files: Sequence[str]) -> str:
    """Return `, such as …` with the folders in `folder` that hold one of `files`; empty where none does."""
    found = sorted({str(path.parent) for name in files for path in folder.glob(f"*/{name}")})
    more = f" and {len(found) - RUNS_NAMED} more" if len(found) > RUNS_NAMED else ""
    return f", such as {', '.join(found[:RUNS_NAMED])}{more}" if found else ""


def render_page(
    *,
    kicker: str,
    title: str,
    lead: str,
    played: Mapping[str, Sequence[Trajectory]],
    limit: int,
    facts: str = "",
    results: str = "",
    curves: str = "",
    seconds: str = "",
    live: str = "",
) -> str:
    """Fill the page's template.

    Args:
        kicker: What kind of page it is, as text.
        title: The title, as text.
        lead: What it is about, as HTML, as are `facts`, `results`, `curves` and `seconds`.
        played: The episodes by name of the run.
        limit: Most tasks to show.
        facts: The settings.
        results: The metrics.
        curves: The curves over training.
        seconds: Where the time went.
        live: Version of a page that a server makes again; empty for one that stands alone.
    """
    tasks = pair(played)
    store = ImageStore(*picture_size(min(limit, len(tasks))))
    order = "the newest first" if live else "in the order of the data set; none was picked"
    episodes = _episodes_section(played, tasks, limit, store, order)
    files = resources.files("codev_eval.report")
    script = files.joinpath("report.js").read_text("utf-8")
    links = {
        "results": "Results",
        "conditions": "Conditions",
        "training": "Training",
        "time": "Time",
        "episodes": "Episodes",
    }
    written = results + curves + seconds + episodes
    nav = "".join(f'<a href="#{key}">{text}</a>' for key, text in links.items() if f'<section id="{key}"' in written)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Template(files.joinpath("report.html").read_text("utf-8")).substitute(
        kicker=escape(kicker),
        title=escape(title),
        lead=lead,
        facts=facts,
        nav=nav,
        results=results,
        curves=curves,
        seconds=seconds,
        episodes=episodes,
        pictures=store.html(),
        script=script,
        script_hash=f"sha256-{digest}",
        style=files.joinpath("report.css").read_text("utf-8"),
        version=escape(__version__),
        connect="; connect-src 'self'" if live else "",
        live=escape(live),
    )


def picture_size(tasks: int) -> tuple[int, int]:
    """Greatest width in pixels and JPEG quality of the pictures of a page, so that it stays below some 20 MB."""
    return (480, 82) if tasks <= 60 else (320, 76) if tasks <= 300 else (256, 68)


def pair(played: Mapping[str, Sequence[Trajectory]]) -> list[list[tuple[str, Trajectory]]]:
    """Group the episodes of all runs by task, in the order of the first run that has the task."""
    tasks: dict[tuple[str, str, int], list[tuple[str, Trajectory]]] = {}
    for run, trajectories in played.items():
        seen: dict[tuple[str, str], int] = {}
        for trajectory in trajectories:
            # A task that was sampled several times is shown several times.
            name = bench_of(trajectory), trajectory.task_id
            sample = seen[name] = seen.get(name, -1) + 1
            tasks.setdefault((*name, sample), []).append((run, trajectory))
    return list(tasks.values())


def _episodes_section(
    played: Mapping[str, Sequence[Trajectory]],
    tasks: Sequence[Sequence[tuple[str, Trajectory]]],
    limit: int,
    store: ImageStore,
    order: str,
) -> str:
    if not tasks:
        return ""
    shown = tasks[:limit]
    which = f"The first {len(shown)} of {len(tasks)} tasks" if len(shown) < len(tasks) else f"All {len(tasks)} tasks"
    note = (
        f"{which}, {order}. Dashed: where the evidence is. Solid, numbered: what"
        " each returned image shows. Keys: <kbd>j</kbd> and <kbd>k</kbd> go to the next and the previous task,"
        " <kbd>c</kbd> and <kbd>f</kbd> filter by the answer and by the look, <kbd>r</kbd> takes the filters back."
    )
    sections = "\n".join(task_section(runs, store) for runs in shown)
    return (
        f'<section id="episodes" tabindex="-1"><h2>Episodes</h2><p class="note">{note}</p>'
        f'{_filters(played, shown)}<p id="nothing" class="empty" hidden>No episode fits these filters.</p>'
        f"\n{sections}\n</section>"
    )


def _filters(played: Mapping[str, Sequence[Trajectory]], shown: Sequence[Sequence[tuple[str, Trajectory]]]) -> str:
    parts = [
        _segments("correct", "Answer", {"": "all", "1": "correct", "0": "wrong"}),
        _segments("faithful", "Looked", {"": "all", "1": "faithful", "0": "not"}),
    ]
    if len(played) > 1:
        parts.append(_segments("run", "Run", {"": "both", **{name: name for name in played}}))
        parts.append(
            _segments("differ", "Runs", {"": "all", "answer": "answer differently", "correct": "one is right"})
        )
    episodes = [trajectory for runs in shown for _, trajectory in runs]
    parts.append(_select("bench", "Benchmark", {bench_of(t) for t in episodes}, 2))
    parts.append(_select("category", "Category", {t.category for t in episodes}, 2))
    parts.append(_select("variant", "Variant", {variant_of(t) for t in episodes}, 2))
    parts.append(_select("suspected", "Hack suspected", {sign for t in episodes for sign in suspicions(t)}, 1))
    for kind, text in (("target", "targets"), ("crop", "crops")):
        box = f'<input type="checkbox" name="show-{kind}" checked>'
        parts.append(f'<label class="check">{box}<span class="dash {kind}"></span>{text}</label>')
    count = sum(len(runs) for runs in shown)
    parts.append(f'<button type="reset">Reset</button><output id="count" aria-live="polite">{count} episodes</output>')
    form = '<form id="filters" class="filters" aria-label="Filter the episodes" autocomplete="off">'
    return f"{form}{''.join(parts)}</form>"


def _select(name: str, label: str, values: set[str], least: int) -> str:
    """Return a choice of values, empty where there are fewer than `least`."""
    named = sorted(values - {""})
    if len(named) < least:
        return ""
    options = "".join(f'<option value="{escape(v)}">{escape(v.replace("_", " "))}</option>' for v in named)
    return f'<label>{label} <select name="{name}"><option value="">all</option>{options}</select></label>'


def _segments(name: str, legend: str, options: Mapping[str, str]) -> str:
    labels = "".join(
        f'<label><input type="radio" name="{name}" value="{escape(value)}"{"" if value else " checked"}>'
        f"{escape(text)}</label>"
        for value, text in options.items()
    )
    return f'<fieldset><legend>{legend}</legend><span class="segments">{labels}</span></fieldset>'


def write_page(path: Path, page: str) -> Path:
    """Write a page whole or not at all, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, page)
    return path
