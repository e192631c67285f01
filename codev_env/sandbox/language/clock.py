"""The clock of a run: the same at every replay, since it counts its readings and not the time."""

from __future__ import annotations

START = 1_735_689_600.0
"""The time at the start of each run, in seconds since 1970: the first of January 2025, UTC."""

_TICK = 0.001


class Clock:
    """Each reading is a millisecond after the one before; sleeping moves the clock on and takes no time."""

    def __init__(self) -> None:
        self.elapsed = 0.0

    def read(self) -> float:
        """Seconds since the start of the run."""
        self.elapsed += _TICK
        return self.elapsed

    def now(self) -> float:
        """Seconds since 1970."""
        return START + self.read()

    def sleep(self, secs: float) -> None:
        """Move on by `secs` seconds; raises as `time.sleep` does."""
        if secs < 0:
            raise ValueError("sleep length must be non-negative")
        self.elapsed += secs
