"""Models and images of the rehearsal: the real architecture and vocabulary, with two narrow layers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from real_vocabulary import VOCABULARY, real_tokenizer

from codev_agents.engines.policy import Policy
from codev_agents.engines.vision import speed_up
from codev_agents.rollout.families import FAMILIES
from codev_agents.rollout.tokens import ChatProcessor

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from gpu_models import Ids, Size, make_config  # noqa: E402

IDS = Ids(151643, 151655, 151652, 151653)
NARROW = Size(128, 2, 4, 2, 256, VOCABULARY, False, (64, 2, 2, 128), IDS)
"""Real vocabulary, narrow layers: for checks of tokens."""
NARROWEST = Size(32, 2, 2, 1, 64, VOCABULARY, False, (32, 2, 2, 64), IDS)
"""For runs of several processes."""


def make_policy(size: Size, tokenizer: Any = None) -> Policy:
    """Make a policy of the Qwen2.5-VL family from random weights, with the published image processor's limits."""
    from transformers import Qwen2_5_VLForConditionalGeneration, Qwen2VLImageProcessorPil

    torch.manual_seed(0)
    model = Qwen2_5_VLForConditionalGeneration(make_config(size))
    model.generation_config.eos_token_id = 151645
    speed_up(model)
    images = Qwen2VLImageProcessorPil(size={"shortest_edge": 3136, "longest_edge": 12845056})
    return Policy(model, ChatProcessor(tokenizer or real_tokenizer(), images, FAMILIES[0]))


def photograph(width: int, height: int, number: int = 0) -> Image.Image:
    """Return an image of this size with large and small shapes; each number gives another one."""
    colours = np.random.default_rng(number).integers(256, size=(36, 64, 3), dtype=np.uint8)
    return Image.fromarray(colours).resize((width, height), Image.Resampling.BICUBIC)


def recite(policy: Policy, text: str) -> list[int]:
    """Change the weights so that the model greedily writes this text after a prompt, whatever the prompt shows.

    All layers add nothing, so the last token alone decides: each token of the text may occur once only.

    Returns:
        The ids of the text.
    """
    ids = policy.processor.encode(text)
    last = policy.processor.prompt("", "", [])[-1]
    chain = [last, *ids, policy.processor.eos_id]
    assert len(set(chain)) == len(chain), "a token occurs twice"
    language = policy.model.model.language_model
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for layer in language.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        table, head = language.embed_tokens.weight, policy.model.lm_head.weight
        head.normal_(0, 0.01, generator=generator)
        for token, following in zip(chain, chain[1:], strict=False):
            table[token] = torch.nn.functional.normalize(torch.randn(table.shape[1], generator=generator), dim=0)
            head[following] = 2 * table[token]
    return ids
