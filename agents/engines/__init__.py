"""Engines that sample completions from the policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from codev_agents.engines.options import VllmOptions
from codev_env.errors import ConfigError, unknown

if TYPE_CHECKING:
    import torch

    from codev_agents.rollout.engine import Engine
    from codev_agents.rollout.families import Family
    from codev_agents.rollout.tokens import ChatProcessor

ENGINES = ("hf", "vllm", "vllm-server")
"""Names of the engines."""


def make_engine(
    name: str,
    model: Any,
    processor: ChatProcessor,
    max_batch: int,
    seed: int,
    vllm: VllmOptions | None = None,
    max_length: int = 32768,
    device: torch.device | str = "cpu",
    apart: bool = False,
    version: int = 0,
    in_flight: bool = True,
) -> Engine:
    """Make an engine; torch is imported here, not with the package.

    Args:
        name: One of `ENGINES`.
        model: The policy.
        processor: The tokenizer side of the policy.
        max_batch: Most sequences decoded together.
        seed: Seed of the sampling.
        vllm: Options of the engines that run vLLM.
        max_length: Longest sequence, in tokens.
        device: The device of this process.
        apart: Whether it has to sample while the model is trained; weights then change in `sync` only.
        version: Number of updates that the weights have had; each `sync` adds one.
        in_flight: With `apart`, whether requests may be under way in `sync`.

    Raises:
        ConfigError: There is no engine of that name, what it needs is missing, or it is not tested with the model.
        EngineError: The server of `vllm-server` cannot be used.
    """
    vllm = vllm or VllmOptions()
    check_engine(name, processor.family)
    match name:
        case "hf":
            from codev_agents.engines.hf import HFEngine

            return HFEngine(model, processor, max_batch, seed, device, apart, version)
        case "vllm" if apart:
            raise ConfigError("engine vllm sleeps while the model is trained; use hf or vllm-server for that.")
        case "vllm":
            from codev_agents.engines.vllm import VllmEngine

            return VllmEngine(model, processor, vllm, max_batch, max_length, seed, device)
        case "vllm-server":
            from codev_agents.engines.vllm_server import VllmServerEngine

            return VllmServerEngine(model, processor, vllm, max_batch, seed, device, apart, version, in_flight)
    raise unknown("engine", name, ENGINES)


def check_engine(name: str, family: Family) -> None:
    """Raise `ConfigError` if an engine is not tested with a model family."""
    if name in ENGINES and name not in family.engines:
        allowed = " or ".join(family.engines)
        raise ConfigError(f"engine {name} is not tested with {family.name}; use the engine {allowed}.")
