"""One policy update: its gradient against one written out by hand, and what it refuses to train on."""

from __future__ import annotations

import copy
import dataclasses
import math

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from codev_agents.engines.batch import collate
from codev_agents.engines.hf import HFEngine
from codev_agents.engines.policy import Policy
from codev_agents.rollout.engine import Sampling
from codev_agents.rollout.runner import Rollout, RolloutRunner
from codev_env.errors import CodevError
from codev_train.learn.loss import AVERAGES, Clip, LossTokens, PolicyLoss, check_loss
from codev_train.learn.sample import make_samples
from codev_train.learn.scorer import TokenScorer
from codev_train.learn.update import EngineMismatch, Updater
from codev_train.run.environments import make_env
from codev_train.run.health import HealthOptions
from codev_train.run.options import OptimizerOptions, TrainOptions

TEMPERATURE = 0.8
ADVANTAGES = torch.tensor([[1.0, 0.5], [-0.5, 2.0], [0.0, 0.0], [-1.0, -1.0]], dtype=torch.float64)


@pytest.fixture(scope="module")
def rollouts(policy, env_options) -> list[Rollout]:
    runner = RolloutRunner(lambda: make_env(env_options, "train"), policy.processor)
    try:
        return runner.play(HFEngine(policy.model, policy.processor, seed=4), [0, 1], 2, Sampling(TEMPERATURE, 12))
    finally:
        runner.close()


@pytest.fixture
def trained(policy) -> Policy:
    """A copy whose weights may change."""
    return dataclasses.replace(policy, model=copy.deepcopy(policy.model))


def options(**changes) -> TrainOptions:
    base = TrainOptions(temperature=TEMPERATURE, optimizer=OptimizerOptions(grad_clip=1e9))
    return dataclasses.replace(base, **changes)


def run_update(
    policy: Policy, rollouts, advantages=ADVANTAGES, optimizer=None, optimizer_options=None, reference=None, **changes
):
    scorer = TokenScorer(policy.model)
    # Plain gradient descent of rate 1: the weights move by exactly the gradient.
    optimizer = optimizer or torch.optim.SGD(scorer.parameters(), lr=1.0)
    chosen = options(**changes, **({"optimizer": optimizer_options} if optimizer_options else {}))
    updater = Updater(scorer, optimizer, policy.processor, chosen, Accelerator(), reference)
    samples = make_samples(rollouts, advantages, 0, chosen.mask_overlong, chosen.mask_overturn)
    return updater.update(samples, np.random.default_rng(0))


def movement(policy: Policy, trained: Policy) -> torch.Tensor:
    pairs = zip(policy.model.parameters(), trained.model.parameters(), strict=True)
    return torch.cat([(a - b).detach().flatten() for a, b in pairs])


def gradient_by_hand(policy: Policy, rollouts: list[Rollout], shares: list[float] | None = None) -> torch.Tensor:
    """The policy gradient: minus the sum over sampled tokens of share times advantage times log-probability, by row.

    `shares` are those of the tokens of each row; without them, of all tokens the same.
    """
    model, processor = copy.deepcopy(policy.model), policy.processor
    total = torch.zeros(())
    for row, rollout in enumerate(rollouts):
        tokens = rollout.tokens
        share = shares[row] if shares else 1 / sum(map(length, rollouts))
        logits = model(**collate([tokens.ids], [tokens.images], processor.pad_id, processor.image_id)).logits[0]
        logits[:, processor.banned_ids] = -torch.inf
        logprobs = (logits / TEMPERATURE).log_softmax(-1)
        for place, turn in enumerate(tokens.turns):
            if turn >= 0:
                total = total - ADVANTAGES[row, turn].float() * logprobs[place - 1, tokens.ids[place]] * share
    total.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def length(rollout: Rollout) -> int:
    return sum(t >= 0 for t in rollout.tokens.turns)


@pytest.mark.parametrize(
    "size",
    [{"micro_batch": 1}, {"micro_batch": 2}, {"micro_batch": 64}, {"token_budget": 1}, {"token_budget": 100_000}],
)
def test_the_first_step_follows_the_policy_gradient(policy, trained, rollouts, size):
    wanted = gradient_by_hand(policy, rollouts)
    stats = run_update(trained, rollouts, **size)
    torch.testing.assert_close(movement(policy, trained), wanted, atol=1e-5, rtol=1e-3)
    assert stats.grad_norm == pytest.approx(float(wanted.norm()), rel=1e-3)
    assert stats.kl == pytest.approx(0, abs=1e-6) and stats.clip_fraction == 0 and stats.entropy > 0
    assert stats.sampler_gap < 1e-4 and stats.sampler_gap <= stats.sampler_gap_max < 1e-3
    assert stats.truncated == stats.kl_reference == 0


@pytest.mark.parametrize("loss", ["grpo", "dapo", "dr_grpo", "gspo", "cispo"])
def test_on_policy_the_losses_differ_in_their_average_only(policy, trained, rollouts, loss):
    longest = 12 * 6  # max_tokens * env.max_turns
    shares = {
        "grpo": [1 / length(r) / len(rollouts) for r in rollouts],
        "dr_grpo": [1 / longest / len(rollouts)] * len(rollouts),
    }
    wanted = gradient_by_hand(policy, rollouts, shares.get({"gspo": "grpo"}.get(loss, loss)))
    run_update(trained, rollouts, loss=loss, micro_batch=3, max_tokens=12)
    torch.testing.assert_close(movement(policy, trained), wanted, atol=1e-5, rtol=1e-3)


def reinforce(tokens: LossTokens, clip: Clip) -> tuple[torch.Tensor, torch.Tensor]:
    """Without a ratio; twice as steep, so that it cannot be mistaken for one of the package's."""
    return -2 * tokens.advantages * tokens.logprobs, torch.zeros(tokens.logprobs.shape, dtype=torch.bool)


BY_TRAJECTORY = PolicyLoss(reinforce, AVERAGES["sequence"])


@pytest.mark.parametrize(("loss", "average"), [("reinforce", None), ("BY_TRAJECTORY", "sequence")])
def test_a_loss_of_ones_own_moves_the_weights(policy, trained, rollouts, loss, average):
    shares = [1 / length(r) / len(rollouts) for r in rollouts] if average else None
    check_loss(f"{__name__}:{loss}")
    stats = run_update(trained, rollouts, loss=f"{__name__}:{loss}", micro_batch=3)
    wanted = 2 * gradient_by_hand(policy, rollouts, shares)
    torch.testing.assert_close(movement(policy, trained), wanted, atol=1e-5, rtol=1e-3)
    assert stats.clip_fraction == 0


def test_checkpointed_gradients_are_the_same(policy, trained, rollouts):
    wanted = gradient_by_hand(policy, rollouts)
    trained.model.gradient_checkpointing_enable()
    run_update(trained, rollouts)
    torch.testing.assert_close(movement(policy, trained), wanted, atol=1e-5, rtol=1e-3)


def test_the_gradient_is_clipped_to_its_norm(policy, trained, rollouts):
    stats = run_update(trained, rollouts)
    clipped = dataclasses.replace(policy, model=copy.deepcopy(policy.model))
    again = run_update(clipped, rollouts, optimizer_options=OptimizerOptions(grad_clip=stats.grad_norm / 4))
    assert again.grad_norm == pytest.approx(stats.grad_norm), "the norm that is logged is the one before clipping"
    torch.testing.assert_close(movement(policy, clipped) * 4, movement(policy, trained), atol=1e-4, rtol=1e-2)


def test_epochs_and_minibatches_go_off_policy_and_are_clipped(trained, rollouts):
    adam = torch.optim.AdamW(trained.model.parameters(), lr=0.02, weight_decay=0.0)
    stats = run_update(trained, rollouts, optimizer=adam, epochs=3, minibatches=2)
    assert stats.kl > 1e-3 and 0 < stats.clip_fraction < 1


def test_an_update_without_samples_changes_nothing(policy, trained, rollouts):
    scorer = TokenScorer(trained.model)
    updater = Updater(
        scorer, torch.optim.SGD(scorer.parameters(), lr=1.0), policy.processor, options(minibatches=2), Accelerator()
    )
    filler = min(make_samples(rollouts, ADVANTAGES, 0, False, False), key=len)
    stats = updater.update([], np.random.default_rng(0), filler)
    assert not movement(policy, trained).any() and stats.grad_norm == 0


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_groups_without_signal_change_nothing(policy, trained, rollouts, name):
    optimizer = None
    if name == "adamw":
        # Moments of an earlier update must not move the weights either.
        optimizer = torch.optim.AdamW(trained.model.parameters(), lr=0.1, weight_decay=0.5)
        for parameter in trained.model.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        optimizer.zero_grad()
        policy = dataclasses.replace(policy, model=copy.deepcopy(trained.model))
    stats = run_update(trained, rollouts, torch.zeros_like(ADVANTAGES), optimizer)
    assert not movement(policy, trained).any()
    assert stats.grad_norm == 0 and stats.loss == 0


def falsified(rollouts: list[Rollout], by: float) -> list[Rollout]:
    changed = copy.deepcopy(rollouts)
    for rollout in changed:
        rollout.tokens.logprobs = [
            lp + by * (t >= 0) for lp, t in zip(rollout.tokens.logprobs, rollout.tokens.turns, strict=True)
        ]
    return changed


@pytest.mark.parametrize("by", [0.002, -0.5])
def test_a_sampler_of_other_probabilities_is_refused(policy, trained, rollouts, by):
    with pytest.raises(
        EngineMismatch, match=r"differ by 0\.\d+ nats per token on the same weights \(mean of \d+ tokens, at most \d"
    ):
        run_update(trained, falsified(rollouts, by))
    assert not movement(policy, trained).any()


@pytest.mark.parametrize("correction", ["none", "token", "geometric"])
def test_a_tolerated_sampler_is_corrected_for(policy, trained, rollouts, correction):
    """Where the sampler's log-probabilities are all lower by 0.1, each token weighs exp(0.1) of itself."""
    wanted = gradient_by_hand(policy, rollouts) * (1.0 if correction == "none" else math.exp(0.1))
    tolerant = HealthOptions(mismatch=0.2)
    stats = run_update(trained, falsified(rollouts, -0.1), correction=correction, health=tolerant, clip_low=0.01)
    torch.testing.assert_close(movement(policy, trained), wanted, atol=1e-5, rtol=1e-3)
    assert stats.sampler_gap == pytest.approx(0.1, abs=1e-4) and stats.clip_fraction == 0 and stats.truncated == 0


def test_the_weight_of_a_trajectory_is_truncated(policy, trained, rollouts):
    """exp(0.1 * 12 sampled tokens) is more than 1.5 already."""
    wanted = gradient_by_hand(policy, rollouts) * 1.5
    tolerant = HealthOptions(mismatch=0.2)
    shifted = falsified(rollouts, -0.1)
    stats = run_update(trained, shifted, correction="sequence", correction_cap=1.5, health=tolerant)
    torch.testing.assert_close(movement(policy, trained), wanted, atol=1e-5, rtol=1e-3)
    assert stats.truncated == 1


@pytest.mark.parametrize("size", [{"micro_batch": 3}, {"token_budget": 400}])
def test_later_steps_compare_with_the_trainers_own_probabilities(policy, rollouts, size):
    """What the sampler reports scales tokens; it decides neither the ratio nor the clip."""
    moved = []
    for shift in (0.0, -0.1):
        trained = dataclasses.replace(policy, model=copy.deepcopy(policy.model))
        slow = torch.optim.SGD(trained.model.parameters(), lr=1e-3)
        stats = run_update(
            trained,
            falsified(rollouts, shift),
            optimizer=slow,
            correction="none",
            epochs=2,
            minibatches=2,
            health=HealthOptions(mismatch=0.2),
            **size,
        )
        assert stats.kl > 0
        moved.append(movement(policy, trained))
    torch.testing.assert_close(moved[0], moved[1], atol=0, rtol=0)


def test_the_kl_term_pulls_towards_the_reference(policy, trained, rollouts):
    reference = TokenScorer(copy.deepcopy(policy.model))
    nothing = torch.zeros_like(ADVANTAGES)
    stats = run_update(trained, rollouts, nothing, reference=reference, kl=1.0)
    assert stats.kl_reference == pytest.approx(0, abs=1e-6)
    assert movement(policy, trained).abs().max() < 1e-5, "a policy that is its own reference stays where it is"

    with torch.no_grad():
        trained.model.get_input_embeddings().weight.mul_(1.05)
    slow = {"optimizer": torch.optim.SGD(trained.model.parameters(), lr=1e-4), "health": HealthOptions(mismatch=9.0)}
    found = [run_update(trained, rollouts, nothing, reference=reference, kl=1.0, **slow) for _ in range(3)]
    assert found[0].kl_reference > found[1].kl_reference > found[2].kl_reference > 0
    assert found[0].loss == pytest.approx(found[0].kl_reference, rel=1e-4)


def test_the_entropy_bonus_raises_the_entropy(trained, rollouts):
    slow = torch.optim.SGD(trained.model.parameters(), lr=1e-3)
    tolerant = HealthOptions(mismatch=9.0)
    nothing = torch.zeros_like(ADVANTAGES)
    found = [run_update(trained, rollouts, nothing, slow, entropy=1.0, health=tolerant).entropy for _ in range(3)]
    assert found[0] < found[1] < found[2]


@pytest.mark.parametrize("kind", ["overlong", "overturn"])
def test_masked_episodes_count_for_nothing(policy, rollouts, kind):
    cut = copy.deepcopy(rollouts)
    if kind == "overlong":
        cut[1] = dataclasses.replace(cut[1], cut=True)
    else:
        reasons = ["answer", "max_turns", "answer", "answer"]
        for row, reason in enumerate(reasons):
            ended = dataclasses.replace(cut[row].trajectory, stop_reason=reason)
            cut[row] = dataclasses.replace(cut[row], trajectory=ended)
    moved = []
    for given, advantages, options in (
        (cut, ADVANTAGES, {f"mask_{kind}": True}),
        ([cut[row] for row in (0, 2, 3)], ADVANTAGES[[0, 2, 3]], {}),
    ):
        trained = dataclasses.replace(policy, model=copy.deepcopy(policy.model))
        run_update(trained, given, advantages, **options)
        moved.append(movement(policy, trained))
    torch.testing.assert_close(moved[0], moved[1], atol=1e-6, rtol=1e-4)


def test_a_batch_of_masked_episodes_changes_nothing(policy, trained, rollouts):
    cut = [dataclasses.replace(rollout, cut=True) for rollout in rollouts]
    stats = run_update(trained, cut, mask_overlong=True)
    assert not movement(policy, trained).any() and stats.loss == stats.grad_norm == 0


def test_small_steps_in_bf16_move_the_weights(policy, rollouts):
    """The computation is rounded to bf16, the weights are not: in bf16 a step of 1e-6 from 1 would be lost."""
    trained = dataclasses.replace(policy, model=copy.deepcopy(policy.model))
    optimizer = torch.optim.AdamW(trained.model.parameters(), lr=1e-6, weight_decay=0.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        stats = run_update(trained, rollouts, optimizer=optimizer, health=HealthOptions(mismatch=9.0))
    moved = movement(policy, trained).abs()
    assert {p.dtype for p in trained.model.parameters()} == {torch.float32}
    assert moved.max() == pytest.approx(1e-6, rel=0.3) and (moved > 0).float().mean() > 0.5
    assert 1e-4 < stats.sampler_gap < 1


def test_a_sampler_of_another_temperature_is_refused(policy, trained, rollouts):
    with pytest.raises(EngineMismatch):
        run_update(trained, rollouts, temperature=1.0)
    assert not movement(policy, trained).any()


def test_only_the_first_step_is_checked_against_the_sampler(policy, trained, rollouts):
    """Later ones differ by right: the weights have moved."""
    run_update(trained, rollouts, epochs=2, optimizer=torch.optim.SGD(trained.model.parameters(), lr=0.1))
    assert movement(policy, trained).any()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_gradients_that_are_no_numbers_stop_the_run(policy, trained, rollouts, bad):
    weight = trained.model.model.language_model.layers[1].mlp.down_proj.weight
    with torch.no_grad():
        weight[0, 0] = bad
    before = [p.detach().clone() for p in trained.model.parameters()]
    with pytest.raises(CodevError):
        run_update(trained, rollouts)
    after = trained.model.parameters()
    assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("correction", ["none", "token"])
def test_a_weight_that_the_cap_leaves_alone_is_not_truncated(trained, rollouts, correction):
    """Sampler and trainer agree, so every weight is 1, which is also the cap."""
    exact = copy.deepcopy(rollouts)
    for number, values in enumerate(scored(trained, rollouts)):
        own = iter(values)
        tokens = exact[number].tokens
        tokens.logprobs = [next(own) if turn >= 0 else 0.0 for turn in tokens.turns]
    stats = run_update(trained, exact, correction=correction, correction_cap=1.0)
    assert stats.truncated == 0


def scored(policy: Policy, rollouts) -> list[list[float]]:
    """The log-probabilities of the sampled tokens of each rollout as the trainer computes them, in one pass."""
    chosen, scorer = options(), TokenScorer(policy.model)
    updater = Updater(scorer, torch.optim.SGD(scorer.parameters()), policy.processor, chosen, Accelerator())
    samples = make_samples(rollouts, torch.ones_like(ADVANTAGES), 0, False, False)
    found = updater._score(updater.module, updater._number(samples, samples[0]), list(range(len(samples))))
    return [found[row].tolist() for row in range(len(samples))]


def test_scores_are_kept_on_the_cpu_and_used_on_the_device(trained, rollouts, monkeypatch):
    """They are sent between processes, and a pass may mix those of this process with others that arrived."""
    moved, to = [], torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: moved.append("cpu") or to(self, "cpu"))
    reference = TokenScorer(copy.deepcopy(trained.model))
    stats = run_update(
        trained, rollouts, reference=reference, kl=0.1, correction="token", epochs=2, health=HealthOptions(mismatch=9.0)
    )
    assert moved and stats.kl_reference >= 0


class InOrder:
    """A generator that orders samples as given."""

    def __init__(self, *order: int) -> None:
        self.order = np.array(order)

    def permutation(self, count: int) -> np.ndarray:
        return self.order


def update_in_order(policy: Policy, samples, *order: int, **changes):
    scorer = TokenScorer(policy.model)
    chosen = options(minibatches=2, **changes)
    updater = Updater(scorer, torch.optim.SGD(scorer.parameters(), lr=1e-9), policy.processor, chosen, Accelerator())
    return updater.update(samples, InOrder(*order))


def test_the_first_step_that_moves_the_weights_is_checked_against_the_sampler(policy, trained, rollouts):
    """Samples without advantage are in no pass: their step shows nothing, and changes nothing."""
    signs = torch.tensor([[1.0, 1.0], [-1.0, -1.0], [0.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    right, wrong = (make_samples(given, signs, 0, False, False) for given in (rollouts, falsified(rollouts, -0.5)))
    for order in ((0, 1, 2, 3), (2, 3, 0, 1)):
        assert update_in_order(trained, right, *order).sampler_gap < 1e-3
        before = copy.deepcopy(trained.model.state_dict())
        with pytest.raises(EngineMismatch):
            update_in_order(trained, wrong, *order)
        assert all(torch.equal(value, before[name]) for name, value in trained.model.state_dict().items())


def test_a_sampler_whose_probabilities_are_no_numbers_is_refused_as_such(policy, trained, rollouts):
    with pytest.raises(EngineMismatch, match=r"differ by nan nats per token .* at most nan"):
        run_update(trained, falsified(rollouts, math.nan))
    assert not movement(policy, trained).any()


def test_a_trainer_without_numbers_is_not_blamed_on_the_sampler(trained, rollouts):
    with torch.no_grad():
        trained.model.model.language_model.layers[1].mlp.down_proj.weight[0, 0] = torch.nan
    with pytest.raises(CodevError, match="gradient norm is nan"):
        run_update(trained, rollouts)


@pytest.mark.parametrize("loss", ["dapo", "grpo", "dr_grpo"])
def test_imitated_samples_weigh_the_same_in_a_minibatch_of_their_own(policy, rollouts, loss):
    """There a step is divided by the tokens of the mean minibatch, not by their own few."""
    nothing = make_samples(rollouts, torch.zeros_like(ADVANTAGES), 0, False, False)
    last = len(rollouts[0].rewards) - 1
    mask = [turn == last for turn in nothing[0].turns]
    advantages = torch.ones_like(nothing[0].advantages)
    shown = dataclasses.replace(nothing[0], mask=mask, advantages=advantages, is_imitated=True)
    beside, alone = [shown, *nothing], [shown, nothing[1]]
    norms = {}
    for name, samples, order in (("beside", beside, [0, *range(1, 5)]), ("alone", alone, [0, 1])):
        trained = dataclasses.replace(policy, model=copy.deepcopy(policy.model))
        norms[name] = update_in_order(trained, samples, *order, loss=loss).grad_norm * 2  # the mean of two steps
    counted = {"beside": nothing[:2], "alone": nothing[1:2]}
    parts = {"beside": 1, "alone": 2}
    sizes = {n: (len(s) if loss != "dapo" else sum(x.size for x in s)) / parts[n] for n, s in counted.items()}
    assert norms["beside"] * sizes["beside"] == pytest.approx(norms["alone"] * sizes["alone"], rel=1e-3)


@pytest.mark.parametrize(("precision", "said"), [("fp32", r"or temperature\.$"), ("bf16", "--health.mismatch 0.05")])
def test_where_bf16_rounds_the_limit_is_named(trained, rollouts, precision, said):
    with pytest.raises(EngineMismatch, match=said):
        run_update(trained, falsified(rollouts, 0.01), precision=precision)


def test_imitated_tokens_are_not_compared_with_the_reference(policy, trained, rollouts):
    """However improbable they have become: their estimate would overflow."""

    class Far(torch.nn.Module):
        def forward(self, *inputs):
            logprobs, entropy = scorer(*inputs)
            return logprobs + 200, entropy

    scorer = TokenScorer(trained.model)
    optimizer, chosen = torch.optim.SGD(scorer.parameters(), lr=1.0), options(kl=0.1)
    updater = Updater(scorer, optimizer, policy.processor, chosen, Accelerator(), Far())
    sample = dataclasses.replace(make_samples(rollouts, ADVANTAGES)[0], is_imitated=True)
    stats = updater.update([sample], np.random.default_rng(0))
    assert math.isfinite(stats.grad_norm) and movement(policy, trained).isfinite().all()
