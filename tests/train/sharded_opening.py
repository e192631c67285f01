"""How the processes of `test_train_sharding.py` begin: one thread, and the policy of a folder, shared out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from codev_agents.engines.policy import Policy
from codev_train.learn.scorer import TokenScorer
from codev_train.learn.sharding import make_accelerator, prepare, reads_weights


def begin(folder: Path, precision: str = "fp32") -> tuple[Accelerator, Policy, Any, list[Any]]:
    """Return the processes, the policy, its `TokenScorer` as it is wrapped, and the rollouts in the folder."""
    accelerator = make_accelerator(precision)
    torch.set_num_threads(1)
    policy = Policy.load(str(folder / "policy"), whole=reads_weights(accelerator))
    module = prepare(accelerator, TokenScorer(policy.model))
    rollouts, _ = torch.load(folder / "rollouts.pt", weights_only=False)
    return accelerator, policy, module, rollouts
