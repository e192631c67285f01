"""Toy models of the families, of random weights: the real architectures at toy width."""

from __future__ import annotations

import torch
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

PAD, IMAGE, START, END = 0, 9, 10, 11


def qwen25(window: int = 16) -> torch.nn.Module:
    """A Qwen2.5-VL with windows in its vision tower and fewer heads of keys than of queries."""
    torch.manual_seed(1)
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": 32,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "initializer_range": 0.2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]},
        },
        vision_config={
            "depth": 2,
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_heads": 2,
            "out_hidden_size": 32,
            "patch_size": 4,
            "window_size": window,
            "fullatt_block_indexes": [1],
            "initializer_range": 0.2,
        },
        image_token_id=IMAGE,
        vision_start_token_id=START,
        vision_end_token_id=END,
        tie_word_embeddings=False,
        initializer_range=0.2,
    )
    return Qwen2_5_VLForConditionalGeneration(config)
