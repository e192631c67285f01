"""How many tokens, trajectories and forward passes an update with some options has."""

from __future__ import annotations

import math

from codev_train.run.options import TrainOptions

PATCHES = 4
"""Patches of the vision tower that make one token."""


def tokens_per_pass(options: TrainOptions) -> int:
    """Return the tokens of the largest forward pass: the budget or one trajectory, or a padded batch of the longest."""
    longest = longest_trajectory(options)
    if options.token_budget:
        return max(options.token_budget, longest)
    per_process = options.prompts // max(1, options.estimate.gpus) * options.group
    return min(options.micro_batch, max(1, -(-per_process // options.minibatches))) * longest


def learned(options: TrainOptions) -> int:
    """Return how many trajectories an update learns from: those left by `down_sample`, and imitated ones."""
    told, imitation = min(options.group, options.down_sample or options.group), options.imitation
    return options.prompts * told + imitation.answers + imitation.calls + imitation.targets


def looks(options: TrainOptions) -> int:
    """Return how many looks of an update self-imitation finds at most: each rollout's, each at a place of its own."""
    imitation = options.imitation
    return options.prompts * options.group * bool(imitation.answers or imitation.calls or imitation.targets)


def passes_per_step(options: TrainOptions) -> int:
    """Return how many forward passes of a process one optimizer step accumulates, full ones of mean trajectories."""
    groups = max(1, options.estimate.gpus // options.sequence_parallel)
    episodes = learned(options) / groups / options.minibatches
    return math.ceil(episodes * mean_trajectory(options) / tokens_per_pass(options))


def longest_trajectory(options: TrainOptions) -> int:
    """Return the tokens of the longest trajectory: `max_length`, or twice the given mean if that is less."""
    return min(options.max_length, 2 * options.estimate.trajectory or options.max_length)


def mean_trajectory(options: TrainOptions) -> int:
    """Return the tokens of a mean trajectory: as given, else half of `max_length`."""
    return options.estimate.trajectory or options.max_length // 2


def sampled_tokens(options: TrainOptions) -> int:
    """Return the sampled tokens of a mean trajectory: as given, else half of those that are no image."""
    return options.estimate.response or int(mean_trajectory(options) * (1 - options.estimate.images) / 2)


def decoding_gpus(options: TrainOptions) -> int:
    """Return how many GPUs decode: the server's, or the trainer's."""
    estimate = options.estimate
    return max(1, estimate.servers if options.engine == "vllm-server" and estimate.servers else estimate.gpus)
