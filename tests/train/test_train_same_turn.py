"""A dialect whose observations stand in the model's own message: one message per episode, in tokens as in text."""

from __future__ import annotations

import dataclasses

from test_train_rollout import ScriptedEngine

from codev_agents import Oracle, run_episode
from codev_agents.rollout.engine import Sampling
from codev_agents.rollout.runner import RolloutRunner
from codev_env.types import IMAGE_PLACEHOLDER
from codev_train.run.environments import make_env
from codev_train.sft.examples import tokenize_trajectory


def test_thyme_is_one_message(policy, env_options):
    processor = policy.processor
    options = dataclasses.replace(env_options, dialect="thyme")
    played = run_episode(make_env(options, "train"), Oracle(snap=112), options={"index": 5})
    first, second = played.turns
    tokens = tokenize_trajectory(played, processor)
    images = tokens.images

    prompt = processor.prompt(played.system_prompt, played.prompt, images[:1])
    before, after = first.observation.split(IMAGE_PLACEHOLDER)
    start, end = processor.tokenizer.convert_tokens_to_ids(["<|vision_start|>", "<|vision_end|>"])
    crop = [start, *[processor.image_id] * images[1].tokens, end]
    observation = [*processor.encode(before), *crop, *processor.encode(after)]
    first_ids, second_ids = processor.encode(first.action), processor.encode(second.action)
    assert tokens.ids == [*prompt, *first_ids, *observation, *second_ids, processor.eos_id]
    assert tokens.turns == (
        [-1] * len(prompt) + [0] * len(first_ids) + [-1] * len(observation) + [1] * (len(second_ids) + 1)
    )


def test_a_rollout_samples_after_the_same_ids(policy, env_options):
    """The engine goes on within the message; the trainer refuses other prompt ids than its own."""
    options = dataclasses.replace(env_options, dialect="thyme")
    expert = run_episode(make_env(options, "train"), Oracle(snap=112), options={"index": 5})
    engine = ScriptedEngine(policy.processor, [[turn.action for turn in expert.turns]], end=False)
    runner = RolloutRunner(lambda: make_env(options, "train"), policy.processor, workers=1)
    (rollout,) = runner.play(engine, [5], 1, Sampling(1.0, 64))
    runner.close()
    assert rollout.trajectory.final_answer == expert.final_answer
    assert [*rollout.tokens.ids, policy.processor.eos_id] == tokenize_trajectory(expert, policy.processor).ids


def test_an_ended_message_is_not_gone_on_with(policy):
    processor = policy.processor
    ended = [*processor.encode("done"), processor.eos_id]
    assert processor.observation("seen", [], after=ended, role="assistant") == processor.observation(
        "seen", [], after=ended
    )
