"""Toy models of the families, of random weights: the real architectures at toy width."""

from __future__ import annotations

import json
from typing import Any

import torch
from transformers import (
    GotOcr2ImageProcessorPil,
    InternVLConfig,
    InternVLForConditionalGeneration,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLImageProcessorPil,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5Tokenizer,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)

from codev_agents.engines.policy import Policy
from codev_agents.engines.toy import SPECIAL_TOKENS, build_tokenizer
from codev_agents.engines.vision import speed_up
from codev_agents.rollout.families import FAMILIES, family_of
from codev_agents.rollout.tokens import ChatProcessor

PAD, IMAGE, START, END = 0, 9, 10, 11
NAMES = [family.model_type for family in FAMILIES]

# As shipped with InternVL3-hf, without its video branch.
INTERNVL_TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n'}}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for content in message['content'] %}{% if content['type'] == 'image' %}{{ '<IMG_CONTEXT>\n' }}"
    "{% elif content['type'] == 'text' %}{{ content['text'] }}{% endif %}{% endfor %}{% endif %}{{'<|im_end|>\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{'<|im_start|>assistant\n' }}{% endif %}"
)
TEXTS = ["You look at images.", "What is there? Look closely at both images.", "Here is the crop.", "a line of text"]


def language(vocabulary: int, width: int, **more: Any) -> dict[str, Any]:
    """Options of a language model with four heads, fewer of keys, and positions in time, height and width."""
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [width // 16, width // 32, width // 32]}
    return {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": 48,
        "rope_parameters": rope,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "initializer_range": 0.2,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    } | more


def qwen25(window: int = 16, vocabulary: int = 32, width: int = 32, **ids: int) -> Any:
    """A Qwen2.5-VL with windows in its vision tower."""
    torch.manual_seed(1)
    config = Qwen2_5_VLConfig(
        text_config=language(vocabulary, width),
        vision_config={
            "depth": 2,
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_heads": 2,
            "out_hidden_size": width,
            "patch_size": 4,
            "window_size": window,
            "fullatt_block_indexes": [1],
            "initializer_range": 0.2,
        },
        tie_word_embeddings=False,
        initializer_range=0.2,
        **({"image_token_id": IMAGE, "vision_start_token_id": START, "vision_end_token_id": END} | ids),
    )
    return Qwen2_5_VLForConditionalGeneration(config)


def _tower(width: int, **more: Any) -> dict[str, Any]:
    return {
        "depth": 2,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_heads": 2,
        "out_hidden_size": width,
        "patch_size": 4,
        "num_position_embeddings": 64,
        "initializer_range": 0.2,
    } | more


def qwen3(vocabulary: int, width: int = 32, **ids: int) -> Any:
    """A Qwen3-VL with one DeepStack layer."""
    text = language(vocabulary, width, head_dim=width // 4)
    text["rope_parameters"]["mrope_interleaved"] = True
    config = Qwen3VLConfig(
        text_config=text, vision_config=_tower(width, deepstack_visual_indexes=[0]), tie_word_embeddings=True, **ids
    )
    return Qwen3VLForConditionalGeneration(config)


def qwen35(vocabulary: int, width: int = 32, **ids: int) -> Any:
    """A Qwen3.5 with layers of linear and of full attention."""
    text = language(
        vocabulary,
        width,
        head_dim=width // 2,
        num_hidden_layers=3,
        layer_types=["linear_attention", "full_attention", "linear_attention"],
        linear_key_head_dim=width,
        linear_value_head_dim=width,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
    )
    text["rope_parameters"] |= {"mrope_interleaved": True, "partial_rotary_factor": 0.5}
    config = Qwen3_5Config(text_config=text, vision_config=_tower(width), tie_word_embeddings=False, **ids)
    return Qwen3_5ForConditionalGeneration(config)


def internvl(vocabulary: int, image_token_id: int, width: int = 32, text: str = "qwen3", **_: int) -> Any:
    """An InternVL whose tiles are 16 x 16 pixels and four tokens."""
    config = InternVLConfig(
        text_config=language(
            vocabulary, width, model_type=text, head_dim=width // 4, rope_parameters={"rope_theta": 1e4}
        ),
        vision_config={
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 24,
            "image_size": [16, 16],
            "patch_size": [4, 4],
            "initializer_range": 0.2,
        },
        image_token_id=image_token_id,
        image_seq_length=4,
        tie_word_embeddings=False,
    )
    return InternVLForConditionalGeneration(config)


def _tokenizer(family: str) -> Any:
    tokenizer = build_tokenizer(TEXTS, [], [], 400)
    if family == "internvl":
        tokenizer.add_tokens(["<img>", "</img>", "<IMG_CONTEXT>"], special_tokens=True)
        tokenizer.chat_template = INTERNVL_TEMPLATE
    if family == "qwen3_5":  # `transformers` loads this class, with its own rules for splitting text.
        known = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
        merges = [tuple(pair) for pair in known["merges"]]
        made = Qwen3_5Tokenizer(known["vocab"], merges, eos_token="<|im_end|>", chat_template=tokenizer.chat_template)
        made.add_tokens(list(SPECIAL_TOKENS), special_tokens=True)
        return made
    return tokenizer


def toy_policy(family: str, **options: Any) -> Policy:
    """Make a policy of a family; its weights are wide, so that a wrong position or mask shows."""
    tokenizer = _tokenizer(family)
    vocabulary = len(tokenizer)
    token_id = tokenizer.convert_tokens_to_ids
    row = next(f for f in FAMILIES if f.model_type == family)
    ids = {"image_token_id": token_id(row.image_token), "video_token_id": token_id("<|video_pad|>")}
    ids |= {"vision_start_token_id": token_id("<|vision_start|>"), "vision_end_token_id": token_id("<|vision_end|>")}
    torch.manual_seed(2)
    make = {"qwen2_5_vl": qwen25, "qwen3_vl": qwen3, "qwen3_5": qwen35, "internvl": internvl}[family]
    model = make(vocabulary=vocabulary, **ids, **options)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim >= 2 and "conv1d" not in name:
                torch.nn.init.normal_(parameter, std=0.15)
    images: Any = Qwen2VLImageProcessorPil(
        size={"shortest_edge": 8**2, "longest_edge": 48**2}, patch_size=4, merge_size=2
    )
    if family == "internvl":
        images = GotOcr2ImageProcessorPil(size={"height": 16, "width": 16}, max_patches=4)
    speed_up(model)
    return Policy(model.eval(), ChatProcessor(tokenizer, images, family_of(model.config)))
