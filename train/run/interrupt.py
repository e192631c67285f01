"""Ctrl-C and SIGTERM ask a run to stop after the update under way; a second one, or Ctrl-C elsewhere, stops at once."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType

from codev_env.errors import CodevError

INTERRUPTED = 130
"""Exit code of a process that was interrupted: 128 + SIGINT."""


class Interrupted(CodevError, KeyboardInterrupt):
    """The user stopped the run; the message says how to continue."""


class Interrupt:
    """While active, the first signal only sets `asked`; `is_main` says whether this process reports it."""

    def __init__(self, is_main: bool = True) -> None:
        self.asked, self.is_main = False, is_main
        self._at_once = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Let Ctrl-C stop at once inside: there is nothing that is worth waiting for."""
        self._at_once = True
        try:
            yield
        finally:
            self._at_once = False

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked or (self._at_once and number == signal.SIGINT):
            raise KeyboardInterrupt
        self.asked = True
        if not self.is_main:
            return
        print("\nStopping after this update and saving; press Ctrl-C again to stop at once.", file=sys.stderr)
