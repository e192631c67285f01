"""The current run of this worker, on which the functions of the façades act."""

from __future__ import annotations

from codev_env.sandbox.language.context import Context

_current: Context | None = None


def set_current(context: Context | None) -> None:
    """Set the current run; `None` when no program runs."""
    global _current
    _current = context


def current() -> Context:
    """The current run; raises `RuntimeError` when no program runs."""
    if _current is None:
        raise RuntimeError("no program runs")
    return _current
