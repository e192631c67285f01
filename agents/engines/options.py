"""Options of engines, adapters and the toy model."""

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


@dataclass(frozen=True)
class LoraOptions:
    """Low-rank adapters (needs peft) instead of all weights."""

    rank: int = 0
    """Rank; 0 trains all weights."""
    alpha: float = 32.0
    """Scale of the adapters, divided by the rank."""


@dataclass(frozen=True)
class ToyModelOptions:
    """Size of the toy model."""

    hidden: int = 128
    """Width of the language model."""
    layers: int = 3
    """Layers of the language model."""
    heads: int = 4
    """Attention heads of the language model."""
    vision_hidden: int = 64
    """Width of the vision tower."""
    vision_layers: int = 2
    """Layers of the vision tower."""
    view: int = 84
    """Side of the model's view of a large image, in pixels; images are shrunk to at most its square."""
    min_view: int = 56
    """Side below which images are enlarged, in pixels."""
    patch: int = 7
    """Side of a vision patch, in pixels; 2 x 2 patches make one token."""
