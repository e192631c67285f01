"""Memory and time of a run, computed from the sizes of its model before anything is started. Pure functions.

Bytes and seconds are those of one process (one GPU). The assumptions are in `EstimateOptions` and beside
each function; buffers of libraries, fragmentation and the CUDA context (some GiB) are not counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from codev_train.run.options import TrainOptions

LOGITS_CHUNK = 1024
"""Sampled tokens whose logits exist at the same time, as in `logprobs.py`."""
_LOGITS_COPIES = 5  # fp32: logits, divided by the temperature, log-probabilities, product for the entropy, gradient
_PATCHES = 4  # vision patches that make one token


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

    @property
    def language(self) -> int:
        """Parameters of the language model's layers: without tables and vision tower."""
        return self.parameters - self.vision - self.table * (1 if self.tied else 2)

    @property
    def kv_values(self) -> int:
        """Numbers that one token adds to the key-value cache."""
        return 2 * self.layers * self.kv_heads * self.head_dim


def _size(
    name: str, counts: tuple[int, int], tied: bool, language: tuple[int, ...], vision: tuple[int, int, int]
) -> ModelSize:
    hidden, layers, heads, kv_heads, intermediate, vocab = language
    table = hidden * vocab
    return ModelSize(name, *counts, table, tied, hidden, layers, heads, kv_heads, 128, intermediate, vocab, *vision)


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
    "a100": Gpu(80e9, 312e12, 2.0e12),
    "h100": Gpu(80e9, 989e12, 3.35e12),
    "h200": Gpu(141e9, 989e12, 4.8e12),
}
"""Source: NVIDIA's data sheets of the SXM modules."""


def known_model(name: str) -> ModelSize | None:
    """Return the sizes of a published model by its name on the hub or the name of its folder, if they are known."""
    base = name.rstrip("/").rpartition("/")[2].lower()
    return next((size for key, size in KNOWN_MODELS.items() if base.startswith(key.lower())), None)


@dataclass(frozen=True)
class Memory:
    """Bytes of one process, by what they hold.

    Attributes:
        weights: In fp32.
        optimizer: Its moments.
        reference: The frozen copy for a KL term.
        gradients: In fp32.
        copies: Weights in the type of the computation, and those gathered from other shards.
        activations: Kept from one forward pass for the backward pass.
        logits: Of one chunk.
        engine: Weights and key-value cache of the engine.
    """

    weights: float
    optimizer: float
    reference: float
    gradients: float
    copies: float
    activations: float
    logits: float
    engine: float

    @property
    def always(self) -> float:
        """Memory held all the time."""
        return self.weights + self.optimizer + self.reference

    @property
    def update(self) -> float:
        """The most while the policy is updated; the engine sleeps."""
        return self.always + self.gradients + self.copies + self.activations + self.logits

    @property
    def rollouts(self) -> float:
        """The most while episodes are played."""
        return self.always + self.engine

    @property
    def peak(self) -> float:
        """The most at any time."""
        return max(self.update, self.rollouts)

    def parts(self) -> dict[str, float]:
        """Return the parts by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def memory(size: ModelSize, options: TrainOptions) -> Memory:
    """Estimate the memory of one process.

    With `estimate.shards` > 1, weights, gradients, moments and the reference are split over them, and two layers and
    the tables are gathered at a time. A KL reference costs nothing with LoRA. With `sequence_parallel` > 1, a process
    has its part of a pass's tokens in the language model and the head, and all of them in the vision tower.
    """
    shards, wide, tokens = options.estimate.shards, _width(options), tokens_per_pass(options)
    trained, whole = trained_parameters(size, options), float(size.parameters)
    layer = size.language / size.layers
    gathered = 2 * layer + (size.parameters - size.vision - size.language)
    copies = wide * gathered if shards > 1 else (wide * whole if wide < 4 else 0.0)
    return Memory(
        weights=4 * (whole + (trained if options.lora.rank else 0)) / shards,
        optimizer=optimizer_bytes(size, options) / shards,
        reference=4 * whole / shards if options.kl and not options.lora.rank else 0.0,
        gradients=4 * trained / shards,
        copies=copies,
        activations=activation_bytes(size, options, tokens),
        logits=4.0 * _LOGITS_COPIES * min(LOGITS_CHUNK, tokens / options.sequence_parallel) * size.vocab,
        engine=engine_bytes(size, options),
    )


def trained_parameters(size: ModelSize, options: TrainOptions) -> float:
    """Return how many parameters are trained; with LoRA those of the adapters of all linear layers."""
    rank = options.lora.rank
    if not rank:
        return float(size.parameters - (0 if options.train_vision else size.vision))
    q, kv = size.heads * size.head_dim, size.kv_heads * size.head_dim
    attention = 2 * (size.hidden + q) + 2 * (size.hidden + kv)
    return float(size.layers * rank * (attention + 3 * (size.hidden + size.intermediate)))


def optimizer_bytes(size: ModelSize, options: TrainOptions) -> float:
    """Return the bytes of the moments: two in fp32 for AdamW, two of 8 bits; Muon has one for the layers' matrices."""
    trained = trained_parameters(size, options)
    match options.optimizer.name:
        case "adamw8bit":
            return 2 * trained
        case "muon" if not options.lora.rank:
            tables = size.parameters - size.vision - size.language
            return 4 * (trained - tables) + 8 * tables
        case "muon":
            return 4 * trained
    return 8 * trained


def tokens_per_pass(options: TrainOptions) -> int:
    """Return the tokens of the largest forward pass: the budget or one trajectory, or a padded batch of the longest."""
    longest = longest_trajectory(options)
    if options.token_budget:
        return max(options.token_budget, longest)
    per_process = options.prompts // max(1, options.estimate.gpus) * options.group
    return min(options.micro_batch, max(1, -(-per_process // options.minibatches))) * longest


def passes_per_step(options: TrainOptions) -> int:
    """Return how many forward passes of a process one optimizer step accumulates, full ones of mean trajectories."""
    groups = max(1, options.estimate.gpus // options.sequence_parallel)
    episodes = options.prompts * options.group / groups / options.minibatches
    return math.ceil(episodes * mean_trajectory(options) / tokens_per_pass(options))


def longest_trajectory(options: TrainOptions) -> int:
    """Return the tokens of the longest trajectory: `max_length`, or twice the given mean if that is less."""
    return min(options.max_length, 2 * options.estimate.trajectory or options.max_length)


def mean_trajectory(options: TrainOptions) -> int:
    """Return the tokens of a mean trajectory: as given, else half of `max_length`."""
    return options.estimate.trajectory or options.max_length // 2


def sampled_tokens(options: TrainOptions) -> int:
    """Return the sampled tokens of a mean trajectory: as given, else half of those that are no image."""
    return options.estimate.response or int(mean_trajectory(options) * (1 - options.estimate.images) / 2)


def activation_bytes(size: ModelSize, options: TrainOptions, tokens: int) -> float:
    """Return the bytes that one forward pass keeps for the backward pass.

    Counted per token and layer: both norms' inputs and outputs (4 h), queries, keys and values, before and after the
    rotation, with the attention's output (3 q + 3 kv), and gate, up, activated gate and product (4 i); attention never
    keeps its matrix. In bf16 the norms also keep their inputs in fp32. With gradient checkpointing: the residual stream
    in fp32 of each layer, and all of one layer. A trained vision tower sees four patches for each image token.
    """
    q, kv = size.heads * size.head_dim, size.kv_heads * size.head_dim
    language = _layer_bytes(size.hidden, q, kv, size.intermediate, _width(options))
    kept = _kept(language, size.hidden, size.layers, options.gradient_checkpointing)
    total = tokens / options.sequence_parallel * kept
    if options.train_vision and not options.lora.rank:
        width = size.vision_hidden
        vision = _layer_bytes(width, width, width, size.vision_intermediate, _width(options))
        patches = _PATCHES * tokens * options.estimate.images
        total += patches * _kept(vision, width, size.vision_layers, options.gradient_checkpointing)
    return total


def _layer_bytes(hidden: int, q: int, kv: int, intermediate: int, wide: int) -> float:
    """Return the bytes of one token in one layer."""
    norms = 8 * hidden if wide < 4 else 0
    return wide * (4 * hidden + 3 * q + 3 * kv + 4 * intermediate) + norms


def _kept(layer: float, hidden: int, layers: int, checkpointing: bool) -> float:
    """Return the bytes of one token in all layers."""
    return 4 * hidden * layers + layer if checkpointing else layer * layers


def engine_bytes(size: ModelSize, options: TrainOptions) -> float:
    """Return the engine's part of the trainer's memory: vLLM its share, `hf` a key-value cache in fp32.

    If weights are sharded, `hf` gathers a whole copy of them.
    """
    if options.engine == "vllm":
        return options.vllm.memory * GPUS[options.estimate.gpu].memory
    if options.engine == "hf":
        gathered = 4.0 * size.parameters if options.estimate.shards > 1 else 0.0
        return gathered + 4.0 * size.kv_values * episodes_at_once(size, options) * longest_trajectory(options)
    return 0.0


def cache_tokens(size: ModelSize, options: TrainOptions) -> float:
    """Return the tokens for which vLLM's key-value cache on one GPU has room, beside its bf16 weights; 0 or more."""
    share = options.vllm.memory if options.engine == "vllm" else _SERVER_SHARE
    return max(0.0, share * GPUS[options.estimate.gpu].memory - 2 * size.parameters) / (2 * size.kv_values)


_SERVER_SHARE = 0.9  # of a GPU, that a vLLM server takes by default


def episodes_at_once(size: ModelSize, options: TrainOptions) -> int:
    """Return how many trajectories one GPU decodes together: at most `engine_batch`, as the cache has room."""
    episodes = -(-options.prompts * options.group // decoding_gpus(options))
    room = episodes
    if options.engine != "hf":
        room = int(cache_tokens(size, options) // mean_trajectory(options))
    return max(0, min(episodes, options.engine_batch, room))


def decoding_gpus(options: TrainOptions) -> int:
    """Return how many GPUs decode: the server's, or the trainer's."""
    estimate = options.estimate
    return max(1, estimate.servers if options.engine == "vllm-server" and estimate.servers else estimate.gpus)


@dataclass(frozen=True)
class Seconds:
    """Seconds of one update by phase; environments and judges are taken to overlap with decoding.

    Attributes:
        prefill: Reading prompts and tool outputs.
        decode: Sampling.
        update: Forward and backward passes.
        push: Weights to the engine.
    """

    prefill: float
    decode: float
    update: float
    push: float

    @property
    def total(self) -> float:
        """All phases."""
        return self.prefill + self.decode + self.update + self.push


def seconds(size: ModelSize, options: TrainOptions, gpu: Gpu) -> Seconds:
    """Estimate the time of one update on `estimate.gpus` GPUs of a kind.

    Computation reaches `estimate.mfu` of the peak, decoding `estimate.decode` of the memory bandwidth, the network
    `estimate.network`. A decoding step reads the engine's weights and the cache of all its trajectories, half
    grown. All trajectories are of mean length: stragglers come on top.
    """
    estimate, episodes = options.estimate, options.prompts * options.group
    speed = gpu.flops * estimate.mfu
    mean, sampled = mean_trajectory(options), sampled_tokens(options)
    images = mean * estimate.images
    active = size.language + size.table
    read = 2 * (mean - sampled) * size.language + 2 * _PATCHES * images * size.vision
    per_gpu = episodes / decoding_gpus(options)
    together = episodes_at_once(size, options)
    wide = 4 if options.engine == "hf" else 2
    traffic = wide * ((size.parameters - size.vision) + together * mean / 2 * size.kv_values)
    step = max(traffic / (gpu.bandwidth * estimate.decode), 2 * active * together / speed)
    waves = math.ceil(per_gpu / together) if together else math.inf
    return Seconds(
        prefill=per_gpu * read / speed,
        decode=waves * sampled * step,
        update=episodes / max(1, estimate.gpus) * update_flops(size, options) / speed,
        push=push_bytes(size, options) / (estimate.network * 1e9),
    )


def update_flops(size: ModelSize, options: TrainOptions) -> float:
    """Return the operations that training on one mean trajectory takes.

    2 per parameter and token forward, 4 backward, 2 more with gradient checkpointing; the head for sampled tokens only;
    attention 4 s q / 2 per token and layer forward, for it is causal. A frozen vision tower is run forward only,
    and all processes that share a row run it. Own log-probabilities and those of a reference are a forward pass each.
    """
    mean, sampled = mean_trajectory(options), sampled_tokens(options)
    attention = 2 * mean * size.heads * size.head_dim * size.layers
    forward = mean * (2 * size.language + attention) + 2 * sampled * size.table
    vision = 2 * _PATCHES * mean * options.estimate.images * size.vision * options.sequence_parallel
    passes = 4 if options.gradient_checkpointing else 3
    vision_passes = passes if options.train_vision and not options.lora.rank else 1
    several = options.epochs * options.minibatches > 1 and options.correction != "ratio"
    scoring = int(several) + int(bool(options.kl))
    return options.epochs * (passes * forward + vision_passes * vision) + scoring * (forward + vision)


def push_bytes(size: ModelSize, options: TrainOptions) -> float:
    """Return the bytes that cross the network for one push of weights to each engine.

    None with `hf`, or with `vllm` if every process holds all weights; else all in bf16: gathered from the other
    shards, or written for the server. Servers that do not share a machine read them once each, at the same time.
    """
    if options.engine == "hf" or (options.engine == "vllm" and options.estimate.shards == 1):
        return 0.0
    return 2.0 * size.parameters


def checkpoint_bytes(size: ModelSize, options: TrainOptions) -> float:
    """Return the disk space of a run: `keep` checkpoints and one being written, and the policy at the end."""
    one = 4.0 * size.parameters + optimizer_bytes(size, options)
    return (options.keep + 1) * one + 4.0 * size.parameters


def _width(options: TrainOptions) -> int:
    """Return the bytes of a number in the computation."""
    return 2 if options.precision == "bf16" else 4
