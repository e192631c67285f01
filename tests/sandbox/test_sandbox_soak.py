"""Many steps while workers and zygotes are killed: every answer is right, and nothing piles up or is left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import soak

RESIDENT_GROWTH_MB = 12.0
"""Growth allowed to the trainer: the allocator keeps some freed memory, more of it with busier threads."""

STEPS = [10_000, pytest.param(100_000, marks=pytest.mark.soak)]
KILLS = [4, pytest.param(20, marks=pytest.mark.soak)]

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="what is left behind is read from /proc"),
]


@contextmanager
def trainer(steps: int, seed: int, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A separate process that runs the steps, with `folder` for temporary files."""
    command = [sys.executable, soak.__file__, str(steps), str(seed)]
    environment = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("steps", STEPS)
def test_nothing_piles_up(steps: int, tmp_path: Path) -> None:
    with trainer(steps, 7, tmp_path) as process:
        out, errors = process.communicate()
        assert process.returncode == 0, errors
    report = json.loads(out)
    warm, end = report["warm"], report["end"]
    done = end["done"]
    print(done, warm["resident_mb"], end["resident_mb"])
    assert end["steps"] - warm["steps"] >= steps
    for what in "hang memory crash flood save saved show view variable move".split() + ["kill worker"]:
        assert done.get(what), f"no step of the kind {what!r}"
    kills = sum(count for what, count in done.items() if what.startswith("kill "))
    # A kill ends at most one step of each open session.
    assert done.get("SandboxError", 0) + done.get("killed", 0) <= kills * soak.SESSIONS
    for kind, zygote in end["zygotes"].items():
        assert set(zygote["workers"]) == {"S"}, "no zombies, and no workers but those that wait for a session"
        assert len(zygote["workers"]) <= soak.THREADS
        assert zygote["descriptors"] == warm["zygotes"][kind]["descriptors"]
    assert end["resident_mb"] - warm["resident_mb"] < RESIDENT_GROWTH_MB
    assert report["before"] == report["after"]
    assert not any("memfd" in kind for kind in report["after"]["descriptors"])
    assert (report["after"]["children"], report["after"]["temporary"]) == (0, [])


@pytest.mark.parametrize("kills", KILLS)
def test_nothing_outlives_a_trainer_killed_at_work(kills: int, tmp_path: Path) -> None:
    for number in range(kills):
        with trainer(10**9, number, tmp_path) as process:
            zygotes: set[str] = set()  # each leads a session of the system, which its workers belong to
            deadline = time.monotonic() + 60
            while not zygotes and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
                zygotes = {str(child) for child in soak.children(process.pid)}
            time.sleep(0.5 + 0.1 * number)  # in the middle of a step
            zygotes |= {str(child) for child in soak.children(process.pid)}
            assert process.poll() is None and zygotes
            process.kill()
            process.wait()

            def left() -> list[int]:
                found = soak.processes().items()
                return [pid for pid, fields in found if fields[3] in zygotes and fields[0] not in "ZX"]  # noqa: B023

            deadline = time.monotonic() + 120  # a zygote notices the end once it has loaded its libraries
            while left() and time.monotonic() < deadline:
                time.sleep(0.05)
            # Shared memory has no name: it is gone with the last process that had it.
            assert left() == []
        assert os.listdir(tmp_path) == []
