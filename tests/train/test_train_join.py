"""Fewer forward passes for the same gradient: turns that are imitated where they were trained on, images seen once."""

from __future__ import annotations

import copy
import dataclasses
import types

import numpy as np
import pytest
import torch
from test_train_imitation import imitate, make_updater
from test_train_imitation import rollouts as rollouts  # a fixture
from test_train_imitation import runner as runner  # a fixture
from test_train_update import movement
from toy_families import NAMES, toy_policy

from codev_agents.engines.batch import collate
from codev_agents.engines.policy import Policy
from codev_agents.rollout.runner import Rollout
from codev_train.learn import update
from codev_train.learn.join import joined, trimmed
from codev_train.learn.sample import Sample, make_samples
from codev_train.learn.scorer import TokenScorer

ADVANTAGES = torch.tensor([[1.0, 0.5], [-0.5, -2.0], [1.0, 0.0], [-1.0, -1.0]])
TOLERANT = 1e9  # scripted rollouts have no log-probabilities


def own_samples(rollouts: list[Rollout], advantages: torch.Tensor = ADVANTAGES) -> list[Sample]:
    return make_samples(rollouts, advantages)


def apart(sample: Sample) -> Sample:
    """The same sample with images of its own: it is a part of no other."""
    return dataclasses.replace(sample, images=[dataclasses.replace(image) for image in sample.images])


def trained_on(
    policy: Policy, samples: list[Sample], kl: float = 0.0, lr: float = 1.0, **changes
) -> tuple[torch.Tensor, dict[str, float]]:
    trained = dataclasses.replace(policy, model=copy.deepcopy(policy.model))
    updater = make_updater(trained, **changes)
    health = dataclasses.replace(updater.options.health, mismatch=TOLERANT)
    options = dataclasses.replace(updater.options, health=health, kl=kl)
    updater = dataclasses.replace(updater, options=options, reference=unlike(policy) if kl else None)
    updater.optimizer.param_groups[0]["lr"] = lr
    stats = updater.update(samples, np.random.default_rng(0))
    return movement(policy, trained) / lr, stats.row()


def unlike(policy: Policy) -> TokenScorer:
    """A reference policy that differs."""
    model = copy.deepcopy(policy.model)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.02)
    return TokenScorer(model).eval()


def count(policy: Policy, samples: list[Sample], always: bool = False) -> int:
    return len(joined(samples, policy.processor.image_id, always))


@pytest.mark.parametrize("changes", [{}, {"token_budget": 100_000}, {"entropy": 0.1}, {"correction": "token"}])
@pytest.mark.parametrize("loss", ["dapo", "grpo", "gspo", "cispo"])
def test_what_is_imitated_of_a_rollout_that_is_trained_on_takes_no_pass_of_its_own(
    policy, runner, rollouts, loss, changes
):
    own = own_samples(rollouts)
    imitated, _ = imitate(policy, runner, rollouts, answers=4, calls=4, weight=0.5)
    alone = [*own, *map(apart, imitated)]
    assert len(imitated) == 1 and count(policy, [*own, *imitated]) == len(own) == count(policy, alone) - 1
    moved, row = trained_on(policy, [*own, *imitated], loss=loss, **changes)
    wanted, before = trained_on(policy, alone, loss=loss, **changes)
    torch.testing.assert_close(moved, wanted, atol=1e-5, rtol=1e-3)
    assert row == pytest.approx(before, rel=1e-3, abs=1e-6, nan_ok=True)


@pytest.mark.parametrize(
    "changes",
    [
        {"kl": 0.2, "entropy": 0.1},
        {"correction": "sequence"},
        {"correction": "ratio"},
        {"staleness": 2, "dual_clip": 3.0},
    ],
)
@pytest.mark.parametrize("loss", ["dapo", "gspo"])
def test_it_takes_none_in_later_epochs_either(policy, runner, rollouts, loss, changes):
    own = [
        dataclasses.replace(sample, logprobs=[-1.0 * (t >= 0) for t in sample.turns])
        for sample in own_samples(rollouts)
    ]
    if "staleness" in changes:
        own = [dataclasses.replace(sample, lags=[max(0, t + 1) for t in sample.turns]) for sample in own]
    (look,), _ = imitate(policy, runner, rollouts, answers=4, calls=4, weight=0.5)
    (call,), _ = imitate(policy, runner, rollouts[1:2], calls=4, weight=0.7)
    alone = [*own, apart(look), apart(call)]
    assert count(policy, [*own, look, call]) == len(own) == count(policy, alone) - 2
    # Small steps: a token on the edge of a clip may be on either side of it.
    moved, row = trained_on(policy, [*own, look, call], loss=loss, epochs=2, lr=1e-3, **changes)
    wanted, before = trained_on(policy, alone, loss=loss, epochs=2, lr=1e-3, **changes)
    assert float((moved - wanted).norm() / wanted.norm()) < 2e-3
    assert row == pytest.approx(before, rel=2e-3, abs=1e-5, nan_ok=True)


def test_a_call_of_a_rollout_that_answered_wrong_is_a_part_of_it(policy, runner, rollouts):
    wrong, own = rollouts[1:2], own_samples(rollouts)
    (call,), _ = imitate(policy, runner, wrong, calls=4, weight=0.5)
    (answer,), _ = imitate(policy, runner, wrong, answers=4)
    found = joined([own[1], call], policy.processor.image_id, False)
    assert len(found) == 1
    assert found[0].imitated == [0.5 if turn == 0 else 0.0 for turn in own[1].turns]
    assert count(policy, [own[1], answer]) == 2, "the gold answer is not what was sampled"
    torch.testing.assert_close(
        trained_on(policy, [*own, call])[0], trained_on(policy, [*own, apart(call)])[0], atol=1e-5, rtol=1e-3
    )


def test_what_is_not_trained_on_saves_no_pass(policy, runner, rollouts):
    (look,), _ = imitate(policy, runner, rollouts, answers=4, calls=4)
    silent = own_samples(rollouts, torch.zeros(4, 2))
    assert count(policy, [*silent, look]) == 5 and count(policy, [*silent, look], always=True) == 4
    masked = [dataclasses.replace(sample, mask=[False] * len(sample)) for sample in own_samples(rollouts)]
    assert count(policy, [*masked, look]) == 5
    (own, *_) = own_samples(rollouts)
    assert count(policy, [own, look, look]) == 2, "each has its own mean: one is enough"
    assert count(policy, [look, own]) == 1, "in any order"
    assert count(policy, [dataclasses.replace(own, ids=[*own.ids[:-1], 0]), look]) == 2
    other = dataclasses.replace(own, images=[own.images[0], dataclasses.replace(own.images[1])])
    assert count(policy, [other, look]) == 2, "another crop after the same words"


def test_what_follows_the_last_token_of_the_loss_is_left_out(policy, runner, rollouts):
    (call,), _ = imitate(policy, runner, rollouts, calls=4)
    short = trimmed(call, policy.processor.image_id)
    assert len(short) < len(call) and short.mask[-1] and short.size == call.size and len(short.images) == 1
    assert list(short.ids) == list(call.ids[: len(short)]) and len(short.turns) == len(short.logprobs) == len(short)
    (answer,), _ = imitate(policy, runner, rollouts, answers=4)
    assert trimmed(answer, policy.processor.image_id) is answer
    nothing = Sample.unlearned(call.ids, call.images, call.turns)
    assert trimmed(nothing, policy.processor.image_id) is nothing
    silent = own_samples(rollouts, torch.zeros(4, 2))
    whole, cut = trained_on(policy, [*silent, call]), trained_on(policy, [*silent, short])
    torch.testing.assert_close(whole[0], cut[0], atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("family", NAMES)
def test_an_image_that_several_rows_show_is_seen_once(family, packed):
    """Its gradient adds up; of families that cut images into tiles each is seen as often as it is shown."""
    policy = toy_policy(family)
    processor, noise = policy.processor, np.random.default_rng(0)
    scene, crop, other = (
        processor.image(noise.integers(0, 255, (*size, 3), dtype=np.uint8)) for size in ((64, 96), (48, 48), (48, 48))
    )
    shown = [[scene, crop], [scene], [other, scene]]
    ids = [processor.prompt("", "<image>" * len(row) + "what is it?", row) for row in shown]
    seen: list[int] = []
    towers = [getattr(policy.model.model, name) for name in processor.family.vision]
    towers[0].register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(len((*args, *kwargs.values())[0])), with_kwargs=True
    )
    scorer, found = TokenScorer(policy.model).train(), []
    for once in (False, not processor.family.tile_tokens):
        batch = collate(ids, shown, processor.pad_id, processor.image_id, once=once)
        chosen = batch["attention_mask"].bool() & (batch["input_ids"] != processor.image_id)
        chosen[:, 0] = False
        logprobs, _ = scorer(batch, chosen, packed=packed)
        logprobs.sum().backward()
        found.append([logprobs.detach(), *(p.grad for p in towers[0].parameters() if p.grad is not None)])
        scorer.zero_grad()
    for one, each in zip(*found, strict=True):
        torch.testing.assert_close(one, each, atol=2e-5 * float(each.abs().max().clamp(min=1)), rtol=1e-3)
    patches = {id(image): len(image.values) for row in shown for image in row}
    every = sum(len(image.values) for row in shown for image in row)
    assert seen == [every, sum(patches.values())] or (processor.family.tile_tokens and seen == [every, every])
    assert not hasattr(towers[0], "image_places") or towers[0].image_places is None


def test_images_of_two_processes_are_told_apart(policy, rollouts, monkeypatch):
    """Where all processes share each trajectory out, the passes hold trajectories of all of them."""
    monkeypatch.setattr(update, "gather_object", lambda own: [*own, *own])
    updater = make_updater(policy)
    updater = dataclasses.replace(updater, accelerator=types.SimpleNamespace(num_processes=2, process_index=0))
    samples = own_samples(rollouts)
    scenes = [outline.scene for outline in updater._number(samples, samples[0]).outlines]
    assert len(samples) == 4 and len(set(scenes[:4])) == len(set(scenes[4:])) == 1 and scenes[0] != scenes[4]
