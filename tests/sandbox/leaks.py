"""Descriptors that something leaves open, in a process where threads of other tests open and close theirs too."""

from __future__ import annotations

import os
from collections.abc import Callable


def leaks(use: Callable[[], object], *, times: int = 20) -> int:
    """How many descriptors every single use leaves open; what others open meanwhile is less than one for each use."""
    for _ in range(3):
        use()  # the first ones start workers, and open what is kept
    before = len(os.listdir("/dev/fd"))
    for _ in range(times):
        use()
    return (len(os.listdir("/dev/fd")) - before) // times
