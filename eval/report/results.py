"""The results of one run, or before and after training: tiles, and a table with 95 % intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from codev_eval.report import plots

Results = Sequence[tuple[str, Mapping[str, Any]]]
"""Name of the run (`"before"`, `"after"`, or `""` for an evaluation) and its metrics, in order."""


@dataclass(frozen=True)
class Metric:
    """How a metric is shown: its name for people, what it means, and whether it is a share of one."""

    label: str
    meaning: str
    share: bool = False


METRICS = {
    "faithful": Metric("Faithful-tool rate", "episodes in which some crop clearly shows the evidence", share=True),
    "accuracy": Metric("Accuracy", "episodes with the right answer", share=True),
    "faithful_given_correct": Metric("Faithful, given correct", "of the right answers, those that looked", share=True),
    "faithful_and_correct": Metric("Faithful and correct", "looked at the evidence and answered right", share=True),
    "lazy": Metric("Lazy crops", "episodes with a crop of more than 90 % of the image", share=True),
    "lazy_crops": Metric("Lazy share of crops", "crops of more than 90 % of the image", share=True),
    "hallucinated_tool_use": Metric(
        "Hallucinated tool use", "episodes that claim a crop in their text and made none", share=True
    ),
    "tool_calls": Metric("Tool calls", "programs run per episode"),
    "crops": Metric("Crops", "returned images with a known place in the original, per episode"),
    "errors": Metric("Errors", "programs that failed, per episode"),
    "invalid_turns": Metric("Invalid turns", "turns that could not be parsed, per episode"),
    "turns": Metric("Turns", "per episode"),
    "reward_mean": Metric("Reward", "sum over an episode, mean"),
}
TILES = ("faithful", "accuracy", "faithful_and_correct")
MAIN = ("faithful", "accuracy", "faithful_given_correct", "faithful_and_correct", "tool_calls")
"""Rows that are always open; the rest is behind a disclosure."""
COUNTS = ("n", "n_judged", "n_failed", "tasks", "samples")
"""Numbers that are told in a sentence instead of a row."""


def rows_of(results: Results) -> list[str]:
    """The names of the metrics to show: the known ones first, then any other number."""
    names = {name for _, metrics in results for name, value in metrics.items() if is_number(value)}
    return [name for name in METRICS if name in names] + sorted(names - METRICS.keys() - set(COUNTS))


def is_number(value: Any) -> bool:
    """Whether a value of a JSON file is a number (`true` is none)."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def shown(name: str, value: Any) -> str:
    """A metric's value for people; `–` where it is not defined."""
    if not is_number(value):
        return "–"
    if isinstance(value, int):
        return str(value)
    return plots.percent(value) if name in METRICS and METRICS[name].share else f"{value:.2f}"


def interval_of(metrics: Mapping[str, Any], name: str) -> tuple[float, float] | None:
    """The 95 % interval of a metric, `None` where there is none."""
    pair = (metrics.get("ci95") or {}).get(name)
    return (float(pair[0]), float(pair[1])) if pair else None


def metrics_section(results: Results, parts: str = "", title: str = "", key: str = "results") -> str:
    """Return the section with tiles and table; empty without results.

    Args:
        results: Of each run.
        parts: More HTML, under the table.
        title: Instead of "Results".
        key: Id of the section.
    """
    if not results:
        return ""
    tiles = "".join(_tile(name, results) for name in TILES if any(is_number(m.get(name)) for _, m in results))
    names = rows_of(results)
    more = _table([name for name in names if name not in MAIN], results)
    if more:
        more = f'<details class="more"><summary>More metrics</summary>{more}</details>'
    counts = " and ".join(dict.fromkeys(str(metrics["n"]) for _, metrics in results if is_number(metrics.get("n"))))
    trained = any(run in ("before", "after") for run, _ in results)
    episodes = f"{counts} {'held-out ' if trained else ''}episodes; " if counts else ""
    title = title or ("Before and after training" if trained else "Results")
    return (
        f'<section id="{key}"><h2>{escape(title)}</h2>'
        f'<p class="note">{episodes}95 % intervals in brackets and as bars.</p>'
        f'<ul class="tiles">{tiles}</ul>{_table([name for name in names if name in MAIN], results)}'
        f"{more}{parts}</section>"
    )


def _table(names: Sequence[str], results: Results) -> str:
    if not names:
        return ""
    heads = "".join(f'<th scope="col">{_head(run)}</th>' for run, _ in results)
    body = "".join(_row(name, results) for name in names)
    return (
        f'<div class="scroll"><table><thead><tr><th scope="col">Metric</th>{heads}<td class="strip"></td></tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _head(run: str) -> str:
    return f'<span class="key {escape(run)}"></span>{escape(run.capitalize())}' if run else "Value"


def _tile(name: str, results: Results) -> str:
    last = shown(name, results[-1][1].get(name))
    big = last
    if len(results) > 1:
        first = shown(name, results[0][1].get(name))
        big = f'<span class="was">{first}</span><span class="arrow" aria-label="to">→</span>{last}'
    metric = METRICS[name]
    return f'<li class="tile"><p>{metric.label}</p><p class="big">{big}</p><p>{metric.meaning}</p></li>'


def _row(name: str, results: Results) -> str:
    metric = METRICS.get(name, Metric(name.replace("_", " "), ""))
    cells = "".join(f'<td class="value">{_value(name, metrics)}</td>' for _, metrics in results)
    points = [
        (run or "after", float(metrics[name]), interval_of(metrics, name))
        for run, metrics in results
        if is_number(metrics.get(name))
    ]
    top = 1.0 if metric.share else max([1e-9, *(max(v, i[1] if i else v) for _, v, i in points)]) * 1.05
    strip = plots.intervals(points, top) if all(v >= 0 for _, v, _ in points) else ""
    meaning = f"<small>{escape(metric.meaning)}</small>" if metric.meaning else ""
    return f'<tr><th scope="row">{escape(metric.label)}{meaning}</th>{cells}<td class="strip">{strip}</td></tr>'


def _value(name: str, metrics: Mapping[str, Any]) -> str:
    interval = interval_of(metrics, name)
    bracket = f"<small>[{shown(name, interval[0])}, {shown(name, interval[1])}]</small>" if interval else ""
    return f"<b>{shown(name, metrics.get(name))}</b>{bracket}"


def text_table(metrics: Mapping[str, Any]) -> str:
    """Return the metrics of one run as lines for a terminal, with their 95 % intervals."""
    lines = [f"{'metric':<24} {'value':>8}   95 % interval"]
    for name in rows_of([("", metrics)]):
        interval = interval_of(metrics, name)
        bracket = f"[{shown(name, interval[0])}, {shown(name, interval[1])}]" if interval else ""
        lines.append(f"{name:<24} {shown(name, metrics[name]):>8}   {bracket}".rstrip())
    return "\n".join(lines)


def counts_line(metrics: Mapping[str, Any]) -> str:
    """Say how many episodes there are, of how many tasks, and how many are missing or could not be judged."""
    n, tasks = metrics.get("n", 0), metrics.get("tasks", 0)
    line = f"{n} episodes" + (f" of {tasks} tasks" if is_number(tasks) and tasks not in (0, n) else "")
    judged = metrics.get("n_judged", n)
    if judged != n:
        line += f"; faithful shares are among the {judged} whose tool calls were judged"
    if metrics.get("n_failed"):
        line += f"; {metrics['n_failed']} more could not be evaluated and are not counted"
    return line


def text_results(record: Mapping[str, Any]) -> str:
    """Return metrics.json as text for a terminal: each benchmark's table, then those of its protocols."""
    from codev_eval.report.tables import tables, text_of

    parts = []
    for bench, metrics in record["benches"].items():
        told = record["sets"][bench]
        parts.append(f"\n{record['model']} on {bench} ({told['data']}, {told['source']}), {counts_line(metrics)}")
        parts.append(text_table(metrics))
        parts += [text_of(table) for table in tables(metrics)]
    used = record["usage"]
    if used["requests"]:
        cost = f", cost {used['cost']:.2f}" if used["cost"] else ""
        parts.append(
            f"{used['requests']} requests, {used['prompt_tokens']} prompt tokens,"
            f" {used['completion_tokens']} completion tokens{cost}"
        )
    return "\n\n".join(parts)
