"""The engines on real vLLM, run by the Python that has it: `$CODEV_VLLM_PYTHON`, or the environment of `make vllm`."""

from __future__ import annotations

import json
import math
import os
import subprocess
from pathlib import Path

import pytest
import yaml

HERE = Path(__file__).parent
FINITE = ("reward", "update/loss", "update/kl", "update/grad_norm", "tokens_per_second/rollouts")

pytestmark = pytest.mark.integration


def test_vllm_keeps_the_contract_and_survives_a_kill(vllm_python):
    passes(vllm_python, "test_train_engine_contract.py", "test_train_engine_restart.py")


def test_vllm_takes_weights_while_it_samples(vllm_python):
    passes(vllm_python, "test_train_in_flight_vllm.py")


@pytest.mark.parametrize("chosen", ["qwen2_5_vl", "qwen3_5", "again"])
def test_vllm_samples_with_the_probabilities_of_the_trainer(vllm_python, chosen):
    """In a process of its own: vLLM starts once in a process."""
    passes(vllm_python, "test_train_families_vllm.py", "-k", chosen)


@pytest.mark.parametrize("isa", ["AVX2", "DEFAULT"])
def test_weights_may_be_replaced_under_another_number_of_threads(vllm_python, isa):
    passes(vllm_python, "test_train_families_vllm.py", "-k", "threads", ONEDNN_MAX_CPU_ISA=isa)


def passes(python: str, *arguments: str, **environment: str) -> None:
    command = [python, "-m", "pytest", *arguments, "-m", "integration", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, env=os.environ | environment)
    assert done.returncode == 0, done.stdout[-6000:]
    assert "skipped" not in done.stdout


def test_a_run_with_vllm_trains(vllm_python, tmp_path):
    """From the cold start to the summary; sampler and trainer agree, else the run would end with an error."""
    # Attention heads of 32 channels: vLLM has no kernel for smaller ones.
    (tmp_path / "heads.yaml").write_text(yaml.safe_dump({"sft": {"toy": {"heads": 2}}}))
    command = [
        vllm_python,
        "-m",
        "codev_env.app.cli",
        "train",
        "--preset",
        "smoke",
        "--config",
        "heads.yaml",
        "--engine",
        "vllm",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    run = tmp_path / "runs" / "smoke"
    assert json.loads((run / "summary.json").read_text())["options"]["engine"] == "vllm"
    rows = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    assert len(rows) == 2
    assert all(math.isfinite(row[name]) for row in rows for name in FINITE)
