"""Host memory of two processes that load a policy, share its weights out, and save and load a checkpoint."""

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


pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is read from Linux's /proc"),
]


@pytest.fixture(scope="module")
def printed() -> str:
    """The tables, of 120 million weights."""
    done = subprocess.run([sys.executable, str(BENCHMARK), "120"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def size(printed) -> int:
    """Size of the weights in MB."""
    (size,) = map(int, re.findall(r"Weights: (\d+) MB", printed))
    assert size > 400
    return size


def test_a_process_that_reads_no_weights_never_has_more_than_its_shards(printed, size):
    peak = {role: int(number) for role, number in re.findall(r"\| (\w+) \| (\d+) /", printed)}
    assert peak["other"] < 0.5 * size + ROOM, printed
    assert peak["main"] < 1.5 * size + ROOM, printed  # the whole, and its shards


def test_a_checkpoint_takes_one_copy_of_the_weights_and_of_each_process_s_moments(printed, size):
    """Moments are twice the weights. The obvious way, beside it, gathers and reads all of them."""
    rows = re.findall(r"\| (save|load) ?(?:moments)?, (\w+) \| (\d+) \| (\d+) \|", printed)
    peak = {(step, way): (int(main), int(other)) for step, way, main, other in rows}
    assert peak["save", "sharded"][0] < 2 * size + ROOM, printed
    assert peak["save", "sharded"][1] < size + ROOM, printed
    assert max(peak["load", "sharded"]) < size + ROOM, printed
    assert min(peak["load", "gathered"]) > 2 * size, printed
    assert peak["save", "gathered"][0] > peak["save", "sharded"][0], printed
