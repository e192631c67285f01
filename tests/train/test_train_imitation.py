"""Self-imitation: which turns are drawn, and that they move the weights as their log-probability does."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from test_train_rollout import SAMPLING, ScriptedEngine
from test_train_update import movement

from codev_agents.engines.batch import collate
from codev_agents.engines.policy import Policy
from codev_agents.rollout.runner import Rollout, RolloutRunner
from codev_agents.scripted import Oracle
from codev_env.geometry import union_area
from codev_env.provenance.coordinates import box_polygon
from codev_train.learn.imitation import Imitation, elsewhere, looked
from codev_train.learn.sample import Sample, make_samples
from codev_train.learn.scorer import TokenScorer
from codev_train.learn.update import Updater
from codev_train.run.environments import make_env
from codev_train.run.options import ImitationOptions, OptimizerOptions, TrainOptions

INDEX = 3


@pytest.fixture(scope="module")
def runner(policy, env_options):
    made = RolloutRunner(lambda: make_env(env_options, "train"), policy.processor)
    yield made
    made.close()


@pytest.fixture(scope="module")
def rollouts(policy, runner) -> list[Rollout]:
    """Of one task: looks and answers right; the same, answered wrongly; answers at once; looks at nothing."""
    from codev_agents.episode import run_episode

    env = runner.make_env()
    expert = [turn.action for turn in run_episode(env, Oracle(margin=0.0, snap=112), options={"index": INDEX}).turns]
    task = env.unwrapped.tasks[INDEX]
    env.close()
    wrong = expert[-1].replace(f">{task.answer}<", ">nothing<")
    assert wrong != expert[-1]
    blank = expert[0].split("<code>")[0] + "<code>\nprint(1)\n</code>"
    plays = [expert, [expert[0], wrong], [expert[-1]], [blank, expert[-1]]]
    return runner.play(ScriptedEngine(policy.processor, plays), [INDEX], len(plays), SAMPLING)


def make_updater(policy: Policy, **changes) -> Updater:
    scorer = TokenScorer(policy.model)
    options = dataclasses.replace(TrainOptions(optimizer=OptimizerOptions(grad_clip=1e9)), **changes)
    return Updater(scorer, torch.optim.SGD(scorer.parameters(), lr=1.0), policy.processor, options, Accelerator())


def imitate(policy, runner, rollouts, **options) -> tuple[list[Sample], dict[str, float]]:
    imitation = Imitation(ImitationOptions(**options), make_updater(policy), policy.processor, runner.dialect())
    return imitation.samples(rollouts, np.random.default_rng(1))


def covered(policy, sample: Sample) -> str:
    return policy.processor.decode([i for i, kept in zip(sample.ids, sample.mask, strict=True) if kept])


def test_only_faithful_looks_are_imitated_and_answers_are_gold(policy, runner, rollouts):
    assert [looked(rollout) for rollout in rollouts] == [True, True, False, False]
    trajectory = rollouts[0].trajectory
    samples, stats = imitate(policy, runner, rollouts, answers=8, calls=8, weight=0.5)
    # Both looks are at the same place of the same task: one of them stands for both.
    assert stats["imitation/looks"] == 1 and stats["imitated"] == len(samples) == 2
    answer, call = samples
    assert f">{trajectory.answer}<" in covered(policy, answer) and "<code>" not in covered(policy, answer)
    assert "crop" in covered(policy, call) and trajectory.answer not in covered(policy, call).split("</code>")[-1]
    assert all(sample.is_imitated and set(sample.advantages.tolist()) == {0.5} for sample in samples)


def test_a_wrong_answer_is_replaced_in_its_turn(policy, runner, rollouts):
    (answer,), _ = imitate(policy, runner, rollouts[1:], answers=8)
    right, wrong = rollouts[0].tokens, rollouts[1].tokens
    assert list(answer.ids) == right.ids and list(answer.turns) == right.turns
    assert list(answer.ids) != wrong.ids


def test_nothing_is_drawn_without_looks_or_unless_asked_for(policy, runner, rollouts):
    assert imitate(policy, runner, rollouts) == ([], {})
    samples, stats = imitate(policy, runner, rollouts[2:], answers=8, calls=8)
    assert samples == [] and stats == {"imitation/looks": 0, "imitated": 0}


def test_draws_depend_on_the_rollouts_and_the_seed_alone_so_a_resumed_run_repeats_them(policy, runner, rollouts):
    imitation = Imitation(
        ImitationOptions(answers=4, calls=4), make_updater(policy), policy.processor, runner.dialect()
    )
    drawn = []
    for shown in (rollouts, rollouts[2:], rollouts):
        samples, stats = imitation.samples(shown, np.random.default_rng(1))
        drawn.append(([(list(one.ids), list(one.mask)) for one in samples], stats))
    assert drawn[0] == drawn[2] != drawn[1]


def test_without_other_samples_imitated_ones_are_averaged_over_their_own_tokens(policy, runner, rollouts):
    samples, _ = imitate(policy, runner, rollouts, answers=4, calls=4)
    one, two = (dataclasses.replace(policy, model=copy.deepcopy(policy.model)) for _ in range(2))
    make_updater(one).update(samples, np.random.default_rng(0))
    make_updater(two).update([*samples, *samples], np.random.default_rng(0))
    torch.testing.assert_close(movement(policy, one), movement(policy, two), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("changes", [{}, {"micro_batch": 1}, {"token_budget": 100_000}, {"correction": "token"}])
@pytest.mark.parametrize("loss", ["dapo", "grpo", "cispo"])
def test_imitated_tokens_move_the_weights_as_their_log_probability_does(policy, runner, rollouts, changes, loss):
    samples, _ = imitate(policy, runner, rollouts, answers=4, calls=4, weight=0.5)
    trained = dataclasses.replace(policy, model=copy.deepcopy(policy.model))
    # The rollouts have no signal: only imitation moves the weights. They still make the mean.
    own = make_samples(rollouts, torch.zeros(len(rollouts), 2))
    stats = make_updater(trained, loss=loss, **changes).update([*own, *samples], np.random.default_rng(0))

    model, processor, total = copy.deepcopy(policy.model), policy.processor, torch.zeros(())
    count = sum(sample.size for sample in own)
    for sample in samples:
        logits = model(**collate([sample.ids], [sample.images], processor.pad_id, processor.image_id)).logits[0]
        logits[:, processor.banned_ids] = -torch.inf
        share = 1 / sample.size / len(own) if loss == "grpo" else 1 / count
        for place in np.flatnonzero(sample.mask):
            total = total - 0.5 * share * logits.log_softmax(-1)[place - 1, sample.ids[place]]
    total.backward()
    wanted = torch.cat([p.grad.flatten() for p in model.parameters()])
    torch.testing.assert_close(movement(policy, trained), wanted, atol=1e-5, rtol=1e-3)
    assert stats.grad_norm > 0


def test_imitation_counts_in_no_statistic(policy, runner, rollouts):
    samples, _ = imitate(policy, runner, rollouts, answers=4, calls=4)
    own = make_samples(rollouts, torch.zeros(len(rollouts), 2))
    for rollout in own:
        rollout.logprobs[:] = [0.0] * len(rollout)
    tolerant = dataclasses.replace(TrainOptions().health, mismatch=1e9)
    alone, beside = (
        make_updater(
            dataclasses.replace(policy, model=copy.deepcopy(policy.model)), entropy=0.1, health=tolerant
        ).update([*own, *more], np.random.default_rng(0))
        for more in ([], samples)
    )
    for name in ("entropy", "kl", "clip_fraction", "sampler_gap", "sampler_gap_max", "truncated"):
        assert getattr(beside, name) == pytest.approx(getattr(alone, name), rel=1e-4), name


@pytest.mark.parametrize("box", [(0, 0, 20, 10), (30, 30, 70, 60), (0, 0, 100, 80), None, (90, 70, 130, 120)])
def test_another_place_is_as_large_lies_inside_and_overlaps_little(box):
    rng = np.random.default_rng(0)
    for _ in range(20):
        x1, y1, x2, y2 = other = elsewhere((100, 80), box, rng)
        assert 0 <= x1 < x2 <= 100 and 0 <= y1 < y2 <= 80
        if box and box[2] <= 50:
            assert (x2 - x1, y2 - y1) == (box[2] - box[0], box[3] - box[1])
            assert union_area([box_polygon(box), box_polygon(other)]) > 1.2 * (box[2] - box[0]) * (box[3] - box[1])
