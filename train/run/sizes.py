"""Sizes of published models and of GPUs, for the estimates of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelSize:
    """The parts of a model's architecture that cost memory and time.

    Attributes:
        name: The model.
        parameters: All of them, the vision tower and each table once.
        vision: Those of the vision tower.
        table: Those of the embedding table.
        tied: The head is that table.
        hidden: Width of the language model; `layers`, `heads`, `kv_heads`, `head_dim`, `intermediate` are its, too.
        layers: Layers.
        heads: Attention heads.
        kv_heads: Key-value heads.
        head_dim: Channels of a head.
        intermediate: Width of the feed-forward part.
        vocab: Entries of the vocabulary.
        vision_hidden: Width of the vision tower, with `vision_layers` and `vision_intermediate`.
        vision_layers: Its layers.
        vision_intermediate: Width of its feed-forward part.
        linear: Layers of linear attention in the language model.
        patch: Numbers of a patch of pixels.
        qk_norm: Queries and keys are normalised.
        positions: Longest sequence that it was made for, in tokens; 0 if that is not known.
    """

    name: str
    parameters: int
    vision: int
    table: int
    tied: bool
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    vision_hidden: int
    vision_layers: int
    vision_intermediate: int
    linear: int = 0
    patch: int = 1176
    qk_norm: bool = False
    positions: int = 0

    @property
    def language(self) -> int:
        """Parameters of the language model's layers: without tables and vision tower."""
        return self.parameters - self.vision - self.table * (1 if self.tied else 2)

    @property
    def tables(self) -> int:
        """Parameters of the embedding table and the head."""
        return self.parameters - self.vision - self.language

    @property
    def kv_values(self) -> int:
        """Numbers that one token adds to the key-value cache."""
        return 2 * self.layers * self.kv_heads * self.head_dim


def _size(
    name: str, counts: tuple[int, int], tied: bool, language: tuple[int, ...], vision: tuple[int, int, int]
) -> ModelSize:
    hidden, layers, heads, kv_heads, intermediate, vocab = language
    table, third = hidden * vocab, name.startswith("Qwen3")
    shape = (hidden, layers, heads, kv_heads, 128, intermediate, vocab)
    patch, positions = (1536, 262144) if third else (1176, 128000)
    return ModelSize(name, *counts, table, tied, *shape, *vision, patch=patch, qk_norm=third, positions=positions)


KNOWN_MODELS = {
    size.name: size
    for size in (
        _size("Qwen2.5-VL-3B", (3754622976, 668684288), True, (2048, 36, 16, 2, 11008, 151936), (1280, 32, 3420)),
        _size("Qwen2.5-VL-7B", (8292166656, 676550144), False, (3584, 28, 28, 4, 18944, 152064), (1280, 32, 3420)),
        _size("Qwen2.5-VL-32B", (33452718336, 688841984), False, (5120, 64, 40, 8, 27648, 152064), (1280, 32, 3456)),
        _size("Qwen3-VL-2B", (2127532032, 406957056), True, (2048, 28, 16, 8, 6144, 151936), (1024, 24, 4096)),
        _size("Qwen3-VL-4B", (4437815808, 415347712), True, (2560, 36, 32, 8, 9728, 151936), (1024, 24, 4096)),
        _size("Qwen3-VL-8B", (8767123696, 576388336), False, (4096, 36, 32, 8, 12288, 151936), (1152, 27, 4304)),
        _size("Qwen3-VL-32B", (33357390064, 595266800), False, (5120, 64, 64, 8, 25600, 151936), (1152, 27, 4304)),
    )
}
"""Published models, for machines that cannot read their files. Source: their config.json; parameters counted on what
`transformers` builds from it."""


@dataclass(frozen=True)
class Gpu:
    """A GPU: memory in bytes, dense bf16 operations per second, memory bandwidth in bytes per second."""

    memory: float
    flops: float
    bandwidth: float


GPUS = {
    "rtx4090": Gpu(24 * 2**30, 165e12, 1.01e12),
    "a100": Gpu(80e9, 312e12, 2.0e12),
    "h100": Gpu(80e9, 989e12, 3.35e12),
    "h200": Gpu(141e9, 989e12, 4.8e12),
}
"""Source: NVIDIA's data sheets, of the SXM modules for data centres; dense bf16 with sums in fp32."""


def known_model(name: str) -> ModelSize | None:
    """Return the sizes of a published model by its name on the hub or the name of its folder, if they are known."""
    base = name.rstrip("/").rpartition("/")[2].lower()
    return next((size for key, size in KNOWN_MODELS.items() if base.startswith(key.lower())), None)
