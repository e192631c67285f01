"""Low-rank adapters on the language model, through peft: trained alone, and merged in saved models."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from codev_agents.engines import vision
from codev_agents.engines.options import LoraOptions
from codev_agents.engines.weights import whole
from codev_env.errors import ConfigError

ADAPTERS = "adapters.safetensors"
"""File of the adapters beside a saved model, which has them merged."""
_ATTENTION = "q_proj|k_proj|v_proj|o_proj|in_proj_qkv|in_proj_z|out_proj"
_TARGETS = rf".*language_model\..*\.({_ATTENTION}|gate_proj|up_proj|down_proj)"


def add_adapters(model: Any, options: LoraOptions, seed: int = 0) -> None:
    """Put fresh adapters, in fp32, on the linear layers of the language model and freeze everything else.

    Source: LoRA, arXiv 2106.09685: W x + (alpha / rank) B A x, with B = 0 at the start.

    Args:
        model: The model, on the CPU or the meta device.
        options: Rank and alpha.
        seed: Seed of A.

    Raises:
        ConfigError: peft is not installed.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise ConfigError(
            f"lora.rank is {options.rank}, but peft cannot be imported ({error}): pip install 'codev-env[lora]'."
        ) from error
    config = LoraConfig(r=options.rank, lora_alpha=options.alpha, target_modules=_TARGETS)
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(seed)
        inject_adapter_in_model(config, model)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name)
        if "lora_" in name:
            parameter.data = parameter.data.float()  # peft gives them the type of the weights beside them
    for module in model.modules():
        if hasattr(module, "lora_A"):
            module._cast_input_dtype = types.MethodType(_cast_unless_autocast, module)
            module.forward = types.MethodType(_add_in_product, module)


def _cast_unless_autocast(self: Any, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Turn a layer's input to the type of its adapters, except on GPUs where autocast turns it back at once."""
    kept = x.device.type in vision.DEVICES and torch.is_autocast_enabled(x.device.type)
    return x if kept else x.to(dtype)


def _add_in_product(self: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Run a layer with its adapter, whose product is scaled and added by the product itself on GPUs.

    peft writes the product, its multiple and the sum one after the other, each as wide as the layer's output.
    """
    device, (name, *others) = x.device.type, self.active_adapters
    plain = self.disable_adapters or self.merged or others
    if plain or device not in vision.DEVICES or not torch.is_autocast_enabled(device):
        return type(self).forward(self, x, *args, **kwargs)
    result = self.base_layer(x, *args, **kwargs)
    inner = self.lora_A[name](x)
    rows, weight = result.flatten(0, -2), self.lora_B[name].weight
    return torch.addmm(rows, inner.flatten(0, -2), weight.T, alpha=self.scaling[name]).view_as(result)


def has_adapters(model: Any) -> bool:
    """Whether `add_adapters` was applied."""
    return any("lora_" in name for name, _ in model.named_parameters())


def adapters(model: Any, keep: bool = True) -> dict[str, torch.Tensor]:
    """Return the adapters' weights by name; if they are sharded, processes that do not `keep` them take part."""
    found = {}
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            weight = whole(parameter)
            if keep:
                found[name] = weight.contiguous().clone()
    return found


def save_adapters(tensors: dict[str, torch.Tensor], folder: Path, alpha: float) -> None:
    """Write the adapters beside the saved model, so that training can continue with them."""
    save_file(tensors, folder / ADAPTERS, {"alpha": str(alpha)})


def alpha_of(model: Any) -> float:
    """Return `lora.alpha` of a model with adapters."""
    return next(float(module.lora_alpha["default"]) for module in model.modules() if hasattr(module, "lora_alpha"))


def check_adapters(options: LoraOptions, folder: Path) -> None:
    """Raise `ConfigError` if the adapters that `save_adapters` wrote are missing, cannot be read, or are of others."""
    path = folder / ADAPTERS
    if not path.is_file():
        raise ConfigError(f"--resume: {path} is missing: the run was not trained with lora.rank above 0.")
    try:
        with safe_open(path, "pt") as file:
            alpha = float((file.metadata() or {}).get("alpha", options.alpha))
            ranks = {file.get_slice(name).get_shape()[0] for name in file.keys() if "lora_A" in name}
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"--resume: {path} is broken ({error}): remove the checkpoint to go back by one.") from error
    if ranks != {options.rank}:
        others = ", ".join(map(str, sorted(ranks))) or "none"
        raise ConfigError(
            f"--resume: the adapters in {path} are of another lora.rank or another model: their rank is {others}, not "
            f"{options.rank}."
        )
    if alpha != options.alpha:
        raise ConfigError(
            f"--resume: the adapters in {path} were trained with lora.alpha {alpha:g}, not {options.alpha:g}, with "
            f"which they are another policy: give --lora.alpha {alpha:g}."
        )


def load_adapters(model: Any, options: LoraOptions, folder: Path) -> None:
    """Load the adapters that `save_adapters` wrote; raises `ConfigError` if they are not there or are others."""
    check_adapters(options, folder)
    path = folder / ADAPTERS
    own = {name: parameter for name, parameter in model.named_parameters() if "lora_" in name}
    saved = load_file(path)
    if {n: t.shape for n, t in saved.items()} != {n: p.shape for n, p in own.items()}:
        raise ConfigError(f"--resume: the adapters in {path} are of another lora.rank or another model.")
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(saved[name])


class WithoutAdapters(torch.nn.Module):
    """A module as it was before its adapters were trained: the reference policy, at no cost of memory."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Any) -> Any:
        """Run the module with its adapters off."""
        layers = [m for m in self.module.modules() if hasattr(m, "enable_adapters") and hasattr(m, "get_delta_weight")]
        for layer in layers:
            layer.enable_adapters(False)
        try:
            return self.module(*inputs)
        finally:
            for layer in layers:
                layer.enable_adapters(True)
