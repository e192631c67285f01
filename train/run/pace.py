"""Seconds that an update takes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from codev_train.run.footprint import episodes_at_once, sampling_width
from codev_train.run.loads import PATCHES, decoding_gpus, learned, looks, mean_trajectory, sampled_tokens
from codev_train.run.options import TrainOptions
from codev_train.run.sizes import Gpu, ModelSize


@dataclass(frozen=True)
class Seconds:
    """Seconds of one update by phase; environments and judges are taken to overlap with decoding.

    Attributes:
        prefill: Reading prompts and tool outputs, and the prompts of tasks whose answers are guessed.
        decode: Sampling.
        update: Forward and backward passes.
        push: Weights to the engine.
        looks: Scoring of looks for self-imitation.
    """

    prefill: float
    decode: float
    update: float
    push: float
    looks: float = 0.0

    @property
    def total(self) -> float:
        """All phases."""
        return self.prefill + self.decode + self.update + self.push + self.looks


def seconds(size: ModelSize, options: TrainOptions, gpu: Gpu) -> Seconds:
    """Estimate the time of one update on `estimate.gpus` GPUs of a kind.

    Computation reaches `estimate.mfu` of the peak, decoding `estimate.decode` of the memory bandwidth, the network
    `estimate.network`. A decoding step reads the engine's weights and the cache of all its trajectories, half
    grown. All trajectories are of mean length: stragglers come on top. A guess is taken to read as much as an episode,
    which is more than its prompt; the few tokens that it samples are not counted. A look that is scored
    takes one pass, with another place in what it showed.
    """
    estimate, episodes = options.estimate, options.prompts * options.group
    speed = gpu.flops * estimate.mfu
    mean, sampled = mean_trajectory(options), sampled_tokens(options)
    images = mean * estimate.images
    active = size.language + size.table
    read = 2 * (mean - sampled) * size.language + 2 * PATCHES * images * size.vision
    per_gpu = episodes / decoding_gpus(options)
    guessed = options.prompts * options.candidates / decoding_gpus(options) if options.candidates > 1 else 0.0
    together = episodes_at_once(size, options)
    wide = sampling_width(options)
    traffic = wide * ((size.parameters - size.vision) + together * mean / 2 * size.kv_values)
    step = max(traffic / (gpu.bandwidth * estimate.decode), 2 * active * together / speed)
    waves = math.ceil(per_gpu / together) if together else math.inf
    scores = bool(options.imitation.answers)
    return Seconds(
        prefill=(per_gpu + guessed) * read / speed,
        decode=waves * sampled * step,
        update=learned(options) / max(1, estimate.gpus) * update_flops(size, options) / speed,
        push=push_bytes(size, options) / (estimate.network * 1e9),
        looks=looks(options) / max(1, estimate.gpus) * look_flops(size, options) / speed if scores else 0.0,
    )


def update_flops(size: ModelSize, options: TrainOptions) -> float:
    """Return the operations that training on one mean trajectory takes.

    2 per parameter and token forward, 4 backward (2 with LoRA), 2 more with gradient checkpointing, except in layers
    that keep their activations; the head for sampled tokens only; attention 4 s q / 2 per token and layer forward, for
    it is causal. A frozen vision tower is run forward only, by all processes that share a row. Own log-probabilities
    and a reference's are a forward pass each.
    """
    weights = 2 * (mean_trajectory(options) * size.language + sampled_tokens(options) * size.table)
    attention, vision = _attention_flops(size, options), _vision_flops(size, options)
    again = int(options.gradient_checkpointing)
    passes = 3 + again * (1 - min(options.kept_layers, size.layers) / size.layers)
    forward, vision_passes = weights + attention, 3 + again if options.train_vision and not options.lora.rank else 1
    scoring = int(options.epochs * options.minibatches > 1 and options.correction != "ratio") + int(options.kl > 0)
    spared = weights if options.lora.rank else 0
    return options.epochs * (passes * forward - spared + vision_passes * vision) + scoring * (forward + vision)


def look_flops(size: ModelSize, options: TrainOptions) -> float:
    """Return the operations of one forward pass over a mean trajectory, without the head: an answer has few tokens."""
    layers = 2 * mean_trajectory(options) * size.language
    return layers + _attention_flops(size, options) + _vision_flops(size, options)


def _attention_flops(size: ModelSize, options: TrainOptions) -> float:
    return 2 * mean_trajectory(options) ** 2 * size.heads * size.head_dim * size.layers


def _vision_flops(size: ModelSize, options: TrainOptions) -> float:
    images = mean_trajectory(options) * options.estimate.images
    return 2 * PATCHES * images * size.vision * options.sequence_parallel


def push_bytes(size: ModelSize, options: TrainOptions) -> float:
    """Return the bytes that cross the network for one push of weights to each engine.

    None with `hf`, or with `vllm` if every process holds all weights; else all in bf16: gathered from the other
    shards, or written for the server. Servers that do not share a machine read them once each, at the same time.
    """
    if options.engine == "hf" or (options.engine == "vllm" and options.estimate.shards == 1):
        return 0.0
    return 2.0 * size.parameters
