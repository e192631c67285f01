"""Packing up to 16k tokens at the real vocabulary: trajectories with many images are scored as each is alone."""

from __future__ import annotations

import pytest
import torch
from models import IDS, NARROW, make_policy, photograph

from codev_agents.engines.batch import collate
from codev_env.types import IMAGE_PLACEHOLDER
from codev_train.learn.packing import plan
from codev_train.learn.scorer import TokenScorer

pytestmark = pytest.mark.integration
BUDGET = 16384
COUNTS = (0, 5, 1, 2)
"""Photographs of 1600x900 pixels in each trajectory."""


def test_a_packed_row_of_16k_tokens_is_scored_like_its_trajectories_alone():
    policy = make_policy(NARROW)
    processor, scorer = policy.processor, TokenScorer(policy.model)
    images = [[processor.image(photograph(1600, 900, n)) for n in range(count)] for count in COUNTS]
    texts = [f"{IMAGE_PLACEHOLDER * count} What do these {count} images show?" for count in COUNTS]
    ids = [processor.prompt("Be brief.", text, blocks) for text, blocks in zip(texts, images, strict=True)]
    assert plan([len(row) for row in ids], BUDGET) == [[1, 3, 2, 0]]
    assert 14_600 < sum(map(len, ids)) <= BUDGET

    def score(rows: list[int]) -> torch.Tensor:
        batch = collate([ids[r] for r in rows], [images[r] for r in rows], processor.pad_id, processor.image_id)
        chosen = batch["attention_mask"].bool() & (batch["input_ids"] != IDS.image_id)
        chosen[:, 0] = False
        found, _ = scorer(batch, chosen, 1.0, tuple(processor.banned_ids), packed=len(rows) > 1)
        return found.detach()

    torch.testing.assert_close(score([0, 1, 2, 3]), torch.cat([score([row]) for row in range(4)]), atol=1e-5, rtol=0)
