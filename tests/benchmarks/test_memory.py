"""The memory estimate against the tensors of an update, at five sizes of models and nine settings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "memory.py"
CASES = ("vocabulary", "tied", "padded", "lora-checkpointing", "wide", "vision", "short", "sharded", "sharded-tied")
"""Models of five sizes: two below a real vocabulary, two of different widths, one with a larger vision tower.

Two processes share two of them out.
"""


@pytest.mark.integration
def test_the_estimate_is_within_15_percent_of_the_tensors():
    command = [sys.executable, str(BENCHMARK), *CASES]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()[4:]]
    ratios = {row[0]: float(row[-1]) for row in rows}
    assert tuple(ratios) == CASES
    assert all(0.85 < ratio < 1.15 for ratio in ratios.values()), done.stdout
