"""The run in progress in this worker, which the façades' functions act on."""

from __future__ import annotations

from codev_env.sandbox.language.context import Context

_current: Context | None = None


def set_current(context: Context | None) -> None:
    """Make a run the current one."""
    global _current
    _current = context


def current() -> Context:
    """The run in progress."""
    if _current is None:
        raise RuntimeError("no program runs")
    return _current
