"""An evaluation's results as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from codev_eval.report.formats import counted, is_number
from codev_eval.report.results import bracket, definition_note, names_of, shown
from codev_eval.report.tables import Table, tables


def text_table(metrics: Mapping[str, Any]) -> str:
    """Return the metrics of one run as lines for a terminal, with their 95 % intervals."""
    lines = [f"{'metric':<24} {'value':>8}   95 % interval"]
    for name in names_of([("", metrics)]):
        lines.append(f"{name:<24} {shown(name, metrics[name]):>8}   {bracket(metrics, name)}".rstrip())
    return "\n".join(lines)


def counts_line(metrics: Mapping[str, Any]) -> str:
    """Return the number of episodes and tasks, and of those that are missing, cut off or not judged, as a sentence."""
    n, tasks = metrics.get("n", 0), metrics.get("tasks", 0)
    line = counted(n, "episode") + (f" of {counted(tasks, 'task')}" if is_number(tasks) and tasks not in (0, n) else "")
    judged = metrics.get("n_judged", n)
    if judged != n:
        line += f"; faithful shares are among the {judged} whose tool calls were judged"
    if metrics.get("n_cut"):
        line += f"; {metrics['n_cut']} had no room for another turn and count without an answer"
    if metrics.get("n_failed"):
        line += f"; {metrics['n_failed']} more could not be evaluated and are not counted"
    if metrics.get("n_not_tried"):
        line += f"; {metrics['n_not_tried']} were not tried, because the first ones all failed"
    return line


def text_results(record: Mapping[str, Any]) -> str:
    """Return metrics.json as text for a terminal: each benchmark's table, then those of its protocols."""
    parts = []
    for bench, metrics in record["benches"].items():
        tasks = record["sets"][bench]
        parts.append(f"\n{record['model']} on {bench} ({tasks['data']}, {tasks['source']}), {counts_line(metrics)}")
        parts.append("\n".join(line for line in (text_table(metrics), definition_note([metrics])) if line))
        parts += [text_of(table) for table in tables(metrics)]
    used = record["usage"]
    if used["requests"]:
        parts.append(_usage_line(used))
    parts += [f"{name.capitalize()}: {_usage_line(used[name])}" for name in ("judge", "scorer") if name in used]
    return "\n\n".join(parts)


def _usage_line(used: Mapping[str, Any]) -> str:
    cost = f", cost {used['cost']:.2f}" if used["cost"] else ""
    tokens = f"{used['prompt_tokens']} prompt tokens, {used['completion_tokens']} completion tokens"
    return f"{used['requests']} requests, {tokens}{cost}"


def text_of(table: Table) -> str:
    """Return a table as lines for a terminal."""
    rows = [table.heads, *table.rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.heads))]
    lines = [
        "  ".join(f"{c:<{w}}" if i == 0 else f"{c:>{w}}" for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    ]
    note = f" ({table.note})" if table.note else ""
    return "\n".join([f"{table.title}{note}", *(line.rstrip() for line in lines)])
