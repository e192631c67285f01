"""Models with the same weights and fewer, larger operations: the vision tower, norms and gates."""

from __future__ import annotations

import contextlib
import importlib.util
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary
from transformers import AttentionInterface
from transformers.activations import SiLUActivation
from transformers.integrations.sdpa_attention import sdpa_attention_forward

NAME = "codev_segments"
"""Name of the attention implementation that takes all windows and images of a pass at once."""
DEVICES = ("cuda",)
"""Devices on which norms and feed-forward layers are changed; on others it gains nothing."""
_ALIGNED = 8
_NORMS = ("input_layernorm", "post_attention_layernorm", "norm1", "norm2")
_GATED = ("Qwen2MLP", "Qwen3VLTextMLP", "Qwen3_5MLP")
_PLAIN = ("Qwen2_5_VLRMSNorm", "Qwen3VLTextRMSNorm")


def speed_up(model: Any) -> None:
    """Change how a model of the Qwen-VL family computes: results stay within rounding."""
    tower = getattr(getattr(model, "model", None), "visual", None)
    if tower is not None:
        linear_patch_embedding(model, tower)
        attend_by_length(model, tower)
        tower.forward = types.MethodType(_see_once, tower)
        for block in tower.blocks:
            if hasattr(block.mlp, "gate_proj") and block.mlp.gate_proj.out_features % _ALIGNED:
                block.mlp.forward = types.MethodType(_aligned_mlp, block.mlp)
        for layer in model.model.language_model.layers:
            mlp: Any = getattr(layer, "mlp", None)
            if type(mlp).__name__ in _GATED and isinstance(mlp.act_fn, SiLUActivation):
                mlp.forward = types.MethodType(_gated_mlp, mlp)
        for module in model.modules():
            for norm in (getattr(module, name, None) for name in _NORMS):
                if norm is not None and type(norm).__name__ in _PLAIN:
                    norm.forward = types.MethodType(_norm_to_autocast, norm)


def linear_patch_embedding(model: Any, tower: Any) -> None:
    """Run the patch embedding as the matrix product it is: much faster than `Conv3d`."""
    embed = tower.patch_embed
    if not isinstance(getattr(embed, "proj", None), torch.nn.Conv3d):
        return

    def forward(self: Any, hidden: torch.Tensor) -> torch.Tensor:
        flat = hidden.view(hidden.shape[0], -1).to(self.proj.weight.dtype)
        return torch.nn.functional.linear(flat, self.proj.weight.flatten(1), self.proj.bias)

    # A bound method, so that a copy of the model uses its own weights.
    embed.forward = types.MethodType(forward, embed)


@contextlib.contextmanager
def looking_once(model: Any, places: torch.Tensor | None) -> Iterator[None]:
    """Let the vision tower of a model that `speed_up` has changed take an image once that is shown several times.

    Args:
        model: The model.
        places: Number among the images given of each image that is shown, `[images shown]`; None if each is given. The
            grids that the model gets are those of the images shown.
    """
    if places is None:
        yield
        return
    model.model.visual.image_places = places
    try:
        yield
    finally:
        model.model.visual.image_places = None


def _see_once(self: Any, hidden_states: torch.Tensor, grid_thw: torch.Tensor, **kwargs: Any) -> Any:
    """Run the tower on the images given, and repeat what it makes of them for each time that they are shown."""
    places = getattr(self, "image_places", None)
    if places is None:
        return type(self).forward(self, hidden_states, grid_thw, **kwargs)
    shown = places.tolist()
    firsts = [shown.index(place) for place in range(max(shown) + 1)]
    found = type(self).forward(self, hidden_states, grid_thw[firsts], **kwargs)
    sizes = (grid_thw[firsts].prod(-1) // self.spatial_merge_size**2).tolist()
    starts = list(accumulate(sizes, initial=0))
    tokens = torch.cat([torch.arange(starts[place], starts[place + 1]) for place in shown]).to(hidden_states.device)
    found.pooler_output = found.pooler_output.index_select(0, tokens)
    if hasattr(found, "deepstack_features"):
        found.deepstack_features = [values.index_select(0, tokens) for values in found.deepstack_features]
    return found


def _aligned_mlp(self: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Run a gated feed-forward layer with its width filled up with zeros to a multiple of eight.

    Qwen2.5-VL's vision tower has a width of 3420, for which bf16 products have only slow kernels.
    """
    if hidden.device.type not in DEVICES:
        return type(self).forward(self, hidden)
    more = -self.gate_proj.out_features % _ALIGNED

    def filled(layer: Any) -> torch.Tensor:
        weight = torch.nn.functional.pad(layer.weight, (0, 0, 0, more))
        bias = None if layer.bias is None else torch.nn.functional.pad(layer.bias, (0, more))
        return torch.nn.functional.linear(hidden, weight, bias)

    product = self.act_fn(filled(self.gate_proj)) * filled(self.up_proj)
    down = torch.nn.functional.pad(self.down_proj.weight, (0, more))
    return torch.nn.functional.linear(product, down, self.down_proj.bias)


class _Gate(torch.autograd.Function):
    """`silu(gate) * up`, which keeps its two inputs alone for the backward pass."""

    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(gate, up)
        return torch.nn.functional.silu(gate).mul_(up)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gate, up = ctx.saved_tensors
        inner = grad * up
        torch.ops.aten.silu_backward.grad_input(inner, gate, grad_input=inner)
        return inner, torch.nn.functional.silu(gate).mul_(grad)


def _gated_mlp(self: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Run a gated feed-forward layer whose activated gate is not kept."""
    if hidden.device.type not in DEVICES:
        return type(self).forward(self, hidden)
    return self.down_proj(_Gate.apply(self.gate_proj(hidden), self.up_proj(hidden)))


def _norm_to_autocast(self: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Run a norm in front of linear layers in one operation; under autocast its output has the type that they take."""
    device = hidden.device.type
    if device not in DEVICES or not torch.is_autocast_enabled(device):
        return type(self).forward(self, hidden)
    with torch.autocast(device, enabled=False):
        weight = self.weight.to(hidden.dtype)
        normed = torch.nn.functional.rms_norm(hidden, weight.shape, weight, self.variance_epsilon)
    return normed.to(torch.get_autocast_dtype(device))


def attend_by_length(model: Any, tower: Any) -> None:
    """Let each layer attend with one call per segment length; `transformers` makes one call per segment.

    A segment is a window or, in layers with full attention, an image. At 1600x900 a layer of Qwen2.5-VL has 120 windows
    of five lengths.
    """
    AttentionInterface.register(NAME, segment_attention)
    for block in tower.blocks:
        block.attn.forward = types.MethodType(_forward_whole, block.attn)
    model.set_attn_implementation({"vision_config": NAME})


def _forward_whole(self: Any, hidden_states: torch.Tensor, cu_seqlens: torch.Tensor, **kwargs: Any) -> torch.Tensor:
    """Run an attention layer as if all segments were one; `segment_attention` gets the true ones."""
    whole = torch.tensor([0, len(hidden_states)])
    return type(self).forward(self, hidden_states, cu_seqlens=whole, segments=cu_seqlens, **kwargs)


@dataclass(frozen=True)
class Segments:
    """Segments of a row of patches.

    Attributes:
        longest: Patches of the longest.
        groups: Length and number of the segments of each length.
        order: The patches with segments of one length together, or None where they already are.
        back: The places of the patches in `order`.
    """

    longest: int
    groups: list[tuple[int, int]]
    order: torch.Tensor | None
    back: torch.Tensor | None

    @classmethod
    def of(cls, starts: torch.Tensor) -> Segments:
        """Group segments that go from each of `starts` `[segments + 1]` to the next."""
        bounds = starts.tolist()
        lengths = [end - start for start, end in zip(bounds, bounds[1:], strict=False)]
        rows = sorted(range(len(lengths)), key=lambda row: -lengths[row])
        groups = [(length, len(list(same))) for length, same in groupby(lengths[row] for row in rows)]
        if rows == list(range(len(rows))):
            return cls(lengths[rows[0]], groups, None, None)
        order = torch.cat([torch.arange(bounds[row], bounds[row + 1]) for row in rows]).to(starts.device)
        return cls(lengths[rows[0]], groups, order, order.argsort())


_known: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
"""The segments of the passes in progress: every layer gets the same tensor of starts."""


def segment_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    segments: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attend in both directions within each segment of a row.

    Args:
        module: The attention layer.
        query: `[1, heads, patches, width]`, and so are `key` and `value`.
        key: See `query`.
        value: See `query`.
        attention_mask: None.
        dropout: Dropout rate.
        scaling: Scale of the scores.
        segments: Starts of the segments and the end of the last, int32 `[segments + 1]`; None for a single one.
        kwargs: For SDPA.

    Returns:
        `[1, patches, heads, width]`, and None for the weights.
    """
    if segments is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **kwargs)
    if segments not in _known:
        _known[segments] = Segments.of(segments)
    known = _known[segments]
    query, key, value = (x[0].transpose(0, 1) for x in (query, key, value))
    # Vision towers have no dropout and scale by width ** -0.5, the default of the kernels.
    if kernel := _kernel(query):
        return kernel(query, key, value, segments, segments, known.longest, known.longest)[None], None
    if known.order is not None:
        query, key, value = (x.index_select(0, known.order) for x in (query, key, value))
    sizes = [length * count for length, count in known.groups]
    parts = []
    for (length, _), *rows in zip(known.groups, *(x.split(sizes) for x in (query, key, value)), strict=True):
        batch = (x.unflatten(0, (-1, length)).transpose(1, 2) for x in rows)
        parts.append(sdpa_attention_forward(module, *batch, None, dropout, scaling, is_causal=False)[0].flatten(0, 1))
    out = torch.cat(parts)
    return (out if known.back is None else out.index_select(0, known.back))[None], None


def _kernel(query: torch.Tensor) -> Callable[..., Any] | None:
    """Return an attention of variable lengths for `[patches, heads, width]`, where the device has one."""
    if not query.is_cuda or query.dtype not in (torch.float16, torch.bfloat16):
        return None
    if importlib.util.find_spec("flash_attn"):
        from flash_attn import flash_attn_varlen_func

        return flash_attn_varlen_func
    if importlib.util.find_spec("torch.nn.attention.varlen"):
        from torch.nn.attention.varlen import varlen_attn

        return varlen_attn
    return None
