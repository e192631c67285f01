"""vLLM at the real vocabulary, in its own environment: `$CODEV_VLLM_PYTHON`, or that of `make vllm`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from real_vocabulary import FOLDER, ROOT, ranks

HERE = Path(__file__).parent

pytestmark = pytest.mark.integration


def test_vllm_reads_and_writes_the_tokens_that_are_trained_on():
    """`test_engines.py` with the engine `vllm`."""
    ranks()
    python = Path(os.environ.get("CODEV_VLLM_PYTHON") or ROOT / ".venv-vllm" / "bin" / "python")
    if not python.exists():
        pytest.skip(f"{python} is missing: make vllm, or set CODEV_VLLM_PYTHON")
    command = [str(python), "-m", "pytest", "test_engines.py", "-m", "integration", "-p", "no:cacheprovider"]
    environment = os.environ | {"CODEV_DASHSCOPE": str(FOLDER)}
    done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:]
    assert "skipped" not in done.stdout
