"""A saved model plays with real vLLM, run by the Python that has it: `$CODEV_VLLM_PYTHON`, or that of `make vllm`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from codev_env.trajectory import read_trajectories

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

pytestmark = pytest.mark.integration


@pytest.fixture
def python() -> str:
    found = Path(os.environ.get("CODEV_VLLM_PYTHON") or ROOT / ".venv-vllm" / "bin" / "python")
    if not found.exists():
        pytest.skip(f"{found} is missing: make vllm, or set CODEV_VLLM_PYTHON")
    return str(found)


def run(*command: str) -> None:
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]


def test_greedy_episodes_are_those_of_the_hf_engine(python, tmp_path):
    """What is played again without the tool too, so that one engine serves several conditions."""
    model = tmp_path / "model"
    run(python, "-c", f"from pathlib import Path; import test_saved; test_saved.save_toy(Path({str(model)!r}))")
    given = ["--model", str(model), "--data", "synthetic", "--scenes", "toy", "--n", "3", "--batch", "2"]
    given += ["--max-tokens", "12", "--max-turns", "2", "--dual"]
    for engine in ("hf", "vllm"):
        run(python, "-m", "codev_env.app.cli", "eval", *given, "--engine", engine, "--out", str(tmp_path / engine))
    for condition in (".", "without-tool"):
        hf, vllm = (read_trajectories(tmp_path / engine / condition) for engine in ("hf", "vllm"))
        assert len(vllm) == 3 and all(len(t.turns) == 2 for t in vllm)
        assert [[turn.action for turn in t.turns] for t in vllm] == [[turn.action for turn in t.turns] for t in hf]
    used = [json.loads((tmp_path / engine / "metrics.json").read_text())["usage"] for engine in ("hf", "vllm")]
    assert used[0] == used[1] and used[1]["requests"] == 12
