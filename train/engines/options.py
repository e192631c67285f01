"""Options of the engines that run vLLM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class VllmOptions:
    """How vLLM samples for the trainer; `hf` reads none of these."""

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Type of vLLM's weights, also of those that a server is sent; "auto" is float32 if the trainer runs on a CPU, else
    bfloat16."""
    memory: float = 0.5
    """Share of a GPU's memory that `vllm` takes while it is awake."""
    url: str = "http://localhost:8000"
    """Address of the server that `vllm-server` asks."""
    folder: str = ""
    """Folder that trainer and server both see, through which `vllm-server` passes weights; empty is the system's folder
    for temporary files, for a server on the same machine."""
    patience: float = 300.0
    """Seconds that a server may be gone before the run ends with an error."""
    timeout: float = 1800.0
    """Longest wait for one completion of a server, in seconds."""
