"""Samples to the tensors of a forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from codev_agents.engines.batch import collate, to_device
from codev_agents.rollout.tokens import ChatProcessor
from codev_train.learn.sample import Sample


@dataclass(frozen=True, eq=False)
class Batch:
    """Inputs of one forward pass.

    Attributes:
        inputs: Of the model, see `collate`.
        chosen: Which tokens the loss covers, bool `[rows, length]`. All other tensors have those alone, `[tokens]`, row
            after row.
        sequences: Numbers of the rows.
        sampler: The sampler's log-probabilities.
        advantages: Of the policy gradient.
        counted: Whether the policy gradient covers the token, bool.
        imitated: Advantages of the tokens that are imitated, 0 for others.
        lags: Updates since the one that sampled the token.
    """

    inputs: dict[str, torch.Tensor]
    chosen: torch.Tensor
    sequences: torch.Tensor
    sampler: torch.Tensor
    advantages: torch.Tensor
    counted: torch.Tensor
    imitated: torch.Tensor
    lags: torch.Tensor


def make_batch(samples: Sequence[Sample], processor: ChatProcessor, device: torch.device) -> Batch:
    """Collate samples, one row each; an image that several of them show is there once."""
    ids, images, once = [s.ids for s in samples], [s.images for s in samples], not processor.family.tile_tokens
    inputs = collate(ids, images, processor.pad_id, processor.image_id, once=once)
    shape = inputs["input_ids"].shape
    chosen, counted = (torch.zeros(shape, dtype=torch.bool) for _ in range(2))
    sampler, advantages, imitated = (torch.zeros(shape) for _ in range(3))
    lags = torch.zeros(shape, dtype=torch.long)
    for row, sample in enumerate(samples):
        own = (row, slice(len(sample)))
        chosen[own] = torch.tensor(sample.mask)
        counted[row] = not sample.is_imitated
        sampler[own] = torch.tensor(sample.logprobs)
        advantages[own] = sample.advantages[torch.tensor(sample.turns).clamp(min=0)].to(torch.float32)
        if sample.imitated:
            imitated[own] = torch.tensor(sample.imitated)
        if sample.lags:
            lags[own] = torch.tensor(sample.lags)
    of_tokens = (values[chosen].to(device) for values in (sampler, advantages, counted, imitated, lags))
    return Batch(to_device(inputs, device), chosen.to(device), chosen.nonzero()[:, 0].to(device), *of_tokens)
