"""A dialect whose observations stand in the model's own message: one message per episode, in tokens as in text."""

from __future__ import annotations

import dataclasses

from test_train_rollout import ScriptedEngine

from codev_agents import Oracle, run_episode
from codev_env.types import IMAGE_PLACEHOLDER
from codev_train.engines.base import Sampling
from codev_train.environments import make_env
from codev_train.examples import tokenize_trajectory
from codev_train.rollout import Roller


def test_thyme_is_one_message(policy, env_options):
    codec = policy.codec
    options = dataclasses.replace(env_options, dialect="thyme")
    played = run_episode(make_env(options, "train"), Oracle(snap=112), options={"index": 5})
    first, second = played.turns
    tokens = tokenize_trajectory(played, codec)
    images = tokens.images

    prompt = codec.prompt(played.system_prompt, played.prompt, images[:1])
    before, after = first.observation.split(IMAGE_PLACEHOLDER)
    start, end = codec.tokenizer.convert_tokens_to_ids(["<|vision_start|>", "<|vision_end|>"])
    crop = [start, *[codec.image_id] * images[1].tokens, end]
    observation = [*codec.encode(before), *crop, *codec.encode(after)]
    first_ids, second_ids = codec.encode(first.action), codec.encode(second.action)
    assert tokens.ids == [*prompt, *first_ids, *observation, *second_ids, codec.eos_id]
    assert tokens.turns == (
        [-1] * len(prompt) + [0] * len(first_ids) + [-1] * len(observation) + [1] * (len(second_ids) + 1)
    )


def test_a_rollout_samples_after_the_same_ids(policy, env_options):
    """The engine goes on within the message; the trainer refuses other prompt ids than its own."""
    options = dataclasses.replace(env_options, dialect="thyme")
    expert = run_episode(make_env(options, "train"), Oracle(snap=112), options={"index": 5})
    engine = ScriptedEngine(policy.codec, [[turn.action for turn in expert.turns]], end=False)
    roller = Roller(lambda: make_env(options, "train"), policy.codec, workers=1)
    (rollout,) = roller.play(engine, [5], 1, Sampling(1.0, 64))
    roller.close()
    assert rollout.trajectory.final_answer == expert.final_answer
    assert [*rollout.tokens.ids, policy.codec.eos_id] == tokenize_trajectory(expert, policy.codec).ids


def test_an_ended_message_is_not_gone_on_with(policy):
    codec = policy.codec
    ended = [*codec.encode("done"), codec.eos_id]
    assert codec.observation("seen", [], after=ended, role="assistant") == codec.observation("seen", [], after=ended)
