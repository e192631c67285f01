"""Host memory of two processes that load a policy and share its weights out."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "loading.py"
ROOM = 120  # MB, for modules that are imported on the way, buffers of gloo, and what the allocator keeps


@pytest.mark.integration
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is read from Linux's /proc")
def test_a_process_that_reads_no_weights_never_has_more_than_its_shards():
    done = subprocess.run([sys.executable, str(BENCHMARK), "120"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (size,) = map(int, re.findall(r"Weights: (\d+) MB", done.stdout))
    peak = {role: int(number) for role, number in re.findall(r"\| (\w+) \| (\d+) /", done.stdout)}
    assert size > 400 and peak["other"] < 0.5 * size + ROOM, done.stdout
    assert peak["main"] < 1.5 * size + ROOM, done.stdout  # the whole, and its shards
