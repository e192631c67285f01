"""Bytes that a process holds, by what they hold."""

from __future__ import annotations

from dataclasses import dataclass, fields

from codev_train.run.loads import (
    PATCHES,
    decoding_gpus,
    longest_trajectory,
    mean_trajectory,
    sampled_tokens,
    tokens_per_pass,
)
from codev_train.run.options import TrainOptions
from codev_train.run.sizes import GPUS, ModelSize

LOGITS_CHUNK, LOGITS = 1024, 2**25
"""Most sampled tokens whose logits exist at the same time, and most of these logits, as in `logprobs.py`."""
_LOGITS_COPIES = 5  # fp32, for the entropy: logits, log-probabilities, probabilities, masked log-probabilities, product
_SERVER_SHARE = 0.9  # of a GPU, that a vLLM server takes by default


@dataclass(frozen=True)
class Memory:
    """Bytes of one process, by what they hold.

    Attributes:
        weights: In fp32; in bf16 those that adapters leave frozen in a computation in bf16.
        optimizer: Its moments.
        reference: The frozen copy for a KL term.
        gradients: In fp32.
        copies: Weights in the type of the computation, and those gathered from other shards.
        activations: Pixels, and what one forward pass keeps for the backward pass.
        logits: Of one chunk.
        layer: Of the layer whose backward pass runs: what is computed again for it, and gradients of its activations.
        step: Gradients of the tables before they are added up, or temporaries of the optimizer's step.
        engine: Weights and key-value cache of the engine.
    """

    weights: float
    optimizer: float
    reference: float
    gradients: float
    copies: float
    activations: float
    logits: float
    layer: float
    step: float
    engine: float

    @property
    def always(self) -> float:
        """Memory held all the time."""
        return self.weights + self.optimizer + self.reference

    @property
    def update(self) -> float:
        """The most while the policy is updated; the engine sleeps.

        Of several forward passes, the later ones find the gradients of the first. `logits` are gone when a layer's
        backward pass runs, and activations when the last one has run.
        """
        within = self.copies + self.activations + max(self.logits, self.layer)
        return self.always + self.gradients + max(within, self.step)

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


def host_bytes(size: ModelSize, options: TrainOptions) -> float:
    """Return the bytes that a process with `sharding fsdp2-offload` keeps in CPU memory; 0 with any other."""
    held = memory(size, options, offloaded=True)
    return held.always + held.gradients if options.offloads else 0.0


def pixel_bytes(size: ModelSize, options: TrainOptions) -> float:
    """Return the most bytes of pixels that a process keeps in CPU memory: an upper bound.

    All episodes of an update are kept until it is made, with `staleness` those of the updates ahead as well. Pixels are
    in fp32; each trajectory is counted with all of its images, though rollouts of a task share those that are equal.
    """
    episodes = options.prompts * options.group * (1 + options.staleness)
    return 4.0 * _pixels(size, options) * episodes / max(1, options.estimate.gpus)


def _pixels(size: ModelSize, options: TrainOptions) -> float:
    """Return how many numbers the images of a trajectory are."""
    return size.patch * PATCHES * mean_trajectory(options) * options.estimate.images


def memory(size: ModelSize, options: TrainOptions, offloaded: bool = False) -> Memory:
    """Estimate the memory of one process; shards in CPU memory count if they are `offloaded`.

    With `estimate.shards` > 1, weights, gradients, moments and the reference are split over them, and two layers and
    the tables are gathered at a time. A KL reference costs nothing with LoRA. With `sequence_parallel` > 1, a process
    has its part of a pass's tokens in the language model and the head, and all of them in the vision tower.
    """
    shards, tokens = options.estimate.shards, tokens_per_pass(options)
    trained, whole = trained_parameters(size, options), float(size.parameters)
    base = (2 if options.has_bf16_base else 4) * whole
    scored = tokens * sampled_tokens(options) // max(1, mean_trajectory(options)) / options.sequence_parallel
    activations, layer = activation_bytes(size, options, tokens)
    here = 0 if options.offloads and not offloaded else 1 / shards
    return Memory(
        weights=here * (base + (4 * trained if options.lora.rank else 0)),
        optimizer=here * optimizer_bytes(size, options),
        reference=here * 4 * whole if options.kl and not options.lora.rank else 0.0,
        gradients=here * 4 * trained,
        copies=copied_bytes(size, options),
        activations=activations,
        logits=4.0 * _LOGITS_COPIES * min(LOGITS_CHUNK, LOGITS // size.vocab, scored) * size.vocab,
        layer=layer,
        step=step_bytes(size, options),
        engine=engine_bytes(size, options),
    )


def copied_bytes(size: ModelSize, options: TrainOptions) -> float:
    """Return the bytes of weights in the type of the computation, or of those gathered from other shards.

    Autocast keeps a bf16 copy of every trained matrix until the pass ends: with LoRA of the adapters alone, beside
    which weights are in bf16. The embedding table has none, unless it is the head.
    """
    wide, layer = _width(options), size.language / size.layers
    if options.estimate.shards > 1:
        return wide * (2 * layer + size.tables)
    if wide == 4:
        return 0.0
    if options.has_bf16_base:
        return wide * trained_parameters(size, options)
    return wide * (size.language + size.table + (size.vision if _trains_vision(options) else 0))


def step_bytes(size: ModelSize, options: TrainOptions) -> float:
    """Return the bytes that come and go when activations are gone.

    A new gradient of the embedding table before it is added to the one of earlier passes; if the head is that table,
    also the head's and the sum of both. Shards: the tables' gradients, a copy in fp32 to add up over processes, and the
    own part of the sum. Then the optimizer's step: AdamW of PyTorch makes temporaries of all weights at once, except
    where it is fused, on GPUs: an upper bound there. With offload it runs on the CPU, weight by weight.
    """
    shards, trained = options.estimate.shards, trained_parameters(size, options)
    if options.lora.rank:
        tables, adamw = 0.0, trained if options.optimizer.name == "adamw" else 0.0
    else:
        adamw = {"adamw": trained, "muon": float(size.tables)}.get(options.optimizer.name, 0.0)
        alone = 4.0 * size.table * (3 if size.tied else 1)
        tables = size.tables * (_width(options) + 4 + 4 / shards) if shards > 1 else alone
    return max(tables, 0.0 if options.offloads else 4 * adamw / shards)


def _trains_vision(options: TrainOptions) -> bool:
    return options.train_vision and not options.lora.rank


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
            return 4 * (trained - size.tables) + 8 * size.tables
        case "muon":
            return 4 * trained
    return 8 * trained


def activation_bytes(size: ModelSize, options: TrainOptions, tokens: int) -> tuple[float, float]:
    """Return the bytes that one forward pass keeps for the backward pass, and the most that this adds in a layer.

    Counted per token and layer, i being the width of the feed-forward part: gate, up, activated gate and product
    (4 i); of the norms see `_norms`; of attention see `_attention`. Where the vision tower is trained, a layer of it
    keeps for each patch 4 i and six times its width for attention; image tokens have four patches each. Pixels are
    in fp32, beside them the copies that a trained tower computes with.

    With gradient checkpointing a forward pass keeps the inputs of the layers, of the last `kept_layers` all that is
    counted above, and the backward pass computes one of the other layers at a time again. In any case the backward
    pass adds two gradients of the width i.
    """
    wide, sharded, trained = _width(options), options.estimate.shards > 1, not options.lora.rank
    # A bf16 product added to an fp32 embedding is in fp32.
    stream = wide if sharded or options.has_bf16_base else 4
    q, patches = size.heads * size.head_dim, PATCHES * tokens * options.estimate.images
    norms = _norms(size.hidden, wide, stream, 1 if wide == 4 or sharded else 5 / 2, trained)
    language = norms + _attention(size, options, tokens) + wide * 4 * size.intermediate
    if size.qk_norm:
        language += (4 + wide) * (q + size.kv_heads * size.head_dim)
    vision: float = 0
    if _trains_vision(options):
        width = size.vision_hidden
        vision = _norms(width, wide, wide, 1 if wide == 4 or sharded else 3 / 2, trained)
        vision += wide * (6 * width + 4 * size.vision_intermediate)
    pixels = patches * size.patch * (4 + (wide % 4 if vision else 0))
    own = tokens / options.sequence_parallel
    backward = 2 * wide * size.intermediate, 2 * wide * size.vision_intermediate if vision else 0
    if not options.gradient_checkpointing:
        kept = own * size.layers * language + patches * size.vision_layers * vision
        return pixels + kept, max(own * backward[0], patches * backward[1])
    kept = min(options.kept_layers, size.layers)
    inputs = own * ((size.layers - kept) * stream * size.hidden + kept * language)
    inputs += patches * size.vision_layers * wide * size.vision_hidden if vision else 0
    return pixels + inputs, max(own * (language + backward[0]), patches * (vision + backward[1]))


def _norms(hidden: int, wide: int, stream: int, uses: float, trained: bool) -> float:
    """Return the bytes that the two norms of a layer keep of one token.

    Their inputs in fp32; normalised, for the gradient of their weights; and their outputs, of which each layer that
    uses them gets a bf16 copy from autocast. With LoRA, whose inputs are in bf16 at once, that is an upper bound.
    """
    return 2 * hidden * (4 + (stream if trained else 0) + wide * uses)


def _attention(size: ModelSize, options: TrainOptions, tokens: int) -> float:
    """Return the bytes that attention keeps of one token in a layer; it never keeps its matrix.

    Packed: queries and keys after the rotation, values, and the output, by trajectory and of the row. Padded: keys and
    values are repeated for all heads, and there is a mask of the row's length for each token.
    """
    q, kv, longest = size.heads * size.head_dim, size.kv_heads * size.head_dim, longest_trajectory(options)
    if options.token_budget:
        return _width(options) * (3 * q + 2 * kv)
    if tokens <= longest:  # one row, without padding
        return _width(options) * (2 * q + 2 * kv)
    return _width(options) * (4 * q + longest)


def engine_bytes(size: ModelSize, options: TrainOptions) -> float:
    """Return the engine's part of the trainer's memory: vLLM its share, `hf` a key-value cache in the weights' type.

    If weights are sharded, `hf` gathers a whole copy of them in fp32.
    """
    if options.engine == "vllm":
        return options.vllm.memory * GPUS[options.estimate.gpu].memory
    if options.engine == "hf":
        gathered = 4.0 * size.parameters if options.estimate.shards > 1 else 0.0
        cached = size.kv_values * episodes_at_once(size, options) * longest_trajectory(options)
        return gathered + float(sampling_width(options)) * cached
    return 0.0


def cache_tokens(size: ModelSize, options: TrainOptions) -> float:
    """Return the tokens for which vLLM's key-value cache on one GPU has room, beside its bf16 weights; 0 or more."""
    share = options.vllm.memory if options.engine == "vllm" else _SERVER_SHARE
    return max(0.0, share * GPUS[options.estimate.gpu].memory - 2 * size.parameters) / (2 * size.kv_values)


def episodes_at_once(size: ModelSize, options: TrainOptions) -> int:
    """Return how many trajectories one GPU decodes together: at most `engine_batch`, as the cache has room."""
    episodes = -(-options.prompts * options.group // decoding_gpus(options))
    room = episodes
    if options.engine != "hf":
        room = int(cache_tokens(size, options) // mean_trajectory(options))
    return max(0, min(episodes, options.engine_batch, room))


def checkpoint_bytes(size: ModelSize, options: TrainOptions) -> float:
    """Return the disk space of a run: `keep` checkpoints and one being written, and the policy at the end.

    All of it is in fp32, moments of 8 bits as well; adapters are beside the policy that has them merged.
    """
    trained = trained_parameters(size, options)
    policy = 4.0 * (size.parameters + (trained if options.lora.rank else 0))
    moments = 8 * trained if options.optimizer.name == "adamw8bit" else optimizer_bytes(size, options)
    return (options.keep + 1) * (policy + moments) + policy


def sampling_width(options: TrainOptions) -> int:
    """Return the bytes of a number in the engine; `hf` gathers sharded weights in fp32."""
    if options.engine != "hf":
        return 2
    return 2 if options.has_bf16_base and options.estimate.shards == 1 else 4


def _width(options: TrainOptions) -> int:
    """Return the bytes of a number in the computation."""
    return 2 if options.precision == "bf16" else 4
