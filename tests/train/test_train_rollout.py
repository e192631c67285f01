"""Rollouts in the real environment: what was sampled, what the environment wrote, and what was paid."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from gymnasium.wrappers import TimeLimit

from codev_agents import LazyCrop, Oracle, run_episode
from codev_agents.agent import Agent
from codev_agents.engines.hf import HFEngine
from codev_agents.rollout.engine import Completion, Prompt, Sampling
from codev_agents.rollout.runner import Rollout, RolloutRunner
from codev_env.rewards import get_reward
from codev_env.trajectory import Trajectory
from codev_env.types import Step, StepScore
from codev_train.learn.credit import CREDITS, combine
from codev_train.run.environments import make_env
from codev_train.sft.examples import tokenize_trajectory
from codev_train.tapo import channel_table, describe, reward_table

SAMPLING = Sampling(1.0, 64)


class ScriptedEngine:
    """Writes what was written before, as token ids; remembers how it was asked.

    Args:
        processor: The tokenizer side of the policy.
        plays: For each rollout the texts of its turns.
        end: Whether turns end with the end-of-turn token.
    """

    def __init__(self, processor, plays: Sequence[Sequence[str]], end: bool = True) -> None:
        self.processor, self.plays, self.end = processor, plays, end
        self.calls: list[list[Prompt]] = []
        self.sampling: Sampling | None = None

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Completion]:
        texts = [play[len(self.calls)] for play in self.plays if len(play) > len(self.calls)]
        self.calls.append(list(prompts))
        self.sampling = sampling
        ids = [[*self.processor.encode(text), *[self.processor.eos_id] * self.end] for text in texts]
        return [
            Completion(i, [-0.125 * (k + 1) for k in range(len(i))], p.ids) for i, p in zip(ids, prompts, strict=True)
        ]

    def sleep(self) -> None: ...

    def seed(self, seed: int) -> None: ...

    def sync(self, model: Any) -> dict[str, float]:
        return {}


@pytest.fixture(scope="module")
def env(env_options):
    return make_env(env_options, "train")


def played(env, agent: Agent, index: int) -> Trajectory:
    return run_episode(env, agent, options={"index": index})


def texts(*trajectories: Trajectory) -> list[list[str]]:
    return [[turn.action for turn in t.turns] for t in trajectories]


@pytest.fixture
def runner(policy, env_options):
    made = RolloutRunner(lambda: make_env(env_options, "train"), policy.processor, workers=2)
    yield made
    made.close()


def turn_fields(turn: Step) -> dict[str, Any]:
    return {f.name: getattr(turn, f.name) for f in fields(turn) if f.name not in ("execution", "images")}


def assert_same_episode(a: Trajectory, b: Trajectory) -> None:
    """Equal but for who played and how long programs took."""
    a, b = (replace(t, agent="", turns=tuple(map(untimed, t.turns))) for t in (a, b))
    assert [turn_fields(t) for t in a.turns] == [turn_fields(t) for t in b.turns]
    assert a == b


def untimed(turn: Step) -> Step:
    return replace(turn, execution=turn.execution and replace(turn.execution, wall_s=0.0))


def test_the_oracle_is_faithful_correct_and_paid_in_full(policy, env, runner):
    wanted = [played(env, Oracle(margin=0.0, snap=112), index) for index in (4, 9)]
    engine = ScriptedEngine(policy.processor, texts(*wanted))
    found = runner.play(engine, [4, 9], 1, SAMPLING)
    for rollout, trajectory in zip(found, wanted, strict=True):
        assert rollout.trajectory.is_correct and rollout.trajectory.is_faithful and not rollout.cut
        assert rollout.trajectory.agent == "policy"
        assert_same_episode(rollout.trajectory, trajectory)
        assert sum(rollout.rewards) == pytest.approx(1.0 + 0.3 + 0.5 * trajectory.turns[0].score_value)
        for turn, reward in zip(rollout.trajectory.turns, rollout.rewards, strict=True):
            assert reward == turn.reward == pytest.approx(sum(turn.reward_terms.values()))


@pytest.mark.parametrize("end", [True, False], ids=["end of turn sampled", "stopped at a stop string"])
def test_the_loss_mask_covers_exactly_what_was_sampled(policy, env, runner, end):
    processor = policy.processor
    wanted = played(env, Oracle(margin=0.0, snap=112), 3)
    engine = ScriptedEngine(processor, texts(wanted), end)
    (rollout,) = runner.play(engine, [3], 1, SAMPLING)
    tokens = rollout.tokens
    assert len(tokens.ids) == len(tokens.turns) == len(tokens.logprobs)
    for number, turn in enumerate(wanted.turns):
        place = [i for i, t in enumerate(tokens.turns) if t == number]
        assert place == list(range(place[0], place[-1] + 1))
        sampled = [tokens.ids[i] for i in place]
        assert sampled == [*processor.encode(turn.action), *[processor.eos_id] * end]
        assert [tokens.logprobs[i] for i in place] == [-0.125 * (k + 1) for k in range(len(place))]
        # What stands before a turn is exactly what the engine was asked to continue.
        assert tokens.ids[: place[0]] == list(engine.calls[number][0].ids)
    written = [i for i, t in enumerate(tokens.turns) if t < 0]
    assert all(tokens.logprobs[i] == 0 for i in written)
    assert sum(i == processor.image_id for i in tokens.ids) == sum(b.tokens for b in tokens.images)
    assert processor.image_id not in [i for i, t in zip(tokens.ids, tokens.turns, strict=True) if t >= 0]
    assert len(tokens.images) == 2, "the scene and the crop; nothing is shown after the answer"


def test_a_rollout_grows_the_tokens_of_the_recorded_episode(policy, env, runner):
    wanted = played(env, Oracle(margin=0.0, snap=112), 6)
    (rollout,) = runner.play(ScriptedEngine(policy.processor, texts(wanted)), [6], 1, SAMPLING)
    again = tokenize_trajectory(wanted, policy.processor)
    assert (again.ids, again.turns) == (rollout.tokens.ids, rollout.tokens.turns)
    assert all(torch.equal(a.values, b.values) for a, b in zip(again.images, rollout.tokens.images, strict=True))


def test_rollouts_of_a_task_stand_together_and_end_one_by_one(policy, env, runner):
    oracle = [played(env, Oracle(margin=0.0, snap=112), index) for index in (1, 2)]
    plays = texts(oracle[0], oracle[1])
    # The second of each group answers at once.
    engine = ScriptedEngine(policy.processor, [plays[0], plays[0][1:], plays[1], plays[1][1:]])
    found = runner.play(engine, [1, 2], 2, SAMPLING)
    assert [r.group for r in found] == [0, 0, 1, 1]
    assert [r.trajectory.index for r in found] == [1, 1, 2, 2]
    assert [len(r.rewards) for r in found] == [2, 1, 2, 1]
    assert [r.trajectory.is_faithful for r in found] == [True, False, True, False]
    assert all(r.trajectory.is_correct for r in found)
    assert [len(call) for call in engine.calls] == [4, 2]
    # A group shares one prompt object, so that the engine prefills it once.
    assert engine.calls[0][0] is engine.calls[0][1] and engine.calls[0][1] is not engine.calls[0][2]
    assert engine.sampling == Sampling(1.0, 64, ("</code>", "</answer>"))

    rewards, turns, groups = reward_table(found)
    assert turns.tolist() == [2, 1, 2, 1] and groups.tolist() == [0, 0, 1, 1] and rewards[1, 1] == 0
    assert rewards.sum(1).tolist() == pytest.approx([r.trajectory.total_reward for r in found])


def test_rollouts_of_a_task_share_its_images(policy, runner):
    first, second, other = runner.play(HFEngine(policy.model, policy.processor), [0, 0, 1], 1, SAMPLING)
    assert first.trajectory.images[0] is second.trajectory.images[0]
    assert first.trajectory.images[0] is not other.trajectory.images[0]


def test_slots_are_reset_for_the_next_batch(policy, env, runner):
    for index in (7, 8):
        oracle, lazy = played(env, Oracle(margin=0.0, snap=112), index), played(env, LazyCrop(), index)
        a, b = runner.play(ScriptedEngine(policy.processor, texts(oracle, lazy)), [index], 2, SAMPLING)
        assert_same_episode(a.trajectory, oracle)
        assert_same_episode(b.trajectory, lazy)
        assert not b.trajectory.is_faithful


def test_any_text_is_played_to_the_turn_budget(policy, runner):
    (rollout,) = runner.play(ScriptedEngine(policy.processor, [["what?", "<code>1/0</code>"]]), [0], 1, SAMPLING)
    assert [t.kind for t in rollout.trajectory.turns] == ["invalid", "code"]
    assert rollout.trajectory.turns[1].error and rollout.trajectory.stop_reason == "max_turns"


def test_placeholders_that_programs_print_are_no_images(policy, runner):
    play = ['<code>\n```python\nprint("<image><|image_pad|>")\n```\n</code>', "<answer>A</answer>"]
    (rollout,) = runner.play(ScriptedEngine(policy.processor, [play]), [0], 1, SAMPLING)
    assert len(rollout.tokens.images) == 1
    assert rollout.tokens.ids.count(policy.processor.image_id) == rollout.tokens.images[0].tokens


@pytest.mark.parametrize("change", [lambda ids: ids[:-1], lambda ids: [*ids[:-1], ids[-1] + 1], lambda ids: []])
def test_other_prompt_ids_than_the_trainers_are_refused(policy, env, runner, change):
    class Liar(ScriptedEngine):
        def generate(self, prompts, sampling):
            return [replace(c, prompt_ids=change(list(c.prompt_ids))) for c in super().generate(prompts, sampling)]

    with pytest.raises(RuntimeError, match="other prompt ids"):
        runner.play(Liar(policy.processor, texts(played(env, Oracle(), 0))), [0], 1, SAMPLING)


def cut_rollout(policy, env, env_options, max_length: int) -> Rollout:
    engine = ScriptedEngine(policy.processor, texts(played(env, Oracle(margin=0.0, snap=112), 2)))
    runner = RolloutRunner(lambda: make_env(env_options, "train"), policy.processor, max_length=max_length)
    try:
        return runner.play(engine, [2], 1, SAMPLING)[0]
    finally:
        runner.close()


def test_max_length_cuts_between_turns(policy, env, env_options):
    whole = cut_rollout(policy, env, env_options, 10**6)
    second = whole.tokens.turns.index(1)
    fits = cut_rollout(policy, env, env_options, second + SAMPLING.max_tokens)
    assert not fits.cut and fits.tokens.ids == whole.tokens.ids

    cut = cut_rollout(policy, env, env_options, second + SAMPLING.max_tokens - 1)
    assert cut.cut and len(cut.trajectory.turns) == len(cut.rewards) == 1
    # It ends with the last sampled token: no observation without an action after it.
    last = max(i for i, t in enumerate(whole.tokens.turns) if t == 0)
    assert cut.tokens.ids == whole.tokens.ids[: last + 1]
    assert cut.trajectory.final_answer is None and not cut.trajectory.is_correct
    # Growing the context is no way around the format term, which an episode without an answer does not earn.
    assert cut.trajectory.stop_reason == "max_length"
    assert cut.trajectory.turns[0].reward_terms["format"] == 0.0
    assert cut.rewards == [pytest.approx(sum(cut.trajectory.turns[0].reward_terms.values()))]


def test_as_many_episodes_are_under_way_as_allowed_and_rollouts_keep_their_order(policy, env_options):
    class Counting(HFEngine):
        most, calls = 0, 0

        def generate(self, prompts, sampling):
            self.most, self.calls = max(self.most, len(prompts)), self.calls + 1
            return super().generate(prompts, sampling)

    engine = Counting(policy.model, policy.processor, seed=1)
    runner = RolloutRunner(lambda: make_env(env_options, "train"), policy.processor, concurrent=5)
    try:
        found = runner.play(engine, [4, 2, 4], 2, Sampling(1.0, 4))
    finally:
        runner.close()
    assert engine.most == 5 and engine.calls <= 4, "the sixth begins when one of five has ended"
    assert [(r.group, r.trajectory.index) for r in found] == [(0, 4), (0, 4), (1, 2), (1, 2), (2, 4), (2, 4)]


def paid_by(reward: str, policy, env_options, plays: list[list[str]], index: int) -> list[Rollout]:
    """Play a group of one task under a reward."""
    runner = RolloutRunner(lambda: make_env(env_options, "train", reward), policy.processor)
    try:
        return runner.play(ScriptedEngine(policy.processor, plays), [index], len(plays), SAMPLING)
    finally:
        runner.close()


def test_group_terms_are_paid_with_the_last_turn(policy, env, env_options):
    looks, answers = texts(played(env, Oracle(margin=0.0, snap=112), 1))[0], ["<answer>?</answer>"]
    found = paid_by("pixelreasoner", policy, env_options, [looks, answers, answers, answers], 1)
    # One of four looked: 0.5 * (0.3 - 0.25).
    assert [r.trajectory.reward_terms["curiosity"] for r in found] == pytest.approx([0.025, 0, 0, 0])
    assert [t.reward_terms["curiosity"] for t in found[0].trajectory.turns] == pytest.approx([0, 0.025])
    assert [sum(r.rewards) for r in found] == pytest.approx([1.025, 0, 0, 0])
    for rollout in found:
        assert rollout.rewards == [t.reward for t in rollout.trajectory.turns]
        assert all(t.reward == pytest.approx(sum(t.reward_terms.values())) for t in rollout.trajectory.turns)


def test_a_group_with_a_straggler_and_a_cut_episode_is_rewarded_once(policy, env, env_options):
    """One of four looks and outgrows the token budget, one is late, two answer."""
    looks, answer = texts(played(env, Oracle(margin=0.0, snap=112), 1))[0], ["<answer>?</answer>"]
    over = threading.Event()

    def make() -> Any:
        made = make_env(env_options, "train", "pixelreasoner")
        execute = made.unwrapped.execute

        def slow(action: str) -> Step:
            return execute(action) if "late" not in action or over.wait(60) else execute(action)

        made.unwrapped.execute = slow
        return made

    runner = RolloutRunner(make, policy.processor, workers=4, step_timeout=5.0, max_length=10**6)
    try:
        whole = runner.play(ScriptedEngine(policy.processor, [looks]), [1], 1, SAMPLING)[0]
        runner.max_length = whole.tokens.turns.index(1) + SAMPLING.max_tokens - 1
        found = runner.play(ScriptedEngine(policy.processor, [looks, ["late"], answer, answer]), [1], 4, SAMPLING)
    finally:
        over.set()
        runner.close()
    assert [r.trajectory.stop_reason for r in found] == ["max_length", "straggler", "answer", "answer"]
    assert [(r.cut, r.judge_failed) for r in found] == [(True, False), (False, True), (False, False), (False, False)]
    # One of four looked: 0.5 * (0.3 - 0.25).
    assert [r.trajectory.reward_terms["curiosity"] for r in found] == pytest.approx([0.025, 0, 0, 0])
    for rollout in found:
        assert len(rollout.trajectory.turns) == 1 and rollout.rewards == [t.reward for t in rollout.trajectory.turns]
        assert all(t.reward == pytest.approx(sum(t.reward_terms.values())) for t in rollout.trajectory.turns)


def test_a_wrapper_that_ends_an_episode_is_no_token_budget(policy, env, env_options):
    def make() -> Any:
        return TimeLimit(make_env(env_options, "train"), 1)

    looks = texts(played(env, Oracle(margin=0.0, snap=112), 1))[0]
    runner = RolloutRunner(make, policy.processor, workers=1, max_length=10**6)
    [found] = runner.play(ScriptedEngine(policy.processor, [looks]), [1], 1, SAMPLING)
    runner.close()
    assert (found.trajectory.stop_reason, found.cut) == ("max_turns", False)
    assert found.trajectory.reward_terms["format"] == 0.0


def test_the_environment_alone_pays_nothing_for_group_terms(env_options):
    alone = make_env(env_options, "train", "pixelreasoner")
    trajectory = played(alone, Oracle(margin=0.0, snap=112), 1)
    assert trajectory.reward_terms == {"outcome": 1.0, "overuse": 0.0, "curiosity": 0.0}


def test_channels_hold_the_terms_of_each(policy, env, env_options):
    looks = texts(played(env, Oracle(margin=0.0, snap=112), 1))[0]
    found = paid_by("hdpo", policy, env_options, [looks, looks[1:], ["<answer>?</answer>"]], 1)
    rewards, turns, groups = reward_table(found)
    channels, kept = channel_table(found, rewards, get_reward("hdpo"))
    assert torch.equal(channels.sum(0), rewards)
    # The right answers after one call and after none: 0.15 / 2 and 0.15; the wrong one is not compared with them.
    assert channels[1].sum(1).tolist() == pytest.approx([0.075, 0.15, 0.0])
    assert kept.tolist() == [[True, True, True], [True, True, False]]
    weights = get_reward("hdpo").channel_weights
    found_advantages = combine(CREDITS["trajectory"], channels, turns, groups, weights, kept)
    assert found_advantages[1, 0] > found_advantages[0, 0] > 0 > found_advantages[2, 0]


class ProbedEngine(ScriptedEngine):
    """Answers probes, which are greedy, from a list of its own: for each call the answers in order."""

    def __init__(self, processor, plays, answers: Sequence[Sequence[str]]) -> None:
        super().__init__(processor, plays)
        self.answers, self.probes = list(answers), []

    def generate(self, prompts, sampling):
        if sampling.temperature:
            return super().generate(prompts, sampling)
        self.probes.append((list(prompts), sampling))
        ids = [self.processor.encode(f"{text}</answer>") for text in self.answers.pop(0)]
        return [Completion(i, [0.0] * len(i), p.ids) for i, p in zip(ids, prompts, strict=True)]


def test_probing_credits_the_call_that_brought_the_answer(policy, env, env_options):
    trajectory = played(env, Oracle(margin=0.0, snap=112), 1)
    looks, right = texts(trajectory)[0], trajectory.answer
    engine = ProbedEngine(policy.processor, [looks, looks, looks[1:]], [["?"], [right, "?"]])
    runner = RolloutRunner(lambda: make_env(env_options, "train", "taco"), policy.processor)
    try:
        found = runner.play(engine, [1], 3, SAMPLING)
    finally:
        runner.close()
    assert [[turn.probed for turn in r.trajectory.turns] for r in found] == [
        [(False, True), None],
        [(False, False), None],
        [None],
    ]
    # Paid with the turn after the call, in a channel of its own.
    gains = [[turn.reward_terms["gain"] for turn in r.trajectory.turns] for r in found]
    assert gains == [[0.0, 0.15], [0.0, 0.0], [0.0]]
    channels, kept = channel_table(found, reward_table(found)[0], get_reward("taco"))
    assert channels[:, :, 1].tolist() == [[1.0, 1.0, 0.0], [0.15, 0.0, 0.0]] and kept.all()
    # A group shares the first probe; each goes on from the tokens so far, with the opening of an answer.
    first, second = engine.probes
    assert len(first[0]) == 1 and len(second[0]) == 2
    assert first[0][0].ids == [*engine.calls[0][0].ids, *policy.processor.encode("<answer>")]
    assert second[0][0].ids == [*engine.calls[1][0].ids, *policy.processor.encode("<answer>")]
    assert [len(p.images) for p in second[0]] == [2, 2]
    # Nothing of a probe stays in the tokens.
    plain = RolloutRunner(lambda: make_env(env_options, "train"), policy.processor)
    try:
        unprobed = plain.play(ScriptedEngine(policy.processor, [looks]), [1], 1, SAMPLING)[0]
    finally:
        plain.close()
    assert found[0].tokens.ids == unprobed.tokens.ids and found[0].tokens.turns == unprobed.tokens.turns


def test_the_policy_itself_is_probed_and_its_samples_do_not_depend_on_it(policy, env_options):
    plays = []
    for reward in ("taco", "outcome"):
        runner = RolloutRunner(lambda: make_env(env_options, "train", reward), policy.processor)  # noqa: B023
        try:
            found = runner.play(HFEngine(policy.model, policy.processor, seed=3), [0, 1], 2, Sampling(1.0, 12))
        finally:
            runner.close()
        plays.append([r.tokens.ids for r in found])
    assert plays[0] == plays[1]


def test_a_rollout_without_a_judge_is_left_out_and_counted(policy, env, env_options):
    from accelerate import Accelerator

    looks = texts(played(env, Oracle(margin=0.0, snap=112), 1))[0]
    found = paid_by("tapo", policy, env_options, [looks, looks[1:], ["<answer>?</answer>"]], 1)
    turn = replace(found[1].trajectory.turns[0], score=StepScore(None, failed=True))
    found[1] = replace(found[1], trajectory=replace(found[1].trajectory, turns=(turn,)))
    rewards, turns, groups = reward_table(found)
    channels, kept = channel_table(found, rewards, get_reward("tapo"))
    assert torch.equal(channels[0], rewards) and kept.tolist() == [[True, False, True]]
    found_advantages = combine(CREDITS["trajectory"], channels, turns, groups, (1.0,), kept)
    # Its group is normalised over the other two.
    assert found_advantages[:, 0].tolist() == pytest.approx([0.5**0.5, 0.0, -(0.5**0.5)], abs=1e-4)
    row = describe(found, rewards, turns, groups, Accelerator(cpu=True))
    assert row["share/judge_failed"] == pytest.approx(1 / 3) and row["share/groups_without_signal"] == 0.0
    judged = [float(rewards[0].sum()), float(rewards[2].sum())]
    assert row["reward"] == pytest.approx(sum(judged) / 2), "its reward lacks the tool's"
    terms = sum(value for name, value in row.items() if name.startswith("reward/"))
    assert terms == pytest.approx(row["reward"])
    none = describe([found[1]] * 2, rewards[1:2].expand(2, -1), turns[1:2].expand(2), groups[:2], Accelerator(cpu=True))
    assert none["reward"] == pytest.approx(float(rewards[1].sum())), "finite where all failed"
    alone = describe(found[:2], rewards[:2], turns[:2], groups[:2], Accelerator(cpu=True))
    assert alone["share/groups_without_signal"] == 1.0, "one judged rollout has nobody to be compared with"


def test_the_policy_itself_plays(policy, runner):
    """With the real engine: what is kept of a rollout scores as it was sampled."""
    from codev_agents.engines.batch import collate
    from codev_train.learn.scorer import TokenScorer

    processor = policy.processor
    found = runner.play(HFEngine(policy.model, processor, seed=2), [0, 1], 3, Sampling(0.8, 16))
    sequences = [r.tokens for r in found]
    batch = collate([s.ids for s in sequences], [s.images for s in sequences], processor.pad_id, processor.image_id)
    length = batch["input_ids"].shape[1]
    chosen = torch.tensor([s.turns + [-1] * (length - len(s)) for s in sequences]) >= 0
    with torch.no_grad():
        logprobs, _ = TokenScorer(policy.model.eval())(batch, chosen, 0.8, tuple(processor.banned_ids))
    sampled = [lp for s in sequences for lp, t in zip(s.logprobs, s.turns, strict=True) if t >= 0]
    assert logprobs.tolist() == pytest.approx(sampled, abs=1e-4)
    assert len({tuple(s.ids) for s in sequences}) == 6


def test_turns_that_reach_the_limit_of_tokens_are_counted(policy, runner, monkeypatch):
    from accelerate import Accelerator

    engine, ends, shares = HFEngine(policy.model, policy.processor, seed=2), [], []
    generate = engine.generate

    def noting(*asked):
        found = generate(*asked)
        ends.extend(completion.finish for completion in found)
        return found

    monkeypatch.setattr(engine, "generate", noting)
    for limit in (2, 60):
        ends.clear()
        found = runner.play(engine, [0, 1], 3, Sampling(0.8, limit))
        shares.append(describe(found, *reward_table(found), Accelerator(cpu=True))["share/truncated_turns"])
        assert shares[-1] == ends.count("length") / len(ends)
    assert shares[0] > shares[1]


def test_a_group_whose_advantages_are_all_zero_is_without_signal(policy, env, env_options):
    """Also where its rewards differ: with `resample`, the outcome decides what is learned from."""
    from accelerate import Accelerator

    looks = texts(played(env, Oracle(margin=0.0, snap=112), 1))[0]
    found = paid_by("tapo", policy, env_options, [looks, looks[1:], ["<answer>?</answer>"]], 1)
    rewards, turns, groups = reward_table(found)
    learned = torch.zeros_like(rewards)
    row = describe(found, rewards, turns, groups, Accelerator(cpu=True), learned)
    assert row["share/groups_without_signal"] == 1.0
    learned[1, 0] = 0.5
    row = describe(found, rewards, turns, groups, Accelerator(cpu=True), learned)
    assert row["share/groups_without_signal"] == 0.0


def test_episodes_without_a_verdict_are_not_in_the_faithful_rate(policy, env, env_options):
    """Where there is none at all, the rate is unknown, not 0."""
    import math

    from accelerate import Accelerator

    from codev_train.tapo import bar_numbers

    looks = texts(played(env, Oracle(margin=0.0, snap=112), 1))[0]
    found = paid_by("tapo", policy, env_options, [looks, looks, looks[1:]], 1)
    accelerator = Accelerator(cpu=True)

    def rate() -> float:
        return describe(found, *reward_table(found), accelerator)["faithful"]

    assert rate() == pytest.approx(2 / 3), "an episode that looked nowhere is unfaithful"
    for place, wanted in ((0, 1 / 2), (1, 0.0)):
        first, *rest = found[place].trajectory.turns
        turns = (replace(first, score=StepScore(None, failed=True)), *rest)
        found[place] = replace(found[place], trajectory=replace(found[place].trajectory, turns=turns))
        assert rate() == pytest.approx(wanted)
    del found[2]
    assert math.isnan(rate())
    row = {"reward": 1.0, "accuracy": 0.5, "faithful": rate()}
    judged = paid_by("tapo", policy, env_options, [looks], 1)[0]
    assert "faithful" not in bar_numbers(row, [judged.trajectory])
