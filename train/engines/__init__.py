"""Engines that sample completions from the policy."""

from __future__ import annotations

from typing import Any

from codev_env.errors import unknown
from codev_train.engines.base import Engine
from codev_train.engines.hf import HFEngine
from codev_train.engines.options import VllmOptions
from codev_train.engines.vllm import VllmEngine
from codev_train.engines.vllm_server import VllmServerEngine
from codev_train.tokens import Codec

ENGINES = ("hf", "vllm", "vllm-server")
"""Names of the engines."""


def make_engine(
    name: str,
    model: Any,
    codec: Codec,
    max_batch: int,
    seed: int,
    vllm: VllmOptions | None = None,
    max_length: int = 32768,
) -> Engine:
    """Make an engine.

    Args:
        name: One of `ENGINES`.
        model: The policy.
        codec: The tokenizer side of the policy.
        max_batch: Most sequences decoded together.
        seed: Seed of the sampling.
        vllm: Options of the engines that run vLLM.
        max_length: Longest sequence, in tokens.

    Raises:
        ConfigError: There is no engine of that name, or what it needs is missing.
        EngineError: The server of `vllm-server` cannot be used.
    """
    vllm = vllm or VllmOptions()
    match name:
        case "hf":
            return HFEngine(model, codec, max_batch, seed)
        case "vllm":
            return VllmEngine(model, codec, vllm, max_batch, max_length, seed)
        case "vllm-server":
            return VllmServerEngine(model, codec, vllm, max_batch, seed)
    raise unknown("engine", name, ENGINES)
