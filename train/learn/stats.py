"""The statistics of one update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class UpdateStats:
    """Statistics of one update, over all processes.

    Attributes:
        loss: As the options average it.
        entropy: Mean over the tokens that were trained on, in nats; NaN if there were none, as all that follow.
        kl: Mean k3 estimate of KL(policy that the ratio is taken against || policy) over these tokens, in nats.
        clip_fraction: Share of these tokens whose ratio was clipped.
        grad_norm: Before clipping; 0 if there were no such tokens.
        sampler_gap: Mean difference between the engine's log-probabilities and the trainer's for the same weights, in
            nats per token.
            Tokens of earlier weights are left out.
        sampler_gap_max: The greatest such difference.
        truncated: Share of tokens whose importance weight was cut to the cap.
        kl_reference: Mean k3 estimate of KL(policy || reference), in nats; 0 without a reference.
        empty_passes: Share of forward passes that processes ran without trajectories, for others had more.
        waiting: Share of the processes' time that the passes of others were longer, by `balance.cost`.
        by_lag: For each number of updates between the weights that sampled a token and those trained on it: the share
            of the tokens, and their mean k3 estimate of KL(sampler || policy before the update), in nats, over the
            first minibatch. Empty without `staleness`.
    """

    loss: float
    entropy: float
    kl: float
    clip_fraction: float
    grad_norm: float
    sampler_gap: float
    sampler_gap_max: float
    truncated: float
    kl_reference: float
    empty_passes: float
    waiting: float
    by_lag: Sequence[tuple[float, float]] = field(default=(), kw_only=True)

    def row(self) -> dict[str, float]:
        """Return the numbers by name, as the history has them."""
        row = {f"update/{name}": value for name, value in vars(self).items() if name != "by_lag"}
        for lag, (share, kl) in enumerate(self.by_lag):
            row |= {f"lag/{lag}_share": share, f"lag/{lag}_kl": kl}
        return row
