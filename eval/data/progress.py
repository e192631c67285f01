"""A progress bar where tqdm is installed; in a core install the commands work without one."""

from __future__ import annotations

from typing import Any


class NoBar:
    """Counts as a progress bar does, and draws nothing."""

    def __init__(self) -> None:
        self.n, self.total = 0, None

    def __enter__(self) -> NoBar:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def update(self, count: float = 1) -> None:
        """Count on."""
        self.n += int(count)

    def set_postfix(self, *_: object, **__: object) -> None:
        """Show nothing."""


def progress(unit: str, title: str, total: int | None = None, initial: int = 0) -> Any:
    """Return a bar that counts from `initial` to `total`; use it as a context manager."""
    try:
        from tqdm import tqdm
    except ImportError:
        return NoBar()
    return tqdm(total=total, initial=initial, unit=unit, desc=title)
