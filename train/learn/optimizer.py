"""Optimizer and learning-rate schedule from `OptimizerOptions`."""

from __future__ import annotations

from typing import Any

import torch
from accelerate.optimizer import AcceleratedOptimizer

from codev_env.errors import ConfigError
from codev_train.learn.muon import Muon
from codev_train.run.options import OptimizerOptions


class CombinedOptimizer(torch.optim.Optimizer):
    """Muon for the weight matrices of the layers, AdamW for embeddings, norms and biases, stepped as one.

    Matrices that are tables (embeddings, positions) and the head stay with AdamW, as Muon's authors advise.
    """

    def __init__(self, model: torch.nn.Module, options: OptimizerOptions) -> None:
        matrices: list[torch.nn.Parameter] = []
        rest: list[torch.nn.Parameter] = []
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            table = "embed" in name or "lm_head" in name
            (matrices if parameter.ndim == 2 and not table else rest).append(parameter)
        decay = options.weight_decay
        self.parts: list[torch.optim.Optimizer] = []
        if matrices:
            self.parts.append(Muon(matrices, lr=options.lr, weight_decay=decay))
        if rest:
            betas = (0.9, options.beta2)
            self.parts.append(torch.optim.AdamW(rest, lr=options.lr, betas=betas, weight_decay=0.0))
        super().__init__([*matrices, *rest], {"lr": options.lr})
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Step both parts."""
        for part in self.parts:
            part.step()

    def state_dict(self) -> dict[str, Any]:
        """Return both parts' states."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load both parts' states."""
        for part, saved in zip(self.parts, state["parts"], strict=True):
            part.load_state_dict(saved)
        self.param_groups = [group for part in self.parts for group in part.param_groups]


def parts(optimizer: Any) -> list[torch.optim.Optimizer]:
    """Return the optimizers that hold the moments of one that Accelerate may have wrapped."""
    inner = optimizer.optimizer if isinstance(optimizer, AcceleratedOptimizer) else optimizer
    return inner.parts if isinstance(inner, CombinedOptimizer) else [inner]


def make_optimizer(model: torch.nn.Module, options: OptimizerOptions) -> torch.optim.Optimizer:
    """Make the optimizer that the options name, over the weights that are trained; weight decay is on matrices only.

    Raises:
        ConfigError: The optimizer's package is not installed.
    """
    if options.name == "muon":
        return CombinedOptimizer(model, options)
    matrices = [p for p in model.parameters() if p.requires_grad and p.ndim >= 2]
    rest = [p for p in model.parameters() if p.requires_grad and p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": options.weight_decay}, {"params": rest, "weight_decay": 0.0}]
    if options.name == "adamw8bit":
        try:
            from torchao.optim import AdamW8bit
        except ImportError as error:
            raise ConfigError(
                f"optimizer.name is 'adamw8bit', but torchao cannot be imported ({error}): "
                "pip install 'codev-env[lowbit]'."
            ) from error
        return AdamW8bit(groups, lr=options.lr, betas=(0.9, options.beta2))
    # Where all weights are on GPUs, one kernel without temporaries as large as the weights.
    fused = all(p.is_cuda for p in matrices + rest) or None
    return torch.optim.AdamW(groups, lr=options.lr, betas=(0.9, options.beta2), fused=fused)


def learning_rate(options: OptimizerOptions, step: int, steps: int) -> float:
    """Learning rate of update `step` (from 0) of `steps`: linear warm-up, flat, linear decay at the end."""
    warm = min(1.0, (step + 1) / options.warmup) if options.warmup else 1.0
    decaying = options.decay * steps
    left = min(1.0, (steps - step) / decaying) if decaying else 1.0
    return options.lr * warm * (options.final + (1 - options.final) * left)


def set_learning_rate(optimizer: Any, rate: float) -> None:
    """Set the learning rate of all parameter groups."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):  # as torchao keeps it, which refuses a number in its place
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
