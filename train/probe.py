"""Asks the policy, in the middle of an episode, for the answer that it would give now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym

from codev_env.types import Answer
from codev_train.engines.base import Engine, Prompt, Sampling
from codev_train.tokens import Codec, TokenSequence

MAX_TOKENS = 64
"""Longest answer, in tokens."""
_MARK = "0"


def probe(
    engine: Engine,
    codec: Codec,
    envs: Sequence[gym.Env[Any, Any]],
    sequences: Sequence[TokenSequence],
    room: int = MAX_TOKENS,
) -> list[bool]:
    """Tell for each episode whether the policy, made to answer now, answers right.

    The dialect's opening of an answer is put after the tokens so far, and continued greedily. Nothing of it stays.

    Source: the answer probe of TACO (arXiv 2606.30251).

    Args:
        engine: What samples.
        codec: The tokenizer side of the policy.
        envs: The environments, with the task and its scorer; all of one dialect.
        sequences: The tokens of each episode, up to where the policy's next turn begins.
        room: Most tokens that fit after each of them.
    """
    dialect = envs[0].unwrapped.dialect  # type: ignore[attr-defined]
    opening = dialect.write(Answer(_MARK)).partition(_MARK)[0]
    ids = codec.encode(opening)
    prompts = [Prompt([*sequence.ids, *ids], list(sequence.images)) for sequence in sequences]
    sampling = Sampling(0.0, max(1, min(MAX_TOKENS, room - len(ids))), tuple(dialect.stop))
    completions = engine.generate(prompts, sampling)
    turns = [dialect.parse(opening + codec.decode(completion.ids)) for completion in completions]
    return [_is_right(env.unwrapped, turn) for env, turn in zip(envs, turns, strict=True)]


def _is_right(env: Any, turn: Any) -> bool:
    return isinstance(turn, Answer) and bool(env.scorer(env.task, turn.text).correct)
