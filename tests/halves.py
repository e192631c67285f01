"""Parameters of tests in all combinations, half of them for a quick run."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest


def half_quick(*values: Iterable[Any]) -> list[Any]:
    """All combinations; without `integration` every second one: each value, and of three or more lists each pair."""
    numbered = itertools.product(*(list(enumerate(several)) for several in values))
    return [
        pytest.param(
            *(value for _, value in one),
            marks=() if sum(number for number, _ in one) % 2 == 0 else pytest.mark.integration,
        )
        for one in numbered
    ]
