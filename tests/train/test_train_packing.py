"""Packing: every trajectory once within the budget, and the same numbers and gradients as one trajectory at a time."""

from __future__ import annotations

import copy
import itertools
import sys
import types

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy_families import END, IMAGE, PAD, START, qwen25

from codev_agents.engines.batch import collate
from codev_agents.rollout.tokens import PixelBlock
from codev_train.learn.packing import NAME, block_attention, plan
from codev_train.learn.scorer import TokenScorer, compile_layers


@given(lengths=st.lists(st.integers(1, 300), max_size=40), budget=st.integers(1, 500), data=st.data())
def test_every_trajectory_stands_once_within_the_budget(lengths, budget, data):
    scenes = data.draw(st.sampled_from([(), [row // 4 for row in range(len(lengths))], [0] * len(lengths)]))
    passes = plan(lengths, budget, scenes)
    assert len(passes) <= len(plan(lengths, budget))
    assert sorted(row for part in passes for row in part) == list(range(len(lengths)))
    for part in passes:
        assert sum(lengths[row] for row in part) <= budget or len(part) == 1
    # First fit: no two passes could have been one.
    sums = sorted(sum(lengths[row] for row in part) for part in passes)
    assert len(sums) < 2 or sums[0] + sums[1] > budget


def test_a_pass_is_filled_from_the_longest_to_the_shortest():
    assert plan([2, 5, 3, 9, 4], 9) == [[3], [1, 4], [2, 0]]


def test_trajectories_that_begin_with_the_same_image_share_passes():
    scenes = [0, 1, 0, 1, 0, 1, 0, 1]
    passes = plan([30, 31, 32, 33, 34, 35, 36, 37], 150, scenes)
    assert [{scenes[row] for row in part} for part in passes] == [{1}, {0}]
    assert len({scenes[row] for row in plan([30, 31, 32, 33, 34, 35, 36, 37], 150)[0]}) == 2
    # Two passes are enough only for a mixture: then they are mixed.
    lengths, scenes = [6, 6, 4, 4], [0, 0, 1, 1]
    assert plan(lengths, 10, scenes) == plan(lengths, 10) == [[0, 2], [1, 3]]


@given(data=st.data(), budget=st.integers(300, 1600))
def test_never_are_more_images_seen_than_without_regard_to_them(data, budget):
    lengths = data.draw(st.lists(st.integers(20, 300), max_size=24))
    scenes = data.draw(st.lists(st.integers(0, 4), min_size=len(lengths), max_size=len(lengths)))
    aware, blind = plan(lengths, budget, scenes), plan(lengths, budget)
    seen = [sum(len({scenes[row] for row in part}) for part in passes) for passes in (aware, blind)]
    assert len(aware) < len(blind) or seen[0] <= seen[1]


def trajectories(seed: int, dim: int) -> tuple[list[list[int]], list[list[PixelBlock]]]:
    """Five trajectories of different lengths, with two images, one, and none."""
    generator = torch.Generator().manual_seed(seed)

    def words(count: int) -> list[int]:
        return torch.randint(12, 32, (count,), generator=generator).tolist()

    def image(height: int, width: int) -> PixelBlock:
        values = torch.randn(height * width, dim, generator=generator)
        return PixelBlock(values, (1, height, width), height * width // 4)

    def shown(block: PixelBlock) -> list[int]:
        return [START, *[IMAGE] * block.tokens, END]

    a, b, c, d = image(4, 6), image(8, 4), image(2, 2), image(6, 10)
    ids = [
        [*words(3), *shown(a), *words(4), *shown(b), *words(2)],
        words(7),
        [*shown(c), *words(1)],
        words(2),
        [*words(5), *shown(d), *words(9)],
    ]
    return ids, [[a, b], [], [c], [], [d]]


@pytest.fixture(params=["qwen3", "qwen2.5"])
def model_and_data(request, policy, env_options):
    if request.param == "qwen2.5":
        ids, images = trajectories(0, 3 * 2 * 4 * 4)
        return qwen25(), PAD, IMAGE, ids, images
    processor = policy.processor
    ids, images = trajectories(0, 3 * 2 * 14 * 14)
    vocab = processor.tokenizer.get_vocab()
    names = {IMAGE: processor.image_id, START: vocab["<|vision_start|>"], END: vocab["<|vision_end|>"]}
    return (
        copy.deepcopy(policy.model),
        processor.pad_id,
        processor.image_id,
        [[names.get(i, i) for i in s] for s in ids],
        images,
    )


def run(model, pad, image, ids, images, packed: bool, keep: bool = False) -> list[torch.Tensor]:
    """Score all but the first two tokens of each trajectory; returns log-probabilities, entropies and gradients."""
    batch = collate(ids, images, pad, image)
    chosen = batch["attention_mask"].bool() & (batch["input_ids"] != image)
    chosen[:, :2] = False
    logprobs, entropies = TokenScorer(model)(batch, chosen, 0.9, (image,), packed)
    (logprobs * torch.linspace(-1, 1, len(logprobs))).sum().backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    if not keep:
        model.zero_grad()
    return [logprobs.detach(), entropies, *gradients]


@pytest.mark.parametrize("checkpointing", [False, True])
def test_packed_equals_padded_equals_alone(model_and_data, checkpointing):
    model, pad, image, ids, images = model_and_data
    if checkpointing:
        model.gradient_checkpointing_enable()
    model.train()
    padded = run(*model_and_data, packed=False)
    packed = run(*model_and_data, packed=True)
    assert len(packed) == len(padded)
    for a, b in zip(packed, padded, strict=True):
        scale = float(b.abs().max()) or 1.0
        torch.testing.assert_close(a / scale, b / scale, atol=1e-5, rtol=0)
    scored = [row for row in range(len(ids)) if len(ids[row]) > 2]
    alone = [run(model, pad, image, [ids[row]], [images[row]], packed=False)[0] for row in scored]
    torch.testing.assert_close(packed[0], torch.cat(alone), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kept", [0, 1, 9])
def test_the_last_layers_can_keep_their_activations(policy, kept):
    made = copy.deepcopy(policy)
    made.checkpoint_gradients(kept)
    layers = made.model.model.language_model.layers
    again = [layer.gradient_checkpointing for layer in layers]
    assert again == [True] * (len(layers) - min(kept, len(layers))) + [False] * min(kept, len(layers))


@pytest.mark.integration
def test_compiled_layers_compute_the_same():
    """The first pass compiles; the second has other lengths."""
    data = (PAD, IMAGE, *trajectories(0, 3 * 2 * 4 * 4))
    model = qwen25().train()
    model.model.language_model.layers = model.model.language_model.layers[:1]
    model.gradient_checkpointing_enable()
    shorter = (PAD, IMAGE, data[2][:3], data[3][:3])
    wanted = [run(model, *part, packed=True) for part in (data, shorter)]
    compile_layers(model)
    compiled = [run(model, *part, packed=True) for part in (data, shorter)]
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    for found, expected in zip(itertools.chain(*compiled), itertools.chain(*wanted), strict=True):
        scale = float(expected.abs().max()) or 1.0
        torch.testing.assert_close(found / scale, expected / scale, atol=1e-5, rtol=0)


def test_the_gradient_of_a_packed_row_reaches_the_whole_vision_tower(model_and_data):
    model = model_and_data[0]
    run(*model_and_data, packed=True, keep=True)
    matrices = {n: p for n, p in model.model.visual.named_parameters() if p.ndim == 2}
    assert matrices and all(p.grad is not None and p.grad.any() for p in matrices.values())


def test_a_packed_model_still_samples_from_padded_batches(model_and_data):
    """The implementation of attention stays set: with an ordinary mask it must do what it did before."""
    model, pad, image, ids, images = model_and_data
    batch = collate(ids, images, pad, image, left=True)
    before = model(**batch).logits[:, -1]
    run(*model_and_data, packed=True)
    assert model.config.get_text_config()._attn_implementation == NAME
    torch.testing.assert_close(model(**batch).logits[:, -1], before, atol=0, rtol=0)


def test_the_attention_of_a_packed_model_is_not_saved(model_and_data, tmp_path):
    model = model_and_data[0]
    run(*model_and_data, packed=True)
    model.save_pretrained(tmp_path)
    assert NAME not in (tmp_path / "config.json").read_text()


def varlen(q, k, v, starts, starts_k, longest, longest_k, dropout_p, softmax_scale, causal):
    """What flash-attn says that its kernel computes, in plain torch: `[tokens, heads, width]`, from start to start."""
    assert torch.equal(starts, starts_k) and starts.dtype == torch.int32 and longest == longest_k and causal
    assert int((starts[1:] - starts[:-1]).max()) == longest and dropout_p == 0
    out = torch.empty_like(q)
    groups = q.shape[1] // k.shape[1]
    for a, b in zip(starts.tolist(), starts[1:].tolist(), strict=False):
        keys, values = (x[a:b].repeat_interleave(groups, 1) for x in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q[a:b], keys) * softmax_scale
        scores = scores.masked_fill(torch.ones(b - a, b - a).triu(1).bool(), -torch.inf)
        out[a:b] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), values)
    return out


def test_flash_attention_gets_the_same_sequences(monkeypatch):
    """The kernel itself needs a GPU; here its place is taken by what its documentation says that it computes."""
    from codev_train.learn import packing

    monkeypatch.setitem(sys.modules, "flash_attn", types.SimpleNamespace(flash_attn_varlen_func=varlen))
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(1, 4, 12, 8, generator=generator)
    key, value = torch.randn(2, 1, 2, 12, 8, generator=generator)
    lengths = torch.tensor([3, 1, 8], dtype=torch.int32)
    layer = torch.nn.Module()
    layer.num_key_value_groups, layer.is_causal = 2, True
    wanted, _ = block_attention(layer, query, key, value, lengths[None, None, None], scaling=0.3)
    found = packing._flash(query, key, value, lengths, 0.0, 0.3)
    torch.testing.assert_close(found, wanted)
