"""Zygotes for tests that end them, or that start them from something else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from codev_env.sandbox.host import process


@contextmanager
def own_zygotes() -> Iterator[pytest.MonkeyPatch]:
    """Other tests keep theirs; these are started when they are needed, and end here. Yields what to patch them with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "_shared", {})
        try:
            yield patch
        finally:
            process.shut_down()
