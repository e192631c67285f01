"""The benchmark beside TRL compares like with like; run by the Python that has TRL: $CODEV_TRL_PYTHON or .venv-trl."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROLLOUTS, CALLS, SAMPLED = 8, 6, 84  # of the case "micro": in each group 1, 1, 2 and 3 turns, of 6 tokens

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """What two steps of each way computed; the random policies begin with the same weights."""
    python = Path(os.environ.get("CODEV_TRL_PYTHON") or ROOT / ".venv-trl" / "bin" / "python")
    if not python.exists():
        pytest.skip(f"{python} is missing: make an environment with trl and this package, or set CODEV_TRL_PYTHON")
    model = str(tmp_path_factory.mktemp("trl") / "model")

    def run(way, tasks=()):
        command = [str(python), str(ROOT / "benchmarks" / "trainer.py"), "--case", "micro", "--model", model]
        command += ["--way", way, "--steps", "2", "--tasks", json.dumps(list(tasks))]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads(done.stdout.splitlines()[-1]) if way != "save" else {}

    run("save")
    ours = run("packed")
    return {"ours": ours["steps"], "trl": run("trl", ours["tasks"])["steps"]}


def test_both_sample_as_much(steps):
    assert [step["sampled"] for step in (*steps["ours"], *steps["trl"])] == [SAMPLED] * 4


def test_both_learn_from_the_same_text(steps):
    """Ours ends each turn that a tool output follows with the chat format's token for it; TRL leaves it out."""
    for ours, theirs in zip(steps["ours"], steps["trl"], strict=True):
        assert ours["tokens"] - theirs["tokens"] == CALLS
        assert ours["update_positions"] == ours["tokens"]


def test_both_learn_from_all_images(steps):
    """Those that the tool returned, too."""
    for ours, theirs in zip(steps["ours"], steps["trl"], strict=True):
        assert ours["update_patches"] == theirs["update_patches"] == (ROLLOUTS + CALLS) * 144


def test_both_pay_the_same(steps):
    """On policy the loss is the mean of the advantages over the tokens, with opposite sign."""
    assert steps["trl"][0]["loss"] == pytest.approx(steps["ours"][0]["loss"], abs=1e-3)
    assert abs(steps["ours"][0]["loss"]) > 0.05
