"""Self-imitation: which turns are drawn, and that they move the weights as their log-probability does."""

from __future__ import annotations

import copy
import dataclasses
import json
import re

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from PIL import Image
from process_group import run_group
from test_train_rollout import SAMPLING, ScriptedEngine
from test_train_update import movement

from codev_agents.engines.batch import collate
from codev_agents.engines.policy import Policy
from codev_agents.rollout.runner import Rollout, RolloutRunner
from codev_agents.scripted import Oracle
from codev_env.dialects import get_dialect
from codev_env.geometry import ImageBox, union_area
from codev_env.provenance.coordinates import box_polygon
from codev_env.types import Answer
from codev_train.learn.imitation import Imitation, _draw, elsewhere, looked
from codev_train.learn.loss import Clip, LossTokens
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


def make_imitation(policy, runner, **options) -> Imitation:
    return Imitation(ImitationOptions(**options), make_updater(policy), policy.processor, runner.dialect())


def imitate(policy, runner, rollouts, **options) -> tuple[list[Sample], dict[str, float]]:
    return make_imitation(policy, runner, **options).samples(rollouts, np.random.default_rng(1))


def plain(sample: Sample) -> tuple[list[int], list[bool], list[int], list[list[float]]]:
    """What the update takes of a sample."""
    pixels = [image.values.flatten().tolist() for image in sample.images]
    return list(sample.ids), list(sample.mask), list(sample.turns), pixels


def covered(policy, sample: Sample) -> str:
    return policy.processor.decode([i for i, kept in zip(sample.ids, sample.mask, strict=True) if kept])


def test_only_faithful_looks_are_imitated_and_answers_are_gold(policy, runner, rollouts):
    assert [looked(rollout) for rollout in rollouts] == [True, True, False, False]
    trajectory = rollouts[0].trajectory
    samples, stats = imitate(policy, runner, rollouts, answers=8, calls=8, weight=0.5)
    # Both looks are at one place of one task: one stands for both. Its call and answer are one sample.
    assert stats["imitation/looks"] == stats["imitation/answers"] == stats["imitation/calls"] == 1
    assert stats["imitated"] == len(samples) == 1
    (answer,), _ = imitate(policy, runner, rollouts, answers=8, weight=0.5)
    (call,), _ = imitate(policy, runner, rollouts, calls=8, weight=0.5)
    assert samples[0].mask == [a or b for a, b in zip(answer.mask, call.mask, strict=True)]
    assert f">{trajectory.answer}<" in covered(policy, answer) and "<code>" not in covered(policy, answer)
    assert "crop" in covered(policy, call) and trajectory.answer not in covered(policy, call).split("</code>")[-1]
    assert all(sample.is_imitated and set(sample.advantages.tolist()) == {0.5} for sample in (*samples, answer, call))


def test_a_wrong_answer_is_replaced_in_its_turn(policy, runner, rollouts):
    (answer,), _ = imitate(policy, runner, rollouts[1:], answers=8)
    right, wrong = rollouts[0].tokens, rollouts[1].tokens
    assert list(answer.ids) == right.ids and list(answer.turns) == right.turns
    assert list(answer.ids) != wrong.ids


@pytest.mark.parametrize("name", ["codev", "thyme", "codevision", "deepeyes", "pyvision"])
@pytest.mark.parametrize(("given", "gold"), [("a", "b"), ("we", "cat"), ("answer", "red"), ("n", "a"), ("no", "yes")])
def test_an_answer_whose_letters_are_those_of_a_tag_is_replaced_where_it_stands(policy, runner, name, given, gold):
    dialect = get_dialect(name)
    imitation = dataclasses.replace(make_imitation(policy, runner), dialect=dialect)
    action = dialect.write(Answer(given), f"I see {given}.")
    turn = dialect.parse(imitation._corrected(action, given, gold))
    assert isinstance(turn, Answer) and turn.text == gold
    assert turn.problems == dialect.parse(action).problems


def test_an_answer_that_cannot_be_replaced_is_not_imitated(policy, runner):
    imitation = make_imitation(policy, runner)
    action = imitation.dialect.write(Answer("red"), "I see it.")
    assert imitation._corrected(action, "blue", "green") == imitation._corrected(action, "", "green") == ""
    assert imitation._corrected("<answer>red", "answer", "green") == ""


def test_a_task_without_an_answer_is_not_imitated(policy, runner, rollouts):
    blank = dataclasses.replace(rollouts[0], trajectory=dataclasses.replace(rollouts[0].trajectory, answer=""))
    assert imitate(policy, runner, [blank], answers=8, calls=8)[0] == []


def test_a_task_in_which_no_rollout_looked_is_shown_its_target(policy, runner, rollouts):
    missed = rollouts[2:]
    samples, stats = imitate(policy, runner, missed, targets=4, snap=112, weight=0.5)
    assert stats["imitation/targets"] == stats["imitated"] == len(samples) == 1 and stats["imitation/looks"] == 0
    tokens, expert = missed[0].tokens, rollouts[0].trajectory.turns[0].action
    assert covered(policy, samples[0]) == expert + policy.processor.decode([policy.processor.eos_id])
    start = samples[0].turns.index(0)
    assert list(samples[0].ids[:start]) == tokens.ids[: tokens.turns.index(0)] and len(samples[0].images) == 1
    assert samples[0].is_imitated and samples[0].advantages.tolist() == [0.5]
    free, _ = imitate(policy, runner, missed, targets=4)
    x1, y1, x2, y2 = crop_of(covered(policy, free[0]))
    a, b, c, d = missed[0].trajectory.targets[0]
    assert x1 < a and y1 < b and c < x2 and d < y2, "a margin on each side where no grid is given"


def crop_of(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"crop\(\((\d+), (\d+), (\d+), (\d+)\)\)", text)[0]))


def test_a_target_is_shown_only_where_it_is_known_and_no_rollout_looked(policy, runner, rollouts):
    def changed(rollout, **changes):
        return dataclasses.replace(rollout, trajectory=dataclasses.replace(rollout.trajectory, **changes))

    def shown(played) -> int:
        return int(imitate(policy, runner, played, targets=4)[1]["imitation/targets"])

    assert shown(rollouts) == 0, "one of them looked"
    assert shown([changed(rollout, targets=()) for rollout in rollouts[2:]]) == 0
    turns = rollouts[3].trajectory.turns
    failed = changed(
        rollouts[3],
        turns=(dataclasses.replace(turns[0], score=dataclasses.replace(turns[0].score, failed=True)), *turns[1:]),
    )
    assert shown([rollouts[2], failed]) == 0
    groups = [dataclasses.replace(rollouts[3], group=group) for group in range(6)]
    assert shown(groups) == 4


def test_a_rollout_that_could_not_be_judged_does_not_make_a_look_rarer(policy, runner, rollouts):
    def chance(played) -> float:
        ((look,), _) = make_imitation(policy, runner, calls=8)._look(played, np.random.default_rng(0))
        return look.looks

    looked, blank = rollouts[0], rollouts[3]
    turns = blank.trajectory.turns
    score = dataclasses.replace(turns[0].score, value=None, failed=True)
    unknown = dataclasses.replace(blank.trajectory, turns=(dataclasses.replace(turns[0], score=score), *turns[1:]))
    failed = dataclasses.replace(blank, trajectory=unknown)
    assert chance([looked, failed, failed]) == pytest.approx(chance([looked]), rel=1e-4)
    assert chance([looked, blank, blank]) > 2 * chance([looked])


def test_the_target_of_another_image_is_cropped_from_that_image(policy, runner, rollouts):
    trajectory = rollouts[2].trajectory
    two = [*trajectory.images, trajectory.images[0]]
    moved = dataclasses.replace(trajectory, images=two, targets=(ImageBox(trajectory.targets[0], 1),))
    (sample,), _ = imitate(policy, runner, [dataclasses.replace(rollouts[2], trajectory=moved)], targets=1)
    assert runner.dialect().image_name(1) in covered(policy, sample)


def test_a_target_that_the_dialect_cannot_crop_is_not_shown(policy, runner, rollouts):
    trajectory = rollouts[2].trajectory
    two = [*trajectory.images, trajectory.images[0]]
    moved = dataclasses.replace(trajectory, images=two, targets=(ImageBox(trajectory.targets[0], 1),))
    imitation = dataclasses.replace(make_imitation(policy, runner, targets=4), dialect=get_dialect("deepeyes"))
    played = [dataclasses.replace(rollouts[2], trajectory=moved), dataclasses.replace(rollouts[3], group=9)]
    (sample,), stats = imitation.samples(played, np.random.default_rng(0))
    assert stats["imitation/targets"] == 1 and "image_zoom_in_tool" in covered(policy, sample)


def test_a_small_target_is_shown_as_large_as_the_dialect_can_crop(policy, runner, rollouts):
    trajectory = rollouts[2].trajectory
    small = dataclasses.replace(
        rollouts[2], trajectory=dataclasses.replace(trajectory, targets=((100, 100, 104, 103),))
    )
    imitation = dataclasses.replace(make_imitation(policy, runner, targets=1), dialect=get_dialect("deepeyes"))
    action = imitation._call_on_target(small)
    x1, y1, x2, y2 = json.loads(re.search(r"\[[^]]*\]", action)[0])
    assert min(x2 - x1, y2 - y1) >= get_dialect("deepeyes").least_side
    assert x1 <= 100 and y1 <= 100 and x2 >= 104 and y2 >= 103


def test_shown_targets_change_no_other_draw(policy, runner, rollouts):
    without, _ = imitate(policy, runner, rollouts, answers=8, calls=8)
    added = [dataclasses.replace(rollouts[3], group=rollouts[3].group + 1)]
    with_targets, stats = imitate(policy, runner, [*rollouts, *added], answers=8, calls=8, targets=2)
    assert stats["imitation/targets"] == 1
    assert [plain(sample)[1:3] for sample in with_targets[: len(without)]] == [plain(sample)[1:3] for sample in without]


def test_processes_share_the_numbers_and_add_up_what_they_did():
    done = run_group(3, "summed_process")
    assert done.returncode == 0, done.stderr
    rows = sorted(map(json.loads, done.stdout.splitlines()), key=lambda row: row["rank"])
    assert [row["parts"] for row in rows] == [[6, 0, 0], [7, 0, 1], [7, 1, 1]]
    assert all(row["sums"] == [3.0, 0.75] for row in rows)


def test_looks_are_scored_only_where_answers_are_imitated(policy, runner, rollouts, monkeypatch):
    scored: list[int] = []
    score = Updater.score
    monkeypatch.setattr(
        Updater, "score", lambda self, asked, filler: scored.append(len(asked)) or score(self, asked, filler)
    )
    _, stats = imitate(policy, runner, rollouts, calls=4, targets=1)
    assert (
        stats["imitation/looks"] == stats["imitation/calls"] == 1 and "imitation/elsewhere" not in stats and not scored
    )
    _, stats = imitate(policy, runner, rollouts, answers=4)
    assert scored == [1] and 0 < stats["imitation/elsewhere"] < 1


def test_nothing_is_drawn_without_looks_or_unless_asked_for(policy, runner, rollouts):
    assert imitate(policy, runner, rollouts) == ([], {})
    samples, stats = imitate(policy, runner, rollouts[2:], answers=8, calls=8)
    assert samples == [] and set(stats.values()) == {0}


def test_draws_depend_on_the_rollouts_and_the_seed_alone(policy, runner, rollouts):
    imitation = make_imitation(policy, runner, answers=4, calls=4)
    drawn = []
    for shown in (rollouts, rollouts[2:], rollouts):
        samples, stats = imitation.samples(shown, np.random.default_rng(1))
        drawn.append((list(map(plain, samples)), stats))
    assert drawn[0] == drawn[2] != drawn[1]


def test_one_draw_has_the_chances_of_a_draw_without_replacement_and_shares_them_with_the_other():
    rng, chances, counts = np.random.default_rng(0), [0.5, 0.0, 0.3, 0.2], np.zeros(4)
    for _ in range(4000):
        noise = rng.gumbel(size=4)
        first, two, all_of_them = (_draw(chances, count, noise) for count in (1, 2, 9))
        assert first < two < all_of_them == {0, 2, 3}
        counts[list(first)] += 1
        assert _draw([10 * chance for chance in chances], 2, noise) == two, "chances are relative"
    np.testing.assert_allclose(counts / 4000, chances, atol=0.03)


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


def steep(tokens: LossTokens, clip: Clip) -> tuple[torch.Tensor, torch.Tensor]:
    """A surrogate whose gradient at a ratio of 1 is not that of advantage times log-probability."""
    return -3 * tokens.advantages * tokens.logprobs, torch.zeros(tokens.logprobs.shape, dtype=torch.bool)


@pytest.mark.parametrize("loss", ["dapo", "gspo", "cispo", f"{__name__}:steep"])
def test_imitated_tokens_have_the_same_loss_under_any_surrogate(policy, runner, rollouts, loss):
    samples, _ = imitate(policy, runner, rollouts, answers=4, calls=4, weight=0.5)
    own = make_samples(rollouts, torch.zeros(len(rollouts), 2))
    trained = dataclasses.replace(policy, model=copy.deepcopy(policy.model))
    stats = make_updater(trained, loss=loss).update([*own, *samples], np.random.default_rng(0))
    (imitated,) = samples
    updater = make_updater(policy)
    logprob = float(updater.score(samples, samples[0])[0])
    share = 1 / len(own) if loss == "gspo" else imitated.size / sum(sample.size for sample in own)
    assert stats.loss == pytest.approx(-0.5 * share * logprob, rel=1e-4)
    unlike = dataclasses.replace(policy, model=copy.deepcopy(policy.model))
    make_updater(unlike, loss="grpo" if loss == "gspo" else "dapo").update([*own, *samples], np.random.default_rng(0))
    torch.testing.assert_close(movement(policy, trained), movement(policy, unlike), atol=1e-6, rtol=1e-4)


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


def test_another_place_is_on_the_same_image(policy, runner, rollouts):
    """Of several images, the one that a crop shows a part of."""
    seen, imitation = rollouts[0], make_imitation(policy, runner)
    trajectory = seen.trajectory
    (first, *_), box = trajectory.turns, trajectory.turns[0].crop_boxes[0]
    plain = [Image.new("RGB", trajectory.images[0].size, colour) for colour in ("red", "blue")]
    turns = [dataclasses.replace(first, crop_boxes=(ImageBox(box, 1),)), *trajectory.turns[1:]]
    two = dataclasses.replace(trajectory, images=plain, turns=turns)
    blocks = [policy.processor.image(image) for image in plain] + seen.tokens.images[1:]
    both = dataclasses.replace(seen, trajectory=two, tokens=dataclasses.replace(seen.tokens, images=blocks))
    changed = imitation._elsewhere(both, np.random.default_rng(0))[2]
    blue = policy.processor.image(Image.new("RGB", first.images[0].size, "blue"))
    torch.testing.assert_close(changed.values, blue.values)


@pytest.mark.parametrize("box", [(0, 0, 20, 10), (30, 30, 70, 60), (0, 0, 100, 80), None, (90, 70, 130, 120)])
def test_another_place_is_as_large_lies_inside_and_overlaps_little(box):
    rng = np.random.default_rng(0)
    for _ in range(20):
        x1, y1, x2, y2 = other = elsewhere((100, 80), box, rng)
        assert 0 <= x1 < x2 <= 100 and 0 <= y1 < y2 <= 80
        if box and box[2] <= 50:
            assert (x2 - x1, y2 - y1) == (box[2] - box[0], box[3] - box[1])
            assert union_area([box_polygon(box), box_polygon(other)]) > 1.2 * (box[2] - box[0]) * (box[3] - box[1])
