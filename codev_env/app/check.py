"""Checks of a machine or a run, and the report that lists them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from codev_env import __version__

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Check:
    """One line of the report.

    Attributes:
        group: Its heading.
        name: What was looked at.
        status: `"ok"`; `"warn"`: works, but less well or not all of it; `"fail"`: something required does not work.
        detail: What was seen.
        advice: What to do about it; empty if nothing is to be done.
    """

    group: str
    name: str
    status: Status
    detail: str
    advice: str = ""


def as_text(checks: Sequence[Check]) -> str:
    """The report in aligned lines, grouped, with what to do under each problem."""
    width = max(len(check.name) for check in checks)
    lines = [f"codev {__version__}"]
    for group in dict.fromkeys(check.group for check in checks):
        lines += ["", group]
        for check in (check for check in checks if check.group == group):
            lines.append(f"  {check.status:<4}  {check.name:<{width}}  {check.detail}")
            if check.advice:
                lines.append(f"  {'':4}  {'':<{width}}  -> {check.advice}")
    failed = [check.name for check in checks if check.status == "fail"]
    warned = [check.name for check in checks if check.status == "warn"]
    lines.append("")
    lines.append(f"Does not work: {', '.join(failed)}." if failed else "Everything required works.")
    if warned:
        lines.append(f"Could be better: {', '.join(warned)}.")
    return "\n".join(lines)
