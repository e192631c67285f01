"""The vision tower's attention: one call per segment length, with the results of one call per segment."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy_families import qwen25, qwen35

from codev_agents.engines import vision
from codev_agents.engines.hf import HFEngine
from codev_agents.engines.vision import NAME, Segments, speed_up

GRIDS = [(1, 12, 16), (1, 4, 4), (1, 10, 6), (1, 12, 16), (1, 2, 18)]
TOLERANCE = 1e-6


def tower_pass(model: torch.nn.Module, grids=GRIDS) -> list[torch.Tensor]:
    """Run the vision tower; returns its output and its gradients, each divided by its largest value."""
    grid = torch.tensor(grids)
    width = model.config.vision_config.patch_size**2 * 3 * 2
    pixels = torch.randn(int(grid.prod(1).sum()), width, generator=torch.Generator().manual_seed(0))
    out = model.model.visual(pixels, grid_thw=grid).pooler_output
    (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
    found = [out.detach(), *(p.grad for p in model.model.visual.parameters() if p.grad is not None)]
    model.zero_grad()
    return [x / x.abs().max().clamp(min=1e-9) for x in found]


@pytest.fixture
def calls(monkeypatch) -> list[int]:
    """The number of segments in each call of the attention."""
    made: list[int] = []
    original = vision.sdpa_attention_forward

    def counted(module, query, *inputs, **kwargs):
        made.append(len(query))
        return original(module, query, *inputs, **kwargs)

    monkeypatch.setattr(vision, "sdpa_attention_forward", counted)
    return made


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("window", [16, 32])
def test_the_tower_computes_what_transformers_computes(window, checkpointing):
    model = qwen25(window)
    model.train()
    vision.linear_patch_embedding(model, model.model.visual)
    wanted = tower_pass(model)
    speed_up(model)
    if checkpointing:
        model.gradient_checkpointing_enable()
    for found, expected in zip(tower_pass(model), wanted, strict=True):
        torch.testing.assert_close(found, expected, atol=TOLERANCE, rtol=0)


@pytest.fixture
def everywhere(monkeypatch) -> None:
    """Changes that gain on GPUs only are made here, too; no width of the toy is a multiple of this one."""
    monkeypatch.setattr(vision, "DEVICES", ("cpu",))
    monkeypatch.setattr(vision, "_ALIGNED", 7)


def test_a_width_filled_up_with_zeros_computes_the_same(everywhere):
    model = qwen25()
    vision.linear_patch_embedding(model, model.model.visual)
    wanted = tower_pass(model)
    speed_up(model)
    assert all("forward" in vars(block.mlp) for block in model.model.visual.blocks)
    for found, expected in zip(tower_pass(model), wanted, strict=True):
        torch.testing.assert_close(found, expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norms_end_in_the_type_of_autocast_within_rounding(dtype, everywhere):
    model = qwen25().to(dtype)
    norm = model.model.language_model.layers[0].post_attention_layernorm
    torch.nn.init.uniform_(norm.weight, 0.5, 2.0)
    hidden = torch.randn(2, 5, 32).to(dtype).requires_grad_()

    def run(autocast: bool) -> tuple[torch.Tensor, ...]:
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            out = norm(hidden)
        return out, *torch.autograd.grad(out.float().pow(2).sum(), (hidden, norm.weight))

    plain = run(False)
    speed_up(model)
    assert all(torch.equal(a, b) for a, b in zip(run(False), plain, strict=True))
    fused = run(True)
    assert fused[0].dtype == torch.bfloat16
    for found, expected in zip(fused, plain, strict=True):
        limit = 2e-2 * float(expected.detach().abs().max())
        torch.testing.assert_close(found.float(), expected.float(), atol=limit, rtol=0)


def test_a_gate_computes_the_same_and_keeps_its_two_inputs_alone(everywhere):
    model = qwen25()
    speed_up(model)
    mlp = model.model.language_model.layers[0].mlp
    hidden = torch.randn(3, 5, 32, requires_grad=True)

    def run(forward) -> tuple[list[torch.Tensor], int]:
        kept: set[int] = set()
        with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.add(x.data_ptr()) or x, lambda x: x):
            out = forward(hidden)
        wide = out, *torch.autograd.grad(out.pow(2).sum(), [hidden, *mlp.parameters()])
        return list(wide), len(kept)

    plain, many = run(lambda x: type(mlp).forward(mlp, x))
    found, few = run(mlp)
    assert few == many - 1
    for a, b in zip(found, plain, strict=True):
        torch.testing.assert_close(a, b)
    gate, up = (torch.randn(4, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(vision._Gate.apply, (gate, up))


def test_norms_of_another_formula_stay_as_they_are():
    model = qwen35(32)
    speed_up(model)
    names = {type(m).__name__ for m in model.modules() if "Norm" in type(m).__name__}
    assert "Qwen3_5RMSNorm" in names
    assert not any("forward" in vars(m) for m in model.modules() if "RMSNorm" in type(m).__name__)


def test_a_layer_calls_attention_once_per_length(calls):
    model = qwen25()
    speed_up(model)
    tower_pass(model)
    # The first layer attends within windows, whole and cut at a border; the second within images, two of them equal.
    assert calls == [windows(16), windows(8), windows(4), 2, 1, 1, 1]


def windows(patches: int) -> int:
    """Count the windows of 4 x 4 patches in GRIDS that a border leaves with `patches` patches."""
    found = 0
    for _, height, width in GRIDS:
        for top in range(0, height, 4):
            for left in range(0, width, 4):
                found += min(4, height - top) * min(4, width - left) == patches
    return found


def test_the_toy_of_the_default_run_is_the_same_bit_for_bit(policy):
    model = copy.deepcopy(policy.model)
    assert model.config.vision_config._attn_implementation == NAME
    fast = tower_pass(model, [(1, 12, 12), (1, 6, 10), (1, 12, 12), (1, 4, 4)])
    for block in model.model.visual.blocks:
        del block.attn.forward
    model.set_attn_implementation({"vision_config": "sdpa"})
    slow = tower_pass(model, [(1, 12, 12), (1, 6, 10), (1, 12, 12), (1, 4, 4)])
    assert all(torch.equal(a, b) for a, b in zip(fast, slow, strict=True))


def test_a_copy_uses_its_own_weights():
    model = qwen25()
    speed_up(model)
    wanted = tower_pass(model)[0]
    changed = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in changed.model.visual.parameters():
            parameter.mul_(1.5)
    assert not torch.allclose(tower_pass(changed)[0], wanted, atol=1e-3)
    assert torch.equal(tower_pass(model)[0], wanted)


def test_the_whole_copy_of_a_sharded_model_is_fast_too(policy, monkeypatch, calls):
    """The `hf` engine builds it from the configuration alone."""
    from codev_agents.engines import hf

    model = copy.deepcopy(policy.model)
    engine = HFEngine(model, policy.processor)
    monkeypatch.setattr(hf, "is_sharded", lambda _: True)
    engine.sync(model)
    assert engine.model is not model
    monkeypatch.undo()
    wanted, found = (tower_pass(m.requires_grad_(True), [(1, 4, 4)] * 3)[0] for m in (model, engine.model))
    assert torch.equal(found, wanted)


def test_the_implementation_is_not_saved(tmp_path):
    model = qwen25()
    speed_up(model)
    model.save_pretrained(tmp_path)
    assert NAME not in (tmp_path / "config.json").read_text()


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_grouping_keeps_every_patch_of_a_segment_together(lengths):
    starts = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0)
    segments = Segments.of(starts)
    rows = torch.arange(sum(lengths))
    order = rows if segments.order is None else segments.order
    assert segments.longest == max(lengths) and sorted(order.tolist()) == rows.tolist()
    assert len({length for length, _ in segments.groups}) == len(segments.groups)
    at = 0
    for length, count in segments.groups:
        for segment in order[at : at + length * count].view(count, length).tolist():
            first = segment[0]
            assert first in starts.tolist() and segment == list(range(first, first + length))
        at += length * count
    if segments.back is not None:
        assert torch.equal(order[segments.back], rows)


def test_a_kernel_of_variable_lengths_gets_the_same_segments(monkeypatch):
    """Kernels need a GPU; here the place of one is taken by what its documentation says that it computes."""

    def kernel(query, key, value, starts, starts_k, longest, longest_k):
        assert starts is starts_k and longest == longest_k == int(starts.diff().max())
        out = torch.empty_like(query)
        for a, b in zip(starts.tolist(), starts[1:].tolist(), strict=False):
            scores = torch.einsum("qhd,khd->hqk", query[a:b], key[a:b]) * query.shape[2] ** -0.5
            out[a:b] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), value[a:b])
        return out

    model = qwen25()
    speed_up(model)
    wanted = tower_pass(model)
    monkeypatch.setattr(vision, "_kernel", lambda _: kernel)
    for found, expected in zip(tower_pass(model), wanted, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
