"""Muon (Keller Jordan, 2024) that is as fast on CPUs as they can be."""

from __future__ import annotations

import math
from typing import Any

import torch

_STEPS = 5
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)


class Muon(torch.optim.Muon):
    """PyTorch's Muon, with the orthogonalisation of matrices on CPUs in fp32.

    PyTorch rounds it to bf16 everywhere. A CPU without instructions for bf16 multiplies such matrices twenty times as
    slowly as those in fp32 (`benchmarks/muon.py`), which is most of the time of a cold start.
    The state is that of `torch.optim.Muon`; all but learning rate and weight decay is its default, and the scale of the
    learning rate the one that matches AdamW's.
    """

    def __init__(self, params: Any, lr: float, weight_decay: float) -> None:
        super().__init__(params, lr=lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
        self._on_cpu = all(p.device.type == "cpu" for group in self.param_groups for p in group["params"])

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Step all matrices that have a gradient; returns what the closure does."""
        if not self._on_cpu:
            return super().step(closure)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            lr, momentum = float(group["lr"]), group["momentum"]
            for param in group["params"]:
                if param.grad is None:
                    continue
                state = self.state[param]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(param.grad)
                moment = state["momentum_buffer"].lerp_(param.grad, 1 - momentum)
                update = orthogonalised(param.grad.lerp(moment, momentum))
                param.mul_(1 - lr * group["weight_decay"])
                param.add_(update, alpha=-lr * 0.2 * math.sqrt(max(param.shape)))
        return loss


def orthogonalised(matrix: torch.Tensor) -> torch.Tensor:
    """Return a matrix `[rows, columns]` with its singular values moved to about 1, by Newton-Schulz steps in its type.

    The steps overshoot on purpose: what comes out lies between 0.7 and 1.2, which trains as well as 1 would.
    """
    a, b, c = _COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(_STEPS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x
