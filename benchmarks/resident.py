"""The memory of a process while something runs in it, for the benchmarks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path


def most(run: Callable[[], None]) -> float:
    """Run, and return the peak memory in bytes."""
    found, done = [resident()], threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            found.append(resident())

    thread = threading.Thread(target=watch)
    thread.start()
    run()
    done.set()
    thread.join()
    return max(found)


def resident() -> float:
    """Return the memory this process holds itself, in bytes (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024
