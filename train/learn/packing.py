"""Packing: trajectories of different lengths in one row without padding, each attending to itself only."""

from __future__ import annotations

import importlib.util
import types
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from codev_agents.engines.batch import rope_positions

NAME = "codev_blocks"
"""Name of the attention implementation that knows packed rows."""


def plan(lengths: Sequence[int], budget: int, scenes: Sequence[int] = ()) -> list[list[int]]:
    """Distribute trajectories over forward passes: first fit, the longest first.

    Args:
        lengths: Tokens of each trajectory.
        budget: Most tokens per pass; a trajectory that is longer gets a pass of its own and is never cut.
        scenes: For each trajectory a number that it shares with those that begin with the same image. These stay
            together, so that the image is seen once for all of them, if that takes no more passes and fewer images.

    Returns:
        Numbers of the trajectories of each pass; each trajectory is in exactly one.
    """
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    if not scenes:
        return _first_fit(order, lengths, budget)
    first = {scenes[row]: place for place, row in reversed(list(enumerate(order)))}
    together = sorted(order, key=lambda row: first[scenes[row]])

    def price(passes: Sequence[Sequence[int]]) -> tuple[int, int]:
        return len(passes), sum(len({scenes[row] for row in part}) for part in passes)

    return min((_first_fit(way, lengths, budget) for way in (order, together)), key=price)


def _first_fit(order: Sequence[int], lengths: Sequence[int], budget: int) -> list[list[int]]:
    passes: list[list[int]] = []
    room: list[int] = []
    for row in order:
        place = next((i for i, left in enumerate(room) if left >= lengths[row]), None)
        if place is None:
            passes.append([])
            room.append(budget)
            place = len(passes) - 1
        passes[place].append(row)
        room[place] -= lengths[row]
    return passes


def pack(model: Any, batch: dict[str, torch.Tensor], chosen: torch.Tensor) -> tuple[dict[str, Any], torch.Tensor]:
    """Take the padding out of a batch.

    Args:
        model: A model of a tested family; its language model is set to attend within trajectories.
        batch: From `batch.collate`, `[rows, length]`.
        chosen: `[rows, length]`, bool.

    Returns:
        Model inputs of one row of all tokens, with the positions that each token had, and `chosen` `[1, tokens]`.
    """
    attend_within(model)
    kept = batch["attention_mask"].bool()
    positions, _ = rope_positions(model, batch)
    # A four-dimensional mask reaches the attention function as it is: `block_attention` gets the lengths.
    lengths = kept.sum(1, dtype=torch.int32).cpu()[None, None, None]
    kinds = set(getattr(model.config.get_text_config(), "layer_types", None) or ())
    packed: dict[str, Any] = {
        "input_ids": batch["input_ids"][kept][None],
        "position_ids": positions[..., kept].unsqueeze(-2),
        "attention_mask": dict.fromkeys(kinds, lengths) if len(kinds) > 1 else lengths,
    }
    packed |= {name: batch[name] for name in ("pixel_values", "image_grid_thw") if name in batch}
    return packed, chosen[kept][None]


def attend_within(model: Any) -> None:
    """Make the language model use `block_attention`; the vision tower goes image by image in any case."""
    if model.config.get_text_config()._attn_implementation != NAME:
        AttentionInterface.register(NAME, block_attention)
        AttentionMaskInterface.register(NAME, sdpa_mask)
        model.set_attn_implementation({"text_config": NAME})
        for layer in model.model.language_model.layers:
            if linear := getattr(layer, "linear_attn", None):
                linear.forward = types.MethodType(_scan_within, linear)


def _scan_within(
    self: Any, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None = None, **kwargs: Any
) -> torch.Tensor:
    """Run a layer of linear attention on each trajectory of a packed row, so that no state passes to the next."""
    if attention_mask is None or attention_mask.dtype != torch.int32:
        return type(self).forward(self, hidden_states, attention_mask=attention_mask, **kwargs)
    parts = hidden_states.split(attention_mask.flatten().tolist(), dim=1)
    return torch.cat([type(self).forward(self, part, **kwargs) for part in parts], dim=1)


def block_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attend causally within each trajectory of a packed row; other inputs as `transformers` does with SDPA.

    Args:
        module: The attention layer.
        query: `[1, heads, tokens, width]`; `key` and `value` may have fewer heads.
        key: See `query`.
        value: See `query`.
        attention_mask: Lengths of the trajectories, int32 `[1, 1, 1, trajectories]`; anything else is a mask.
        dropout: Dropout rate.
        scaling: Scale of the scores.
        kwargs: For SDPA; and `sequence`, a `SequenceGroup`, where processes share the tokens out.

    Returns:
        `[1, tokens, heads, width]`, and None for the weights.
    """
    if attention_mask is None or attention_mask.dtype != torch.int32:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **kwargs)
    if sequence := kwargs.pop("sequence", None):
        query, key, value = map(sequence.to_heads, (query, key, value))
        grouped = types.SimpleNamespace(num_key_value_groups=query.shape[1] // key.shape[1], is_causal=True)
        shared, _ = block_attention(grouped, query, key, value, attention_mask, dropout, scaling, **kwargs)
        return sequence.to_tokens(shared), None
    lengths = attention_mask.flatten()
    if query.is_cuda and importlib.util.find_spec("flash_attn"):
        dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else query.dtype
        if dtype in (torch.float16, torch.bfloat16):
            return _flash(query.to(dtype), key.to(dtype), value.to(dtype), lengths, dropout, scaling), None
    # One call per trajectory: neither time nor memory for what it does not attend to.
    blocks = zip(*(x.split(lengths.tolist(), dim=2) for x in (query, key, value)), strict=True)
    out = [sdpa_attention_forward(module, q, k, v, None, dropout, scaling, is_causal=True)[0] for q, k, v in blocks]
    return torch.cat(out, dim=1), None


def _flash(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    lengths: torch.Tensor,
    dropout: float,
    scaling: float | None,
) -> torch.Tensor:
    """Attend with flash-attn's kernel for rows of several sequences; returns `[1, tokens, heads, width]`."""
    from flash_attn import flash_attn_varlen_func

    ends = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0)).to(query.device)
    longest = int(lengths.max())
    query, key, value = (x[0].transpose(0, 1) for x in (query, key, value))
    out = flash_attn_varlen_func(
        query, key, value, ends, ends, longest, longest, dropout_p=dropout, softmax_scale=scaling, causal=True
    )
    return out[None]
