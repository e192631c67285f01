"""Policy losses: the contribution of each sampled token, and the average over tokens. Pure functions on tensors.

Notation: r = exp(logprobs - old) is the ratio of a token's probabilities under the policy and under the policy that the
update started from; A its advantage; sg stops the gradient. `sequences` `[tokens]` numbers the trajectories from 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from codev_env.errors import ConfigError, unstopped
from codev_env.registry import Registry


@dataclass(frozen=True)
class Clip:
    """Limits of the ratio.

    Attributes:
        low: Lower limit is 1 - this.
        high: Upper limit is 1 + this.
        dual: Bound of the loss for negative advantages, as a multiple of the advantage; 0 for none.
    """

    low: float
    high: float
    dual: float = 0.0


@dataclass(frozen=True, eq=False)
class LossTokens:
    """The sampled tokens of some whole trajectories, each field `[tokens]`.

    Attributes:
        logprobs: Under the policy, with gradient.
        old: Under the policy that the ratio is taken against.
        advantages: From `credit`, one for each token.
        sequences: Number of each token's trajectory, from 0.
    """

    logprobs: torch.Tensor
    old: torch.Tensor
    advantages: torch.Tensor
    sequences: torch.Tensor


Surrogate = Callable[[LossTokens, Clip], tuple[torch.Tensor, torch.Tensor]]
"""From tokens to the loss of each and whether its ratio was clipped, both `[tokens]`."""


def clipped(tokens: LossTokens, clip: Clip) -> tuple[torch.Tensor, torch.Tensor]:
    """Each token by its own ratio: L = -min(r A, clip(r, 1 - low, 1 + high) A); where A < 0, L = min(L, -dual A).

    Sources: PPO, arXiv 1707.06347, equation 7; clip limits apart, DAPO, arXiv 2503.14476, equation 10; dual clip,
    arXiv 1912.09729, equation 5.
    """
    return _clip((tokens.logprobs - tokens.old).exp(), tokens.advantages, clip)


def sequence_clipped(tokens: LossTokens, clip: Clip) -> tuple[torch.Tensor, torch.Tensor]:
    """Each trajectory by one ratio: s = exp(mean of log r over its tokens), in the place of r in `clipped`.

    The gradient is that of sg(s) r / sg(r), so that turns may have different advantages; where they have the same one
    it is the gradient of s. Source: GSPO and GSPO-token, arXiv 2507.18071, equations 5, 7 and 13.
    """
    log_ratio = sequence_mean(tokens.logprobs.detach() - tokens.old, tokens.sequences)
    return _clip((log_ratio + tokens.logprobs - tokens.logprobs.detach()).exp(), tokens.advantages, clip)


def weighted(tokens: LossTokens, clip: Clip) -> tuple[torch.Tensor, torch.Tensor]:
    """REINFORCE with a clipped weight: L = -sg(clip(r, 1 - low, 1 + high)) A logprobs; no token loses its gradient.

    The paper sets no lower limit: `low` = 1. Source: CISPO, MiniMax-M1, arXiv 2506.13585, equations 4 and 5.
    """
    ratio = (tokens.logprobs.detach() - tokens.old).exp()
    weight = ratio.clamp(1 - clip.low, 1 + clip.high)
    return -weight * tokens.advantages * tokens.logprobs, weight != ratio


def _clip(ratio: torch.Tensor, advantages: torch.Tensor, clip: Clip) -> tuple[torch.Tensor, torch.Tensor]:
    plain = -ratio * advantages
    limited = -ratio.clamp(1 - clip.low, 1 + clip.high) * advantages
    loss = torch.maximum(plain, limited)
    if clip.dual > 0:
        loss = torch.where(advantages < 0, torch.minimum(loss, -clip.dual * advantages), loss)
    return loss, limited > plain


@dataclass(frozen=True)
class Average:
    """How token losses become one number: sum of share times loss, divided by a total over the whole optimizer step.

    Attributes:
        share: From `sequences` `[tokens]` to each token's share `[tokens]`.
        total: From the step's number of tokens, its number of trajectories, and the longest response in tokens.
    """

    share: Callable[[torch.Tensor], torch.Tensor]
    total: Callable[[float, float, int], float]


def _equal(sequences: torch.Tensor) -> torch.Tensor:
    return torch.ones(sequences.shape, device=sequences.device)


def _by_length(sequences: torch.Tensor) -> torch.Tensor:
    return 1 / sequences.bincount()[sequences]


AVERAGES = {
    # sum over all tokens / number of tokens. DAPO, arXiv 2503.14476, equation 8.
    "token": Average(_equal, lambda tokens, sequences, longest: tokens),
    # mean over trajectories of the mean over tokens. DeepSeekMath, arXiv 2402.03300, equation 3.
    "sequence": Average(_by_length, lambda tokens, sequences, longest: sequences),
    # sum over all tokens / (trajectories * longest response): no bias by length. Dr. GRPO, arXiv 2503.20783, section 3.
    "constant": Average(_equal, lambda tokens, sequences, longest: sequences * longest),
}


@dataclass(frozen=True)
class PolicyLoss:
    """A loss: its surrogate and how token losses are averaged, by default over all tokens."""

    surrogate: Surrogate
    average: Average = AVERAGES["token"]


LOSSES: Registry[PolicyLoss | Surrogate] = Registry(
    "loss",
    {
        "grpo": PolicyLoss(clipped, AVERAGES["sequence"]),
        "dapo": PolicyLoss(clipped, AVERAGES["token"]),
        "dr_grpo": PolicyLoss(clipped, AVERAGES["constant"]),
        "gspo": PolicyLoss(sequence_clipped, AVERAGES["sequence"]),
        "cispo": PolicyLoss(weighted, AVERAGES["token"]),
    },
    accepts=lambda found: isinstance(found, PolicyLoss) or callable(found),
    expected="a function or a PolicyLoss",
)
"""The values of `--loss`, by name."""


def get_loss(name: str) -> PolicyLoss:
    """Return a loss by its name in `LOSSES` or the `"module:attribute"` path of a `PolicyLoss` or a `Surrogate`.

    Raises:
        ConfigError: There is none, or it cannot be called.
    """
    found = LOSSES.find(name)
    return found if isinstance(found, PolicyLoss) else PolicyLoss(found)


def check_loss(name: str) -> None:
    """Try a loss on three tokens, so that one that cannot work is found before training.

    Raises:
        ConfigError: There is none, it fails, or it returns something else than a `Surrogate` does.
    """
    values = torch.zeros(3)
    tokens = LossTokens(values.clone().requires_grad_(), values, values + 1, torch.tensor([0, 0, 1]))
    surrogate = get_loss(name).surrogate
    try:
        loss, hit = surrogate(tokens, Clip(0.2, 0.2))
        shapes = loss.shape, hit.shape
    except Exception as error:
        reason = f"{type(error).__name__}: {unstopped(error)}"
        raise ConfigError(f"loss {name!r} failed on three tokens: {reason}.") from error
    if shapes != (values.shape, values.shape) or not loss.requires_grad:
        raise ConfigError(
            f"loss {name!r} returned tensors of shapes {[*map(list, shapes)]} for three tokens; it must return "
            "the loss of each token, which depends on `logprobs`, and whether its ratio was clipped."
        )


def importance_weights(
    level: str, old: torch.Tensor, sampler: torch.Tensor, sequences: torch.Tensor, cap: float
) -> torch.Tensor:
    """Correct for an engine that samples from another distribution than the trainer computes with the same weights.

    With d = old - sampler: `token` min(exp(d), cap); `sequence` min(exp(sum of d over the trajectory), cap);
    `geometric` min(exp(mean of d over the trajectory), cap); `none` 1. Sources: truncated importance sampling, Ionides
    2008; for engines, F. Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training";
    token against sequence, arXiv 2512.01374; the geometric mean as the ratio of a sequence, arXiv 2507.18071,
    equation 7.

    Args:
        level: One of the names above.
        old: The trainer's log-probabilities for the weights that sampled, `[tokens]`.
        sampler: The engine's, `[tokens]`.
        sequences: `[tokens]`.
        cap: Largest weight.

    Returns:
        Weights `[tokens]`, without gradient.
    """
    difference = (old - sampler).detach()
    if level == "none":
        return torch.ones_like(difference)
    if level == "sequence":
        difference = sequence_mean(difference, sequences) * sequences.bincount()[sequences]
    elif level == "geometric":
        difference = sequence_mean(difference, sequences)
    return difference.exp().clamp(max=cap)


def kl_estimate(logprobs: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Estimate KL(p || other) from tokens of p: exp(d) - 1 - d with d = other - logprobs, per token; never negative.

    Sources: J. Schulman, "Approximating KL divergence" (k3); as a loss, DeepSeekMath, arXiv 2402.03300, equation 4.
    """
    difference = other - logprobs
    return difference.exp() - 1 - difference


def sequence_mean(values: torch.Tensor, sequences: torch.Tensor) -> torch.Tensor:
    """Replace each token's value by the mean over its trajectory, `[tokens]`."""
    counts = sequences.bincount()
    return (values.new_zeros(len(counts)).index_add(0, sequences, values) / counts)[sequences]
