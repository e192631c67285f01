"""Policy losses against numbers computed by hand: surrogates, averages, importance weights, KL."""

from __future__ import annotations

import math

import pytest
import torch

from codev_env.errors import ConfigError
from codev_train.learn.loss import (
    LOSSES,
    Clip,
    LossTokens,
    check_loss,
    clipped,
    get_loss,
    importance_weights,
    kl_estimate,
    sequence_clipped,
    weighted,
)

CLIP = Clip(0.2, 0.3, 3.0)


def tokens(ratios: list[float], advantages: list[float], sequences: list[int] | None = None) -> LossTokens:
    """Tokens whose log-probability is that of `old`, -2, times the ratio."""
    old = torch.full((len(ratios),), -2.0)
    logprobs = (old + torch.tensor(ratios).log()).requires_grad_()
    return LossTokens(logprobs, old, torch.tensor(advantages), torch.tensor(sequences or [0] * len(ratios)))


def gradient(values: torch.Tensor, given: LossTokens) -> list[float]:
    return torch.autograd.grad(values.sum(), given.logprobs)[0].tolist()


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "slope", "hit"),
    [
        pytest.param(1.0, 2.0, -2.0, -2.0, 0, id="on policy, good"),
        pytest.param(1.0, -2.0, 2.0, 2.0, 0, id="on policy, bad"),
        pytest.param(1.25, 2.0, -2.5, -2.5, 0, id="good, up, inside"),
        pytest.param(1.5, 2.0, -2.6, 0.0, 1, id="good, up, clipped high"),
        pytest.param(0.5, 2.0, -1.0, -1.0, 0, id="good, down: pulled back without bound"),
        pytest.param(0.5, -2.0, 1.6, 0.0, 1, id="bad, down, clipped low"),
        pytest.param(1.5, -2.0, 3.0, 3.0, 0, id="bad, up: pushed down"),
        pytest.param(4.0, -2.0, 6.0, 0.0, 0, id="bad, far up: dual clip"),
        pytest.param(4.0, 2.0, -2.6, 0.0, 1, id="good, far up: no dual clip"),
        pytest.param(1.5, 0.0, 0.0, 0.0, 0, id="no advantage"),
    ],
)
def test_clip_cases(ratio, advantage, value, slope, hit):
    # A trajectory of one token has one ratio: its own.
    for surrogate in (clipped, sequence_clipped):
        given = tokens([ratio], [advantage])
        values, hits = surrogate(given, CLIP)
        assert values.tolist() == pytest.approx([value], rel=1e-5, abs=1e-6)
        assert gradient(values, given) == pytest.approx([slope], rel=1e-5, abs=1e-6)
        assert hits.tolist() == [bool(hit)]


def test_without_dual_clip_a_bad_token_is_pushed_down_without_bound():
    given = tokens([4.0], [-2.0])
    values, _ = clipped(given, Clip(0.2, 0.3))
    assert values.tolist() == pytest.approx([8.0]) and gradient(values, given) == pytest.approx([8.0])


def test_a_trajectory_is_clipped_as_one():
    # Ratios 2 and 1/2 cancel to s = 1; 4 and 1 make s = 2, clipped at 1.3.
    given = tokens([2.0, 0.5, 4.0, 1.0], [1.0, 1.0, 1.0, 1.0], [0, 0, 1, 1])
    values, hits = sequence_clipped(given, CLIP)
    assert values.tolist() == pytest.approx([-1.0, -1.0, -1.3, -1.3])
    assert hits.tolist() == [False, False, True, True]
    assert gradient(values, given) == pytest.approx([-1.0, -1.0, 0.0, 0.0])


def test_the_ratio_of_a_trajectory_has_the_gradient_of_the_published_sequence_loss():
    """Averaged over its tokens, it is that of s A with s = exp(mean log r): s A / length for every token."""
    given = tokens([1.2, 0.9, 1.1], [2.0, 2.0, 2.0])
    values, _ = sequence_clipped(given, CLIP)
    s = (1.2 * 0.9 * 1.1) ** (1 / 3)
    assert gradient(values / 3, given) == pytest.approx([-2.0 * s / 3] * 3)


def test_turns_of_one_trajectory_keep_their_own_advantages():
    given = tokens([1.0, 1.0], [1.0, -2.0])
    values, _ = sequence_clipped(given, CLIP)
    assert gradient(values, given) == pytest.approx([-1.0, 2.0])


@pytest.mark.parametrize(
    ("ratio", "advantage", "weight", "hit"),
    [(1.1, 2.0, 1.1, 0), (1.5, 2.0, 1.3, 1), (1.5, -2.0, 1.3, 1), (0.5, -2.0, 0.8, 1), (4.0, -1.0, 1.3, 1)],
)
def test_a_clipped_weight_leaves_every_token_its_gradient(ratio, advantage, weight, hit):
    given = tokens([ratio], [advantage])
    values, hits = weighted(given, CLIP)
    assert values.tolist() == pytest.approx([-weight * advantage * (math.log(ratio) - 2)])
    assert gradient(values, given) == pytest.approx([-weight * advantage])
    assert hits.tolist() == [bool(hit)]


def test_a_clipped_weight_without_lower_limit():
    given = tokens([0.01], [1.0])
    values, hits = weighted(given, Clip(1.0, 0.3))
    assert gradient(values, given) == pytest.approx([-0.01]) and not hits.any()


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        # Losses 1, 2, 3 of one trajectory and 10 of another; the longest response would have 8 tokens.
        ("dapo", (1 + 2 + 3 + 10) / 4),
        ("cispo", (1 + 2 + 3 + 10) / 4),
        ("grpo", (2 + 10) / 2),
        ("gspo", (2 + 10) / 2),
        ("dr_grpo", (1 + 2 + 3 + 10) / (2 * 8)),
    ],
)
def test_averages(name, wanted):
    average = LOSSES[name].average
    losses, sequences = torch.tensor([1.0, 2.0, 3.0, 10.0]), torch.tensor([0, 0, 0, 1])
    whole = (losses * average.share(sequences)).sum() / average.total(4.0, 2.0, 8)
    assert float(whole) == pytest.approx(wanted)
    # Two passes of one step add up to it.
    parts = [(losses[:3], torch.tensor([0, 0, 0])), (losses[3:], torch.tensor([0]))]
    added = sum((part * average.share(s)).sum() for part, s in parts) / average.total(4.0, 2.0, 8)
    assert float(added) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("level", "wanted"),
    [
        # Ratios of trainer to sampler: 2 and 3 in one trajectory, 1/2 in another; cut at 4.
        ("none", [1.0, 1.0, 1.0]),
        ("token", [2.0, 3.0, 0.5]),
        ("sequence", [4.0, 4.0, 0.5]),
        ("geometric", [math.sqrt(6), math.sqrt(6), 0.5]),
    ],
)
def test_importance_weights(level, wanted):
    sampler = torch.tensor([-3.0, -2.0, -1.0])
    old = (sampler + torch.tensor([2.0, 3.0, 0.5]).log()).requires_grad_()
    found = importance_weights(level, old, sampler, torch.tensor([0, 0, 1]), 4.0)
    assert found.tolist() == pytest.approx(wanted) and not found.requires_grad


def test_importance_weights_are_cut_to_the_cap():
    found = importance_weights(
        "token", torch.tensor([0.0, -5.0]), torch.tensor([-9.0, -5.5]), torch.tensor([0, 0]), 2.0
    )
    assert found.tolist() == pytest.approx([2.0, math.exp(0.5)])


def test_the_kl_estimate_is_right_on_average():
    """Summed over all tokens by their probability it is the divergence itself: 0.5 ln(0.5/0.9) + 0.5 ln(0.5/0.1)."""
    p, q = torch.tensor([0.5, 0.5], requires_grad=True), torch.tensor([0.9, 0.1])
    values = kl_estimate(p.log(), q.log())
    assert (p * values).sum().item() == pytest.approx(0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1))
    assert (values >= 0).all() and values[0].item() == pytest.approx(0.9 / 0.5 - 1 - math.log(0.9 / 0.5))
    # Per token d/dlogp is 1 - q / p: it pulls towards the reference.
    (slope,) = torch.autograd.grad(values.sum(), p)
    assert (slope * p).tolist() == pytest.approx([1 - 0.9 / 0.5, 1 - 0.1 / 0.5])


@pytest.mark.parametrize("name", LOSSES)
def test_the_losses_of_the_package_pass_the_check(name):
    check_loss(name)
    assert get_loss(name) is LOSSES[name]


def summed(given: LossTokens, clip: Clip):
    return -(given.logprobs * given.advantages).sum(), torch.zeros(3)


def without_gradient(given: LossTokens, clip: Clip):
    return -given.old * given.advantages, torch.zeros(3)


def alone(given: LossTokens, clip: Clip):
    return -given.logprobs


def broken(given: LossTokens, clip: Clip):
    raise ZeroDivisionError("oh no")


def test_a_sentence_of_a_failed_loss_ends_once():
    with pytest.raises(ConfigError) as said:
        check_loss(f"{__name__}:sentence")
    assert str(said.value).endswith("ValueError: Give me more.")


def sentence(given: LossTokens, clip: Clip):
    raise ValueError("Give me more.")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("summed", r"shapes \[\[\], \[3\]\] for three tokens; it must return the loss of each token"),
        ("without_gradient", "which depends on `logprobs`"),
        ("alone", "failed on three tokens: ValueError"),
        ("broken", "failed on three tokens: ZeroDivisionError: oh no"),
        ("CLIP", "is a Clip; it must be a function or a PolicyLoss"),
        ("nothing", "cannot import the loss"),
    ],
)
def test_a_loss_that_cannot_work_is_refused_before_it_is_used(name, said):
    with pytest.raises(ConfigError, match=said):
        check_loss(f"{__name__}:{name}")
