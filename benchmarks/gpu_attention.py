"""Attention kernels side by side, a part of `gpu.py`."""

from __future__ import annotations

import importlib.util
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from gpu_cells import CUDA, DEVICE, Cell, Missing, Row, clear, memory, timed

HEADS, KV_HEADS, WIDTH = 28, 4, 128  # of the 7B model


def attention(toy: bool) -> Iterator[Cell]:
    """Forward and backward of causal attention over packed rows of 32k tokens, with the heads of the 7B model."""
    rows = {"8 x 4k": [4096] * 8, "4k to 16k": [4096, 4096, 8192, 16384], "1 x 32k": [32768]}
    if toy:
        rows = {"2 x 16": [16, 16]}
    for row, lengths in rows.items():
        for name, kernel in KERNELS.items():
            yield f"{row}, {name}", lambda kernel=kernel, lengths=lengths: attend(kernel, lengths)


def attend(kernel: Callable[..., torch.Tensor], lengths: list[int]) -> Row:
    clear()
    torch.manual_seed(0)
    tokens = sum(lengths)
    query, key, value = (
        torch.randn(1, heads, tokens, WIDTH, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
        for heads in (HEADS, KV_HEADS, KV_HEADS)
    )
    gradient = torch.randn(1, tokens, HEADS, WIDTH, device=DEVICE, dtype=torch.bfloat16)

    def run() -> torch.Tensor:
        query.grad = key.grad = value.grad = None
        out = kernel(query, key, value, lengths)
        out.backward(gradient)
        return out

    seconds = timed(run, 5)
    flops = 7 * sum(s * s for s in lengths) * HEADS * WIDTH  # 2 products forward, 5 backward, half of each masked
    # The first tokens see no others, and a product in fp32 keeps all scores.
    first = min(lengths[0], 4096)
    wide = [x.detach()[:, :, :first].float() for x in (query, key, value)]
    want = sdpa_each(*wide, [first])
    found = run().detach()[:, :first].float()
    return {
        "milliseconds": 1e3 * seconds,
        "tflops": flops / seconds / 1e12,
        "error": float((found - want).norm() / want.norm()),
        **memory(),
    }


def sdpa_each(query: Any, key: Any, value: Any, lengths: list[int]) -> torch.Tensor:
    """One call of PyTorch's attention for each trajectory."""
    blocks = zip(*(x.split(lengths, dim=2) for x in (query, key, value)), strict=True)
    attend = torch.nn.functional.scaled_dot_product_attention
    return torch.cat([attend(q, k, v, is_causal=True, enable_gqa=True) for q, k, v in blocks], 2).transpose(1, 2)


def ours(query: Any, key: Any, value: Any, lengths: list[int]) -> torch.Tensor:
    """The function that the trainer registers with `transformers`."""
    from codev_train.learn.packing import block_attention

    layer = types.SimpleNamespace(num_key_value_groups=HEADS // KV_HEADS, is_causal=True)
    mask = torch.tensor(lengths, dtype=torch.int32)[None, None, None]
    return block_attention(layer, query, key, value, mask)[0]


def varlen(query: Any, key: Any, value: Any, lengths: list[int]) -> torch.Tensor:
    """`torch.nn.attention.varlen`, whose arguments differ between versions."""
    if not CUDA:
        raise Missing("torch.nn.attention.varlen needs a GPU")
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError as error:
        raise Missing(str(error)) from error
    known = inspect.signature(varlen_attn).parameters
    how: Row = {"window_size": (-1, 0)} if "window_size" in known else {"is_causal": True}
    if "enable_gqa" in known:
        how["enable_gqa"] = True
    else:
        key, value = (x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (key, value))
    ends = torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32, device=DEVICE)
    flat = [x[0].transpose(0, 1).contiguous() for x in (query, key, value)]
    return varlen_attn(*flat, ends, ends, max(lengths), max(lengths), **how)[None]


def flash(query: Any, key: Any, value: Any, lengths: list[int]) -> torch.Tensor:
    """flash-attn's kernel for rows of several sequences."""
    if not importlib.util.find_spec("flash_attn"):
        raise Missing("flash-attn is not installed")
    from codev_train.learn import packing

    return packing._flash(query, key, value, torch.tensor(lengths, dtype=torch.int32), 0.0, None)


KERNELS = {"SDPA each": sdpa_each, "varlen": varlen, "flash-attn": flash, "block_attention": ours}
