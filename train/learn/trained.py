"""The policy that a run trains, from disk to the processes that share it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from codev_agents.engines.policy import Policy
from codev_env.errors import ConfigError
from codev_train.learn.checkpoint import broken
from codev_train.learn.optimizer import make_optimizer
from codev_train.learn.scorer import TokenScorer, compile_layers
from codev_train.learn.sequence import make_sequence_group
from codev_train.learn.sharding import prepare, reads_weights
from codev_train.run.options import TrainOptions


@dataclass(frozen=True)
class TrainedPolicy:
    """A policy, ready for updates.

    Attributes:
        policy: Its model has the weights of this process: shards of them, if processes share them out.
        module: The `TokenScorer` of the model, as `prepare` wraps it.
        optimizer: The optimizer of its weights.
    """

    policy: Policy
    module: Any
    optimizer: torch.optim.Optimizer


def load_trained(options: TrainOptions, start: str, resume: Path | None, accelerator: Accelerator) -> TrainedPolicy:
    """Load a policy and distribute it; the moments of its optimizer are those of no update.

    Args:
        options: What is trained, and how.
        start: Folder or hub name of the policy that the run started with.
        resume: Checkpoint to go on from.
        accelerator: Processes and devices; all processes call this.

    Raises:
        ConfigError: There is no such policy, or a package that the options need is missing.
        CheckpointError: The policy in the checkpoint is broken.
    """
    # A saved model has its adapters merged: they are trained on beside the weights that they were started with.
    source = str(resume / "model") if resume and not options.lora.rank else start
    dtype = torch.bfloat16 if options.has_bf16_base else torch.float32
    try:
        policy = Policy.load(source, dtype, reads_weights(accelerator))
    except ConfigError as error:
        if source == start:
            raise
        raise broken(resume or Path(source), "model", error) from error
    policy.restrict(options.train_vision, options.lora, resume / "model" if resume else None, options.seed)
    if options.gradient_checkpointing:
        policy.checkpoint_gradients(options.kept_layers)
    if options.compile:
        compile_layers(policy.model)
    return distribute(options, policy, accelerator)


def distribute(options: TrainOptions, policy: Policy, accelerator: Accelerator) -> TrainedPolicy:
    """Wrap a policy for the processes and make its optimizer."""
    scorer = TokenScorer(policy.model, make_sequence_group(accelerator, options.sequence_parallel))
    module = prepare(accelerator, scorer)
    return TrainedPolicy(policy, module, make_optimizer(scorer, options.optimizer))
