"""The reference policy of the KL term: the policy that the run started with."""

from __future__ import annotations

from typing import Any

from accelerate import Accelerator

from codev_agents.engines.lora import WithoutAdapters, has_adapters
from codev_agents.engines.policy import Policy
from codev_train.learn.scorer import TokenScorer
from codev_train.learn.sharding import prepare, reads_weights
from codev_train.run.options import TrainOptions


def make_reference(options: TrainOptions, module: Any, accelerator: Accelerator) -> Any:
    """Make the module that scores tokens under the reference policy, called as `module` is.

    Args:
        options: `kl` and `model`, the policy that the run started with.
        module: The `TokenScorer` that is trained, as `prepare` wraps it.
        accelerator: Processes and devices.

    Returns:
        The module without its adapters, where it has some; else a frozen copy of the start; None if `kl` is 0.
    """
    if not options.kl:
        return None
    scorer = accelerator.unwrap_model(module)
    if has_adapters(scorer.model):
        return WithoutAdapters(module)
    model = Policy.load(options.model, whole=reads_weights(accelerator)).model.requires_grad_(False)
    return prepare(accelerator, TokenScorer(model, scorer.sequence).eval(), trained=False)
