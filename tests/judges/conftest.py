"""Judges do not pause for long in tests."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    pytest.importorskip("openai")
    monkeypatch.setattr("codev_env.judges.client.FIRST_PAUSE_S", 0.001)
