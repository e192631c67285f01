"""Samples, the input of the updater: tokens of finished rollouts, with advantages and the loss mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from codev_agents.rollout.player import Rollout
from codev_agents.rollout.tokens import PixelBlock


@dataclass(frozen=True, eq=False)
class Sample:
    """One trajectory to train on.

    Attributes:
        ids: All token ids.
        images: The images, in the order of their tokens.
        turns: For each token the number of the turn it was sampled in, or -1 where the environment wrote it.
        logprobs: For each token the sampler's log-probability; 0 where the environment wrote it.
        mask: For each token whether the loss covers it.
        advantages: One for each turn, `[turns]`.
        version: Number of updates of the policy that sampled it, the oldest if several did.
        lags: For each token the updates since the one that sampled it; empty if all are 0.
        is_imitated: The loss is -advantage * log-probability for each token, without a ratio; the sample counts in no
            mean over tokens or trajectories, see `imitation`.
        imitated: For each token the advantage of that loss, beside the other one or alone; `join` sets it.
    """

    ids: Sequence[int]
    images: Sequence[PixelBlock]
    turns: Sequence[int]
    logprobs: Sequence[float]
    mask: Sequence[bool]
    advantages: torch.Tensor
    version: int = 0
    is_imitated: bool = False
    lags: Sequence[int] = ()
    imitated: Sequence[float] = ()

    @classmethod
    def unlearned(cls, ids: Sequence[int], images: Sequence[PixelBlock], turns: Sequence[int]) -> Sample:
        """Return a trajectory of which the loss covers nothing, with advantages of 0."""
        count = len(ids)
        return cls(ids, images, turns, [0.0] * count, [False] * count, torch.zeros(max(turns) + 1))

    def __len__(self) -> int:
        """Return the number of tokens."""
        return len(self.ids)

    @property
    def size(self) -> int:
        """Number of tokens that the loss covers; 0 if the trajectory is not trained on."""
        return sum(self.mask)


def is_masked(rollout: Rollout, overlong: bool = False, overturn: bool = False) -> bool:
    """Return whether the loss covers nothing of a rollout: its judge failed, or it was cut off.

    Args:
        rollout: A finished episode.
        overlong: Do not train on episodes that were cut off at the token budget.
        overturn: Do not train on episodes that ran out of turns.
    """
    over_turn = rollout.trajectory.stop_reason == "max_turns"
    return rollout.judge_failed or (overlong and rollout.cut) or (overturn and over_turn)


def make_samples(
    rollouts: Sequence[Rollout],
    advantages: torch.Tensor,
    version: int = 0,
    mask_overlong: bool = False,
    mask_overturn: bool = False,
) -> list[Sample]:
    """Make a sample of each rollout. The loss covers its sampled tokens, or none, see `is_masked`.

    Args:
        rollouts: Finished episodes.
        advantages: `[trajectories, turns]`, see `credit`.
        version: Number of updates of the policy that is trained on them.
        mask_overlong: See `is_masked`.
        mask_overturn: See `is_masked`.
    """
    samples = []
    for rollout, row in zip(rollouts, advantages, strict=True):
        tokens, masked = rollout.tokens, is_masked(rollout, mask_overlong, mask_overturn)
        lags = [max(0, version - sampled) if sampled >= 0 else 0 for sampled in tokens.versions]
        samples.append(
            Sample(
                ids=tokens.ids,
                images=tokens.images,
                turns=tokens.turns,
                logprobs=tokens.logprobs,
                mask=[turn >= 0 and not masked for turn in tokens.turns],
                advantages=row[: len(rollout.trajectory.turns)],
                version=version - max(lags, default=0),
                lags=lags if any(lags) else (),
            )
        )
    return samples
