"""Log-probabilities and entropies of chosen tokens against the full softmax, in values, gradients and memory."""

from __future__ import annotations

import math

import pytest
import torch

from codev_train.learn import logprobs as module
from codev_train.learn.logprobs import token_logprobs
from codev_train.run import footprint


class Head(torch.nn.Linear):
    """A language-model head that notes how many positions it was given at a time."""

    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__(width, vocabulary, bias=False)
        self.rows: list[int] = []

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        self.rows.append(len(hidden))
        return super().forward(hidden)


@pytest.fixture
def head() -> Head:
    torch.manual_seed(0)
    return Head(8, 13)


@pytest.fixture
def hidden(head) -> torch.Tensor:
    return torch.randn(10, 8, requires_grad=True)


TARGETS = torch.tensor([0, 3, 5, 12, 1, 1, 7, 9, 2, 4])


@pytest.mark.parametrize("temperature", [1.0, 0.7, 2.0])
@pytest.mark.parametrize("banned", [(), (6, 11)])
def test_logprobs_and_entropies_are_those_of_the_full_softmax(head, hidden, temperature, banned):
    logits = head(hidden).detach() / temperature
    allowed = [i for i in range(13) if i not in banned]
    full = torch.full_like(logits, -torch.inf)
    full[:, allowed] = torch.log_softmax(logits[:, allowed], -1)
    entropy = -(full[:, allowed].exp() * full[:, allowed]).sum(-1)

    logprobs, entropies = token_logprobs(hidden, head, TARGETS, temperature, banned)
    torch.testing.assert_close(logprobs, full.gather(1, TARGETS[:, None])[:, 0])
    torch.testing.assert_close(entropies, entropy)
    assert not entropies.requires_grad


def test_a_banned_target_has_no_probability_and_no_weight_is_trained_for_it(head, hidden):
    logprobs, entropies = token_logprobs(hidden, head, TARGETS, banned=(6, 9))
    assert logprobs[7] == -math.inf and torch.isfinite(logprobs[TARGETS != 9]).all() and torch.isfinite(entropies).all()
    logprobs[TARGETS != 9].sum().backward()
    assert not head.weight.grad[6].any() and not head.weight.grad[9].any() and head.weight.grad[0].any()


@pytest.mark.parametrize("chunk", [1, 3, 10, 4096])
def test_chunks_change_neither_values_nor_gradients(head, hidden, monkeypatch, chunk):
    def run() -> tuple[torch.Tensor, ...]:
        logprobs, entropies = token_logprobs(hidden, head, TARGETS, 0.9, (6,))
        weights = torch.linspace(-1, 1, 10)
        return logprobs, entropies, *torch.autograd.grad((logprobs * weights).sum(), [hidden, head.weight])

    whole = run()
    monkeypatch.setattr(module, "CHUNK", chunk)
    head.rows.clear()
    for part, wanted in zip(run(), whole, strict=True):
        torch.testing.assert_close(part, wanted)
    assert max(head.rows) == min(chunk, 10)


def test_entropies_have_a_gradient_where_it_is_asked_for(head, hidden):
    def full() -> torch.Tensor:
        logits = head(hidden).index_fill(-1, torch.tensor([6]), -torch.inf) / 0.7
        return torch.distributions.Categorical(logits=logits).entropy()

    _, entropies = token_logprobs(hidden, head, TARGETS, 0.7, (6,), entropy_gradient=True)
    (found,) = torch.autograd.grad(entropies.sum(), hidden)
    (wanted,) = torch.autograd.grad(full().sum(), hidden)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("trained", ["all", "head"])
def test_no_pass_keeps_the_logits_of_more_than_a_chunk(head, hidden, monkeypatch, trained):
    """What is kept for the backward pass does not grow with the vocabulary, and the backward pass goes in chunks."""
    monkeypatch.setattr(module, "CHUNK", 3)
    given = hidden if trained == "all" else hidden.detach()
    kept: list[tuple[int, ...]] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tuple(tensor.shape))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logprobs, _ = token_logprobs(given, head, TARGETS)
    assert not [shape for shape in kept if shape[-1:] == (13,)], "logits were kept"
    head.rows.clear()
    logprobs.sum().backward()
    assert head.weight.grad.any() and head.rows and max(head.rows) == 3


def test_a_large_vocabulary_has_the_logits_of_fewer_tokens_at_a_time(head, hidden, monkeypatch):
    assert (module.CHUNK, module.LOGITS) == (footprint.LOGITS_CHUNK, footprint.LOGITS), "what --dry-run counts"
    assert module.chunk_tokens(500) == module.CHUNK and module.chunk_tokens(151_936) * 151_936 <= module.LOGITS
    whole = token_logprobs(hidden, head, TARGETS)[0]
    monkeypatch.setattr(module, "LOGITS", 4 * 13 + 1)
    head.rows.clear()
    torch.testing.assert_close(token_logprobs(hidden, head, TARGETS)[0], whole)
    assert max(head.rows) == 4
    monkeypatch.setattr(module, "LOGITS", 1)
    torch.testing.assert_close(token_logprobs(hidden, head, TARGETS)[0], whole)
