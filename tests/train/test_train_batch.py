"""Padding, gathering images, and splitting rows into batches of similar lengths."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from codev_agents.engines.batch import bucket, collate
from codev_agents.rollout.tokens import PixelBlock

PAD, IMAGE = 0, 9


@given(
    lengths=st.lists(st.integers(1, 200), max_size=40),
    most=st.integers(1, 8),
    slack=st.sampled_from([1.0, 1.25, 2.0]),
)
def test_bucket_keeps_every_row_once_within_the_limits(lengths, most, slack):
    batches = bucket(lengths, most, slack)
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        found = [lengths[row] for row in batch]
        assert 1 <= len(batch) <= most
        assert max(found) <= slack * min(found)


def test_bucket_opens_a_batch_only_where_it_must():
    assert bucket([10, 11, 12, 100, 101, 10], most=3) == [[0, 5, 1], [2], [3, 4]]
    assert bucket([7] * 6, most=3) == [[0, 1, 2], [3, 4, 5]]


def block(fill: float, patches: int) -> PixelBlock:
    return PixelBlock(torch.full((patches, 3), fill), (1, patches // 2, 2), patches // 4)


rows = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=12), min_size=1, max_size=5)


@given(ids=rows, left=st.booleans())
def test_collate_pads_on_the_asked_side_and_marks_image_tokens(ids, left):
    batch = collate(ids, [[] for _ in ids], PAD, IMAGE, left)
    length = max(map(len, ids))
    assert {v.shape for v in batch.values()} == {(len(ids), length)} and "pixel_values" not in batch
    for row, wanted in enumerate(ids):
        padding = [PAD] * (length - len(wanted))
        ones, zeros = [1] * len(wanted), [0] * len(padding)
        assert batch["input_ids"][row].tolist() == (padding + wanted if left else wanted + padding)
        assert batch["attention_mask"][row].tolist() == (zeros + ones if left else ones + zeros)
        marks = [int(i == IMAGE) for i in wanted]
        assert batch["mm_token_type_ids"][row].tolist() == (zeros + marks if left else marks + zeros)


def test_padding_with_the_image_token_marks_no_image():
    batch = collate([[1, 2, 9], [1]], [[], []], pad_id=9, image_id=9)
    assert batch["mm_token_type_ids"].tolist() == [[0, 0, 1], [0, 0, 0]]


@pytest.mark.parametrize("left", [False, True])
def test_collate_gathers_images_in_order_of_their_tokens(left):
    images = [[block(1, 4)], [], [block(2, 8), block(3, 4)]]
    batch = collate([[1, 9], [1], [9, 9, 1, 9]], images, PAD, IMAGE, left)
    assert batch["pixel_values"][:, 0].tolist() == [1] * 4 + [2] * 8 + [3] * 4
    assert batch["image_grid_thw"].tolist() == [[1, 2, 2], [1, 4, 2], [1, 2, 2]]
    assert int(batch["mm_token_type_ids"].sum()) == sum(b.tokens for row in images for b in row)
