"""What becomes of rollouts before the loss sees them: samples, and which of their tokens it covers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from codev_agents.rollout.player import Rollout
from codev_agents.rollout.tokens import TokenSequence
from codev_train.learn.sample import make_samples

ADVANTAGES = torch.tensor([[1.0, -2.0, 0.0]], dtype=torch.float64)


def rollout(stop_reason: str = "answer", failed: bool = False, cut: bool = False) -> Rollout:
    """Two turns of two tokens each, with what the environment wrote around them."""
    tokens = TokenSequence()
    for turn in range(2):
        tokens.add_observation([7, 8, 9])
        tokens.add_action([turn, turn], [-0.5, -0.25], turn)
    trajectory: Any = SimpleNamespace(turns=[None, None], stop_reason=stop_reason, judge_failed=failed)
    return Rollout(trajectory, tokens, 0, cut)


def test_a_sample_holds_the_tokens_as_they_were_sampled():
    one = rollout()
    (sample,) = make_samples([one], ADVANTAGES, version=5)
    assert (sample.ids, sample.turns, sample.logprobs) == (one.tokens.ids, one.tokens.turns, one.tokens.logprobs)
    assert sample.advantages.tolist() == [1.0, -2.0] and sample.version == 5
    assert sample.mask == [turn >= 0 for turn in sample.turns]
    assert (len(sample), sample.size) == (10, 4)


@pytest.mark.parametrize(
    ("made", "options", "trained"),
    [
        (rollout(failed=True), {}, False),
        (rollout("max_length", cut=True), {}, True),
        (rollout("max_length", cut=True), {"mask_overlong": True}, False),
        (rollout("max_turns"), {"mask_overlong": True}, True),
        (rollout("max_turns"), {"mask_overturn": True}, False),
        (rollout("answer"), {"mask_overturn": True, "mask_overlong": True}, True),
    ],
)
def test_masks_are_decided_before_the_loss(made, options, trained):
    (sample,) = make_samples([made], ADVANTAGES, **options)
    assert sample.size == (4 if trained else 0)
