"""What a training run left behind, as HTML: its settings, its curves over the steps and where the time went."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from codev_eval.report import plots
from codev_eval.report.results import is_number

MAIN = {
    "reward": ("Reward", False),
    "accuracy": ("Accuracy", True),
    "faithful": ("Faithful-tool rate", True),
    "tool_calls": ("Tool calls per episode", False),
}
"""Curves that are always open: key in `history.jsonl` -> (title, whether it is a share)."""

NO_FACTS = ("name", "about", "schema")
MAIN_OPTIONS = ("steps", "prompts", "group", "reward", "credit")
"""Options of the run that its page names at the top."""


def read_history(path: Path) -> list[dict[str, Any]]:
    """Read `history.jsonl`, one object per step; a torn last line and a missing file are no error."""
    if not path.is_file():
        return []
    rows = []
    for line in path.read_text("utf-8").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def curves_section(history: Sequence[Mapping[str, Any]]) -> str:
    """Return the curves: the main ones open, every other number behind a disclosure."""
    names = sorted({name for row in history for name, value in row.items() if is_number(value)} - {"step"})
    main = "".join(_curve(name, history) for name in MAIN if name in names)
    more = "".join(_curve(name, history) for name in names if name not in MAIN)
    if not main and not more:
        return ""
    if more:
        more = f'<details class="more"><summary>More curves</summary><div class="curves">{more}</div></details>'
    return (
        '<section id="training"><h2>Training</h2><p class="note">Over the steps of training, on sampled episodes. Thin:'
        f' each step; thick: running mean.</p><div class="curves">{main}</div>{more}</section>'
    )


def _curve(name: str, history: Sequence[Mapping[str, Any]]) -> str:
    title, share = MAIN.get(name, (name.replace("/", ": ").replace("_", " "), name.startswith("share/")))
    points = [(row.get("step", number), row[name]) for number, row in enumerate(history) if is_number(row.get(name))]
    return plots.curve(title, [step for step, _ in points], [value for _, value in points], share=share)


def seconds_section(seconds: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> str:
    """Return the bar of seconds by phase.

    Args:
        seconds: By phase; an entry `total` is the sum and no phase.
        history: Its columns `seconds/…` say what the phase `training` spent its time on.
    """
    phases: dict[str, float] = {}
    for name, value in seconds.items():
        if is_number(value) and name != "total":
            phases |= _split_training(float(value), history) if name == "training" else {name: float(value)}
    phases = {name: value for name, value in phases.items() if value > 0}
    if not phases:
        return ""
    total = float(seconds["total"]) if is_number(seconds.get("total")) else sum(phases.values())
    return (
        f'<section id="time"><h2>Where the time went</h2><p class="note">{plots.duration(total)} in all.</p>'
        f"{plots.phases(phases)}</section>"
    )


def _split_training(total: float, history: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    names = {name for row in history for name in row if name.startswith("seconds/")}
    parts = {
        f"training: {name.removeprefix('seconds/')}": sum(row[name] for row in history if is_number(row.get(name)))
        for name in sorted(names)
    }
    # A resumed run may have a history of more steps than its clock saw.
    if not parts or sum(parts.values()) > total:
        return {"training": total}
    return {**parts, "training: the rest": total - sum(parts.values())}


def facts_of(summary: Mapping[str, Any]) -> str:
    """Return the plain entries of a summary and its main options as a list, all options behind a disclosure."""
    options = summary.get("options")
    options = options if isinstance(options, dict) else {}
    plain = {name: value for name, value in summary.items() if name not in NO_FACTS and _is_plain(value)}
    plain |= {name: options[name] for name in MAIN_OPTIONS if _is_plain(options.get(name))}
    items = "".join(
        f"<div><dt>{escape(name.replace('_', ' '))}</dt><dd>{escape(_shown(value))}</dd></div>"
        for name, value in plain.items()
    )
    facts = f'<dl class="facts">{items}</dl>' if items else ""
    if options:
        text = escape(json.dumps(options, indent=1, ensure_ascii=False))
        facts += f'<details class="more"><summary>All options</summary><pre>{text}</pre></details>'
    return facts


def _is_plain(value: Any) -> bool:
    return is_number(value) or (isinstance(value, str) and value != "")


def _shown(value: str | int | float) -> str:
    return f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}") if isinstance(value, int) else str(value)
