"""Log-probabilities and entropies of chosen tokens, never with the logits of the whole sequence in memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.utils.checkpoint import checkpoint

CHUNK = 1024  # most loss tokens whose logits over the whole vocabulary exist at the same time
LOGITS = 2**25  # most of these logits, for large vocabularies


def chunk_tokens(vocab: int) -> int:
    """Return how many loss tokens have their logits at the same time."""
    return max(1, min(CHUNK, LOGITS // vocab))


def token_logprobs(
    hidden: torch.Tensor,
    head: torch.nn.Module,
    targets: torch.Tensor,
    temperature: float = 1.0,
    banned: Sequence[int] = (),
    entropy_gradient: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute log-probability and entropy of each target under the distribution that is sampled from.

    Args:
        hidden: Last hidden states at the positions that predict the targets, `[tokens, width]`.
        head: The language-model head.
        targets: Ids, `[tokens]`.
        temperature: The sampler's temperature (1 for greedy sampling).
        banned: Ids that the sampler never writes.
        entropy_gradient: Also differentiate the entropies.

    Returns:
        Log-probabilities `[tokens]` with gradient, and entropies in nats `[tokens]`.
    """

    def chunk(h: torch.Tensor, t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = head(h).float()
        if banned:
            logits.index_fill_(-1, torch.tensor(list(banned), device=logits.device), -torch.inf)
        logp = torch.log_softmax(logits.div_(temperature), dim=-1)
        with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
            entropy = -(logp.exp() * logp.masked_fill(logp == -torch.inf, 0.0)).sum(-1)
        return logp.gather(-1, t[:, None])[:, 0], entropy

    weight: torch.Tensor = head.weight  # type: ignore[assignment]
    logprobs, entropies, most = [], [], chunk_tokens(len(weight))
    for start in range(0, max(1, len(targets)), most):  # no targets: part of the graph all the same
        part = slice(start, start + most)
        if torch.is_grad_enabled() and len(targets) > most:
            lp, ent = checkpoint(chunk, hidden[part], targets[part], use_reentrant=False)
        else:
            lp, ent = chunk(hidden[part], targets[part])
        logprobs.append(lp)
        entropies.append(ent)
    return torch.cat(logprobs), torch.cat(entropies)
