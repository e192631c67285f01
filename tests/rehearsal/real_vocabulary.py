"""The vocabulary of the Qwen-VL family: 151 643 byte pairs from the ranks that `dashscope` ships, and its markup."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("CODEV_DASHSCOPE") or ROOT / "build" / "dashscope").resolve()
RANKS = FOLDER / "dashscope" / "resources" / "qwen.tiktoken"
VOCABULARY = 151936
"""Rows of the embedding table; the last ones belong to no token."""
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>"),
    *("<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>"),
    *("<|image_pad|>", "<|video_pad|>"),
)
ORDINARY = (
    *("<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>"),
    *("<|repo_name|>", "<|file_sep|>"),
)
TEMPLATE = (
    "{% for m in messages %}{% if loop.first and m['role'] != 'system' %}"
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}"
    "{% if c['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ c['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def ranks() -> dict[bytes, int]:
    """Read the ranks, or skip the test."""
    if not RANKS.exists():
        pytest.skip(f"{RANKS} is missing: `make rehearsal` installs dashscope, or set CODEV_DASHSCOPE")
    lines = (line.split() for line in RANKS.read_bytes().splitlines() if line)
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def real_tokenizer(processor_class: str = "Qwen2_5_VLProcessor") -> PreTrainedTokenizerFast:
    """Make the fast tokenizer of the published checkpoints."""
    known = ranks()
    letters = _letters()

    def spelled(token: bytes) -> str:
        return "".join(letters[byte] for byte in token)

    merges: list[tuple[str, str]] = []
    for token in known:  # by rank
        cuts = ((token[:i], token[i:]) for i in range(1, len(token)))
        pairs = [(known[a], known[b], a, b) for a, b in cuts if a in known and b in known]
        merges += [(spelled(a), spelled(b)) for _, _, a, b in sorted(pairs)]
    tokenizer = Tokenizer(models.BPE({spelled(token): rank for token, rank in known.items()}, merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIAL])
    tokenizer.add_tokens([AddedToken(name, special=False, normalized=False) for name in ORDINARY])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        padding_side="left",
        chat_template=TEMPLATE,
        processor_class=processor_class,
    )


def _letters() -> list[str]:
    """Return the printable character that byte-level vocabularies write for each byte."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def greedy(text: bytes, known: dict[bytes, int]) -> list[int]:
    """Encode one word as byte pairs are defined: join the pair with the lowest rank until none is known."""
    parts = [bytes([byte]) for byte in text]
    while len(parts) > 1:
        best = min(range(len(parts) - 1), key=lambda i: known.get(parts[i] + parts[i + 1], VOCABULARY))
        if parts[best] + parts[best + 1] not in known:
            break
        parts[best : best + 2] = [parts[best] + parts[best + 1]]
    return [known[part] for part in parts]
