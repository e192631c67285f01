"""Settings of all tests."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# No test asks a model hub: without a network each question would take half a minute to fail.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# Tests never time anything: a busy machine must not fail them.
settings.register_profile("quick", deadline=None, max_examples=25)
settings.register_profile("soak", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile("quick")

# Collecting makes millions of objects that stay: no garbage collection looks through them, then or later.
gc.disable()

HERE = Path(__file__).parent
SLOWEST = [
    "train/test_default_run.py",
    "train/test_train_pace.py",
    "judges/test_judges_vlm_failures.py",
    "cheats/test_cheats.py",
    "test_doctor.py",
    "train/test_train_engine_contract.py",
    "train/test_train_checkpoints.py",
    "provenance/test_provenance_programs.py",
    "train/test_train_run.py",
    "train/test_train_resumed.py",
    "train/test_train_killed.py",
    "train/test_train_scale.py",
    "sandbox/test_sandbox_failures.py",
    "sandbox/test_sandbox_corpus.py",
    "sandbox/test_sandbox_sessions.py",
    "test_replay.py",
]


@pytest.fixture(autouse=True, scope="session")
def no_preload() -> Iterator[None]:
    """No test loads libraries that it does not use."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("codev_env.sandbox.host.process.preload", lambda: None)
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the slowest files, so that all processes end at about the same time."""
    order = {HERE / name: number for number, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: order.get(item.path, len(order)))


def pytest_collection_finish() -> None:
    """Collect garbage from here on, but only what tests make."""
    gc.freeze()
    gc.enable()
