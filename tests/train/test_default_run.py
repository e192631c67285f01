"""The default run as a newcomer starts it: decorative crops before, faithful crops and answers from them after."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.integration
def test_the_default_run_teaches_to_look(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "codev_env.app.cli", "train", "--preset", "tiny"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    run = tmp_path / "runs" / "tiny"
    summary = json.loads((run / "summary.json").read_text())
    before, after = summary["before"], summary["after"]
    assert before["faithful"] <= 0.15
    assert before["accuracy"] >= 0.7
    assert after["faithful"] >= 0.6
    assert after["accuracy"] >= before["accuracy"]
    assert before["contrast_accuracy"] <= 0.4 and after["contrast_accuracy"] >= 0.75
    assert (run / "report.html").stat().st_size > 100_000
    assert list((run / "tensorboard").glob("events.out.tfevents.*"))
    assert "faithful-tool rate" in done.stdout and "accuracy, contrast" in done.stdout
    assert "report.html" in done.stdout
    print(json.dumps({"before": before, "after": after, "seconds": summary["seconds"]}))
