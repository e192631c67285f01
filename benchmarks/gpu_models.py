"""Qwen2.5-VL architectures from random weights, made-up trajectories, and operation counts for `gpu.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

IMAGE = 1824
"""Tokens of a 1600x900 image: 64 x 114 patches, four to a token."""
GRID = (64, 114)
PATCH = 3 * 2 * 14 * 14
TURNS = 4


@dataclass(frozen=True)
class Ids:
    """The part that a policy and its updater read of a `ChatProcessor`."""

    pad_id: int
    image_id: int
    vision_start_id: int
    vision_end_id: int

    @property
    def family(self) -> Any:
        """The model family."""
        from codev_agents.rollout.families import FAMILIES

        return next(family for family in FAMILIES if family.model_type == "qwen2_5_vl")

    @property
    def banned_ids(self) -> list[int]:
        """Ids that no policy samples."""
        return [self.image_id, self.vision_start_id, self.vision_end_id]


@dataclass(frozen=True)
class Size:
    """The widths and depths of a Qwen2.5-VL; `tiny` has the same parts, for machines without a GPU."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    vocab: int
    tied: bool
    vision: tuple[int, int, int, int]  # width, layers, heads, intermediate
    ids: Ids = Ids(151643, 151655, 151652, 151653)
    grid: tuple[int, int] = GRID


SIZES = {
    "tiny": Size(64, 2, 4, 2, 128, 512, False, (32, 2, 2, 64), Ids(500, 501, 502, 503), (8, 12)),
    "3b": Size(2048, 36, 16, 2, 11008, 151936, True, (1280, 32, 16, 3420)),
    "7b": Size(3584, 28, 28, 4, 18944, 152064, False, (1280, 32, 16, 3420)),
}
"""Source: config.json of the published models."""


def make_config(size: Size) -> Any:
    """Return the configuration that `transformers` reads."""
    from transformers import Qwen2_5_VLConfig

    width, depth, heads, intermediate = size.vision
    every = max(2, depth // 4)  # all other layers attend within windows
    head = size.hidden // size.heads
    return Qwen2_5_VLConfig(
        text_config={
            "vocab_size": size.vocab,
            "hidden_size": size.hidden,
            "intermediate_size": size.intermediate,
            "num_hidden_layers": size.layers,
            "num_attention_heads": size.heads,
            "num_key_value_heads": size.kv_heads,
            "max_position_embeddings": 128000,
            "rms_norm_eps": 1e-6,
            "tie_word_embeddings": size.tied,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e6,
                "mrope_section": [head // 8, head * 3 // 16, head * 3 // 16],
            },
            "pad_token_id": size.ids.pad_id,
            "eos_token_id": size.ids.pad_id,
            "bos_token_id": None,
        },
        vision_config={
            "depth": depth,
            "hidden_size": width,
            "intermediate_size": intermediate,
            "num_heads": heads,
            "out_hidden_size": size.hidden,
            "window_size": 112,
            "fullatt_block_indexes": list(range(every - 1, depth, every)),
        },
        image_token_id=size.ids.image_id,
        vision_start_token_id=size.ids.vision_start_id,
        vision_end_token_id=size.ids.vision_end_id,
        video_token_id=size.ids.vision_end_id + 3,
        tie_word_embeddings=size.tied,
        architectures=["Qwen2_5_VLForConditionalGeneration"],
    )


def make_model(size: Size, device: str) -> Any:
    """Make the model with random weights in fp32, on the device from the start."""
    from transformers import Qwen2_5_VLForConditionalGeneration

    torch.manual_seed(0)
    with torch.device(device):
        return Qwen2_5_VLForConditionalGeneration(make_config(size))


def narrow_base(model: Any, options: Any) -> None:
    """Turn weights that adapters are going to leave frozen to bf16 where `TrainOptions` read them so."""
    for parameter in model.parameters() if options.has_bf16_base else ():
        parameter.data = parameter.data.to(torch.bfloat16)


@dataclass(frozen=True, eq=False)
class Made:
    """A made-up trajectory: half of it images, half of the text sampled, in four turns."""

    ids: list[int]
    turns: list[int]
    images: list[Any]


def make_trajectory(size: Size, length: int, rng: np.random.Generator) -> Made:
    """Make a trajectory of so many tokens; images of 1600x900 pixels, or one smaller image if it is short."""
    from codev_agents.rollout.tokens import PixelBlock

    high, wide = size.grid
    each = high * wide // 4
    count = length // 2 // each
    grids = [size.grid] * count or [(high, length // 2 // (high // 2) * 2)]
    blocks = [
        PixelBlock(torch.from_numpy(rng.standard_normal((h * w, PATCH), dtype=np.float32)), (1, h, w), h * w // 4)
        for h, w in grids
    ]
    text = length - sum(block.tokens + 2 for block in blocks)
    special = min(size.ids.pad_id, *size.ids.banned_ids)
    words = rng.integers(10, special, text).tolist()
    ids, turns = [], []
    for turn in range(TURNS):
        for block in blocks[turn::TURNS]:
            ids += [size.ids.vision_start_id, *[size.ids.image_id] * block.tokens, size.ids.vision_end_id]
        part = words[turn * text // TURNS : (turn + 1) * text // TURNS]
        ids += part
        turns += [-1] * (len(ids) - len(turns) - len(part) // 2) + [turn] * (len(part) // 2)
    images = [block for turn in range(TURNS) for block in blocks[turn::TURNS]]
    return Made(ids, turns, images)


def make_samples(size: Size, length: int, count: int) -> list[Any]:
    """Make what the updater trains on; the sampler's log-probabilities are made up."""
    from codev_train.learn.sample import Sample

    rng = np.random.default_rng(0)
    samples = []
    for _ in range(count):
        made = make_trajectory(size, length, rng)
        advantages = torch.from_numpy(rng.standard_normal(TURNS))
        logprobs = [-float(np.log(size.vocab)) * (turn >= 0) for turn in made.turns]
        mask = [turn >= 0 for turn in made.turns]
        samples.append(Sample(made.ids, made.images, made.turns, logprobs, mask, advantages))
    return samples


def useful_flops(model: Any, sample: Any, lora: bool) -> float:
    """Operations that a step on one trajectory needs, without what gradient checkpointing computes again.

    2 per parameter and token forward, 4 backward, or 2 where the weights are frozen; the head for scored tokens only;
    causal attention 2 s q per token and layer forward, twice that backward. The vision tower is frozen: forward only,
    without its attention.
    """
    from codev_train.run.model_size import measure

    size, tokens = measure(model, ""), len(sample)
    passes = 2 if lora else 3
    attention = 2 * tokens * size.heads * size.head_dim * size.layers
    language = tokens * (2 * passes * size.language + 3 * attention)
    patches = sum(len(block.values) for block in sample.images)
    return language + 2 * passes * sample.size * size.table + 2 * patches * size.vision
