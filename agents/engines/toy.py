"""A toy Qwen3-VL from random weights: the real `transformers` architecture, with its own tokenizer and image processor.

So small a model can learn to look within minutes on a CPU because of its initial weights (`build_model`) and its
tokenizer (`build_tokenizer`), which makes one token of every number and of every fixed phrase of a dialect.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2VLImageProcessorPil,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)

from codev_agents.engines.options import ToyModelOptions

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}"
    "{% if c['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ c['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def build_tokenizer(
    texts: Iterable[str], words: Sequence[str], tags: Sequence[str], max_vocab: int = 4096
) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer whose tokens may span whole phrases.

    Text is split only around numbers of up to four digits and around `words` (with the space before them), so that each
    of these is one token, and every phrase between them that is frequent in `texts` becomes one token too.

    Args:
        texts: Training texts: what the environment says and what agents reply.
        words: Words that stay tokens of their own in any context.
        tags: Markup of the dialect, each one token.
        max_vocab: Upper limit of the vocabulary.

    Returns:
        A fast tokenizer with the chat template and the special tokens of the Qwen-VL family.
    """
    names = "|".join(sorted(words, key=len, reverse=True))
    split = rf" ?\b(?:{names})\b|\d{{1,4}}|(?:(?! ?\b(?:{names})\b)\D)+" if names else r"\d{1,4}|\D+"
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=max_vocab,
            special_tokens=list(SPECIAL_TOKENS),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        padding_side="left",
        chat_template=CHAT_TEMPLATE,
        processor_class="Qwen3VLProcessor",
    )
    # Dialect tags are ordinary text: only the model family's control tokens are "special".
    fast.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in tags])
    return fast


def build_image_processor(options: ToyModelOptions) -> Qwen2VLImageProcessorPil:
    """Make the image processor: bicubic to multiples of two patches, between `min_view` and `view` squared pixels."""
    return Qwen2VLImageProcessorPil(
        size={"shortest_edge": options.min_view**2, "longest_edge": options.view**2},
        patch_size=options.patch,
        merge_size=2,
    )


def build_model(
    options: ToyModelOptions, tokenizer: PreTrainedTokenizerFast, seed: int
) -> Qwen3VLForConditionalGeneration:
    """Make the model with the initial weights that let it learn grounding quickly.

    Wide initial weights (0.08) for the small width, a narrower patch embedding (0.03), and a two-dimensional
    sine-cosine table as the vision tower's learned positions, so that rows and columns can be read linearly from the
    start.
    """
    torch.manual_seed(seed)
    token_id = tokenizer.convert_tokens_to_ids
    head = options.hidden // options.heads
    rows = (head // 2 - max(1, head // 8)) // 2
    ids = {
        "image_token_id": token_id("<|image_pad|>"),
        "video_token_id": token_id("<|video_pad|>"),
        "vision_start_token_id": token_id("<|vision_start|>"),
        "vision_end_token_id": token_id("<|vision_end|>"),
    }
    std = 0.08
    side = options.view // options.patch
    config = Qwen3VLConfig(
        text_config={
            "vocab_size": math.ceil(len(tokenizer) / 16) * 16,
            "hidden_size": options.hidden,
            "intermediate_size": options.hidden * 3,
            "num_hidden_layers": options.layers,
            "num_attention_heads": options.heads,
            "num_key_value_heads": options.heads,
            "head_dim": head,
            "max_position_embeddings": 32768,
            "initializer_range": std,
            "pad_token_id": tokenizer.pad_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "bos_token_id": None,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [head // 2 - 2 * rows, rows, rows],
                "mrope_interleaved": True,
            },
        },
        vision_config={
            "depth": options.vision_layers,
            "hidden_size": options.vision_hidden,
            "intermediate_size": options.vision_hidden * 3,
            "num_heads": 4,
            "out_hidden_size": options.hidden,
            "patch_size": options.patch,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "num_position_embeddings": side**2,
            "deepstack_visual_indexes": [0],
            "initializer_range": std,
        },
        tie_word_embeddings=True,
        initializer_range=std,
        **ids,
    )
    model = Qwen3VLForConditionalGeneration(config)
    visual = model.model.visual
    torch.nn.init.normal_(visual.patch_embed.proj.weight, std=0.03)
    with torch.no_grad():
        visual.pos_embed.weight.copy_(_sine_cosine_table(side, options.vision_hidden))
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    return model


def _sine_cosine_table(side: int, width: int) -> torch.Tensor:
    """Return `[side * side, width]` positions: half of the channels encode the row, half the column."""
    quarter = width // 4
    frequency = math.pi / (2 * side) ** (torch.arange(quarter) / quarter)
    angle = torch.arange(side)[:, None] * frequency[None]
    line = torch.cat([angle.sin(), angle.cos()], dim=1)
    rows = line[:, None].expand(side, side, -1)
    columns = line[None].expand(side, side, -1)
    return torch.cat([rows, columns], dim=-1).reshape(side * side, width)
