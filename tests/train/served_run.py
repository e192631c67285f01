"""`codev` with a vLLM server that is started for it, in the current folder: `served_run.py MODEL WORD …`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from vllm_process import VllmProcess

from codev_env.app.cli import main

if __name__ == "__main__":
    model, *words = sys.argv[1:]
    with VllmProcess(Path(model), Path("server.txt")) as server:
        code = main([*words, "--engine", "vllm-server", "--vllm.url", server.url, "--vllm.folder", "."])
    sys.exit(code)
