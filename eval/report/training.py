"""A training run in its report: its settings, its curves over the steps and its seconds by phase."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codev_eval.report import plots
from codev_eval.report.formats import duration, is_number

MAIN = {
    "reward": ("Reward", False),
    "accuracy": ("Accuracy", True),
    "faithful": ("Faithful-tool rate", True),
    "tool_calls": ("Tool calls per episode", False),
    "eval/accuracy": ("Held-out accuracy", True),
    "eval/faithful": ("Held-out faithful-tool rate", True),
    "eval/accuracy_without": ("Held-out accuracy without the tool", True),
    "eval/tool_gain": ("Held-out gain by the tool", True),
    "eval/look_gain": ("Held-out gain by looking", True),
}
"""Curves that are always open: key in `history.jsonl` -> (title, whether it is a share)."""

NO_FACTS = ("name", "about", "schema")
MAIN_OPTIONS = ("steps", "prompts", "group", "reward", "credit")
"""Options of the run that its page names at the top."""


@dataclass(frozen=True)
class Curves:
    """The curves of a run: the main ones, which are always open, and the others."""

    main: tuple[plots.Curve, ...]
    more: tuple[plots.Curve, ...]


@dataclass(frozen=True)
class TimeSpent:
    """The time that a run took, as text, and its parts."""

    total: str
    phases: tuple[plots.Phase, ...]


@dataclass(frozen=True)
class Facts:
    """The settings of a run: the main ones by name, and all options as JSON (empty without)."""

    items: tuple[tuple[str, str], ...]
    options: str


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


def curves_of(history: Sequence[Mapping[str, Any]]) -> Curves | None:
    """Return a curve for every number of the history; `None` if there is none."""
    names = sorted({name for row in history for name, value in row.items() if is_number(value)} - {"step"})
    main = [_curve(name, history) for name in MAIN if name in names]
    more = [_curve(name, history) for name in names if name not in MAIN]
    curves = Curves(*(tuple(curve for curve in part if curve) for part in (main, more)))
    return curves if curves.main or curves.more else None


def _curve(name: str, history: Sequence[Mapping[str, Any]]) -> plots.Curve | None:
    title, share = MAIN.get(name, (name.replace("/", ": ").replace("_", " "), name.startswith("share/")))
    points = [(row.get("step", number), row[name]) for number, row in enumerate(history) if is_number(row.get(name))]
    return plots.curve(title, [step for step, _ in points], [value for _, value in points], share=share)


def seconds_of(seconds: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> TimeSpent | None:
    """Return the seconds by phase; `None` where nothing took time.

    Args:
        seconds: By phase; an entry `total` is no phase, but the time of all of them and of what is between them.
        history: Its columns `seconds/…` are the parts of the phase `training`: `push` is a part of `update`, and
            `engine_idle` overlaps with others.
    """
    phases: dict[str, float] = {}
    for name, value in seconds.items():
        if is_number(value) and name != "total":
            phases |= _split_training(float(value), history) if name == "training" else {name: float(value)}
    phases = {name: value for name, value in phases.items() if value > 0}
    if not phases:
        return None
    known = sum(phases.values())
    total = float(seconds["total"]) if is_number(seconds.get("total")) else known
    if total > known:
        phases["the rest"] = total - known
    return TimeSpent(duration(total), tuple(plots.phases(phases)))


def _split_training(total: float, history: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    names = {name for row in history for name in row if name.startswith("seconds/")} - {"seconds/engine_idle"}
    parts = {
        f"training: {name.removeprefix('seconds/')}": sum(row[name] for row in history if is_number(row.get(name)))
        for name in sorted(names)
    }
    if "training: update" in parts:
        parts["training: update"] -= parts.get("training: push", 0.0)
    # A resumed run may have a history of more steps than its clock saw.
    if not parts or sum(parts.values()) > total:
        return {"training": total}
    return {**parts, "training: the rest": total - sum(parts.values())}


def facts_of(summary: Mapping[str, Any]) -> Facts:
    """Return the plain entries of a summary and its main options by name, and all options as JSON."""
    options = summary.get("options")
    options = options if isinstance(options, dict) else {}
    plain = {name: value for name, value in summary.items() if name not in NO_FACTS and _is_plain(value)}
    plain |= {name: options[name] for name in MAIN_OPTIONS if _is_plain(options.get(name))}
    items = tuple((name.replace("_", " "), _shown(value)) for name, value in plain.items())
    return Facts(items, json.dumps(options, indent=1, ensure_ascii=False) if options else "")


def _is_plain(value: Any) -> bool:
    return is_number(value) or (isinstance(value, str) and value != "")


def _shown(value: str | int | float) -> str:
    return f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}") if isinstance(value, int) else str(value)
