"""Log-probabilities and entropies of chosen tokens, never with the logits of the whole sequence in memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.utils.checkpoint import checkpoint

CHUNK = 1024  # loss tokens whose logits over the whole vocabulary exist at the same time


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
            logits = logits.index_fill(-1, torch.tensor(list(banned), device=logits.device), -torch.inf)
        logp = torch.log_softmax(logits / temperature, dim=-1)
        with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
            entropy = -(logp.exp() * logp.masked_fill(logp == -torch.inf, 0.0)).sum(-1)
        return logp.gather(-1, t[:, None])[:, 0], entropy

    logprobs, entropies = [], []
    for start in range(0, max(1, len(targets)), CHUNK):  # no targets: part of the graph all the same
        part = slice(start, start + CHUNK)
        if torch.is_grad_enabled() and len(targets) > CHUNK:
            lp, ent = checkpoint(chunk, hidden[part], targets[part], use_reentrant=False)
        else:
            lp, ent = chunk(hidden[part], targets[part])
        logprobs.append(lp)
        entropies.append(ent)
    return torch.cat(logprobs), torch.cat(entropies)
