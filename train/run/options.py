"""Every option of `codev train` and `codev sft`, each with its meaning; presets are YAML files of the same names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from codev_agents.engines.options import LoraOptions, ToyModelOptions, VllmOptions
from codev_train.run.health import HealthOptions


@dataclass(frozen=True)
class EnvOptions:
    """Which environment the policy acts in."""

    id: str = "codev_env:CodeV-VStar-v0"
    """Gymnasium id, with its module in front."""
    data: str = "synthetic"
    """"synthetic", "hub" (downloads the data set of `id`), or the path of a data set."""
    scenes: str = "vstar"
    """Preset of the generated scenes; empty takes what is usual for the id."""
    scene: dict[str, int | float] = field(default_factory=dict)
    """Options of the generated scenes that differ from the preset's, for example `cue_p 0.5`."""
    wrap: tuple[str, ...] = ()
    """Transforms and corruptions of the tasks: a suite, names, or JSON such as `{"transforms": "orientation", "mode":
    "one"}`; see docs/robustness.md. `crop` tells tasks that they need one."""
    dialect: str = "codev"
    """How the model family talks."""
    judge: str = "auto"
    """Who scores tool calls: a name, `URL#NAME` of a vision-language model, `MODULE:ATTRIBUTE`, or options as JSON; see
    docs/judges.md."""
    max_turns: int = 6
    """Turns of the model before an episode is cut off."""


@dataclass(frozen=True)
class OptimizerOptions:
    """The optimizer and its schedule."""

    name: Literal["adamw", "muon", "adamw8bit"] = "adamw"
    """"muon" uses Muon for the weight matrices of the layers and AdamW for the rest; "adamw8bit" keeps AdamW's moments
    in 8 bits (needs torchao)."""
    lr: float = 1e-6
    """Peak learning rate."""
    warmup: int = 0
    """Steps of linear warm-up."""
    decay: float = 0.0
    """Share of the steps, at the end, over which the learning rate falls linearly to `final`."""
    final: float = 0.0
    """Learning rate at the end, as a share of the peak."""
    beta2: float = 0.99
    """Second-moment decay of AdamW."""
    weight_decay: float = 0.0
    """Weight decay on matrices."""
    grad_clip: float = 1.0
    """Largest gradient norm."""


@dataclass(frozen=True)
class StageOptions:
    """One stage of the cold start: how long, and how many examples of each kind per step."""

    steps: int = 0
    """Optimizer steps; 0 skips the stage."""
    captions: int = 0
    """Scenes described object by object with their places (generated scenes only)."""
    reads: int = 0
    """Crops described: what is on it."""
    experts: int = 16
    """Episodes of the oracle, which crops the target and then answers."""
    decorative: int = 0
    """Episodes of an agent that crops a fixed place and answers rightly all the same."""
    scene: dict[str, int | float] = field(default_factory=dict)
    """Options of the generated scenes for all but the decorative episodes, for example `cue_p 0`."""
    objects: tuple[int, int] = (0, 0)
    """Least and greatest number of objects in those scenes; (0, 0) keeps the preset's."""
    optimizer: OptimizerOptions = field(default_factory=lambda: OptimizerOptions(lr=1e-5))
    """Optimizer of this stage."""


@dataclass(frozen=True)
class SFTOptions:
    """Cold start: from random weights or a model folder to a policy that uses the tool at all."""

    name: str = "start"
    """Name of the run."""
    out: str = "runs"
    """Folder of all runs; this one writes `out/name`."""
    seed: int = 0
    """Seed of weights, data and order."""
    model: str = ""
    """Folder or hub name to start from; empty makes a toy model from random weights."""
    toy: ToyModelOptions = field(default_factory=ToyModelOptions)
    """Size of the toy model."""
    env: EnvOptions = field(default_factory=EnvOptions)
    """The environment that experts act in."""
    trajectories: str = ""
    """Folder of recorded trajectories that experts' episodes are taken from, instead of the oracle's."""
    snap: int = 0
    """Grid, in pixels, that experts align their crops to; 0 for none."""
    pool: int = 512
    """Distinct examples of each kind; each is seen several times."""
    ground: StageOptions = field(default_factory=StageOptions)
    """First stage: see, name, place, read; honest experts only."""
    imitate: StageOptions = field(default_factory=StageOptions)
    """Second stage: imitate episodes, honest and decorative ones."""
    number_weight: float = 1.0
    """Weight of the loss on numbers (coordinates, digits) relative to other tokens."""
    micro_batch: int = 64
    """Most sequences per forward pass."""
    threads: int = 0
    """CPU threads; 0 leaves the choice to torch."""


@dataclass(frozen=True)
class HeldOutOptions:
    """Evaluation before and after training."""

    episodes: int = 128
    """Held-out episodes; the same ones before and after."""
    split: Literal["val", "test"] = "test"
    """Which split they come from."""
    id: str = ""
    """Environment they are played in, where it is another than `env.id`: training data without a held-out part is
    evaluated on a benchmark."""
    data: str = ""
    """Its data; empty takes `env.data`, or "synthetic" where `id` is given."""
    scenes: str = ""
    """Its preset of generated scenes, without `env.scene`; empty takes those of `env`, or what is usual for `id` where
    that is given."""
    temperature: float = 0.0
    """Sampling temperature; 0 is greedy."""


@dataclass(frozen=True)
class EstimateOptions:
    """What `--dry-run` takes machines and episodes to be like; training reads none of these."""

    gpus: int = 0
    """GPUs that train, one process each; 0 is the CPU of this machine."""
    gpu: Literal["a100", "h100", "h200"] = "h200"
    """Which GPU; see `estimate.GPUS`."""
    shards: int = 1
    """Processes that share one copy of weights, gradients and moments (FSDP, ZeRO-3)."""
    servers: int = 0
    """GPUs of the `vllm-server`; 0 is as many as train."""
    trajectory: int = 0
    """Tokens of a mean trajectory; the longest is taken to be twice as long. 0 is half of `max_length`."""
    response: int = 0
    """Sampled tokens of a mean trajectory; 0 is half of those that stand for no image."""
    images: float = 0.5
    """Share of the tokens that stand for images."""
    mfu: float = 0.3
    """Share of the GPU's peak that forward and backward passes reach."""
    decode: float = 0.5
    """Share of the GPU's memory bandwidth that decoding reaches."""
    network: float = 25.0
    """Speed at which weights reach engines, in GB/s."""


@dataclass(frozen=True)
class TrainOptions:
    """TAPO: group-relative policy optimisation on episodes whose reward includes a score of each tool call."""

    name: str = "tapo"
    """Name of the run."""
    out: str = "runs"
    """Folder of all runs; this one writes `out/name`."""
    seed: int = 0
    """Seed of data, sampling and order."""
    model: str = ""
    """Folder or hub name of the policy; empty takes the cold start of the same preset, made first if it is missing."""
    resume: str = ""
    """Run folder to continue from its last checkpoint, with the options it was started with."""
    env: EnvOptions = field(default_factory=EnvOptions)
    """The environment that is trained in."""
    reward: str = "tapo"
    """Reward: a name (`codev rewards list` shows them), or "module:attribute" of a function or a `Reward`."""
    weights: dict[str, float] = field(default_factory=dict)
    """Weights of reward terms that differ from the table's."""
    steps: int = 200
    """Policy updates."""
    prompts: int = 256
    """Tasks per update."""
    group: int = 8
    """Rollouts per task."""
    curriculum: str = "uniform"
    """Which tasks are played: "uniform", "success-band", or "module:function"; see `curriculum.py`."""
    candidates: int = 1
    """Tasks drawn for each one that is played; those are played first that the policy, made to answer before it has
    looked, answers wrongly. 1 plays what is drawn."""
    resample: int = 0
    """Most times per update that groups whose outcomes are all equal are thrown away and other tasks are played in
    their place (dynamic sampling of DAPO); of those left at the end nothing is learned. 0 keeps every group."""
    temperature: float = 1.0
    """Sampling temperature of rollouts."""
    max_tokens: int = 4096
    """Longest turn, in tokens."""
    max_length: int = 32768
    """Longest trajectory, in tokens; an episode that would outgrow it is cut off between turns."""
    engine: Literal["hf", "vllm", "vllm-server"] = "hf"
    """What samples rollouts: the training model itself, vLLM in this process, or a vLLM server (`docs/engines.md`)."""
    vllm: VllmOptions = field(default_factory=VllmOptions)
    """The engines that run vLLM."""
    engine_batch: int = 256
    """Most episodes that are played, and sequences that are decoded, at the same time."""
    credit: str = "trajectory"
    """How reward becomes advantage: "trajectory", "trajectory-mean", "turn", "turn-mean" ("-mean" without the division
    by the group's standard deviation), or "module:function" of one like those in `credit.py`."""
    loss: str = "dapo"
    """Loss of each token and how token losses are averaged: "grpo", "dapo", "dr_grpo", "gspo", "cispo", or
    "module:function" of one like those in `loss.py`. "dapo" is the clipped surrogate averaged over all tokens, as CodeV
    and CodeVision were trained; its clip limits are options of their own."""
    clip_low: float = 0.2
    """Lower clip of the importance ratio is 1 - this."""
    clip_high: float = 0.2
    """Upper clip of the importance ratio is 1 + this."""
    dual_clip: float = 3.0
    """Bound of the loss for negative advantages, as a multiple of the advantage; 0 for none."""
    correction: Literal["ratio", "none", "token", "sequence", "geometric"] = "ratio"
    """How a sampler that differs from the trainer is corrected for. "ratio" takes the clipped ratio against the
    sampler's log-probabilities; the others take it against the trainer's own and weight tokens by truncated importance
    weights ("none": by 1); see `loss.importance_weights`."""
    correction_cap: float = 2.0
    """Largest importance weight."""
    kl: float = 0.0
    """Weight of the KL divergence from the policy that the run started with; 0 loads no such reference."""
    entropy: float = 0.0
    """Weight of the entropy bonus."""
    mask_overlong: bool = False
    """Learn nothing from episodes that were cut off at `max_length`."""
    mask_overturn: bool = False
    """Learn nothing from episodes that ran out of turns."""
    step_timeout: float = 0.0
    """Longest time that one call of an environment or its judge may take in training, in seconds; then the episode is
    cut off, as a straggler. 0 waits, and is all that keeps runs repeatable."""
    mask_stragglers: bool = True
    """Learn nothing from episodes that were cut off by `step_timeout`: what was cut off counts as not judged."""
    epochs: int = 1
    """Passes over each batch of rollouts."""
    minibatches: int = 1
    """Optimizer steps per pass."""
    micro_batch: int = 64
    """Most trajectories per forward pass; gradients accumulate."""
    token_budget: int = 0
    """Most tokens per forward pass, packed without padding; a longer trajectory gets a pass of its own. 0 pads
    `micro_batch` trajectories."""
    optimizer: OptimizerOptions = field(default_factory=OptimizerOptions)
    """The optimizer."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Of the computation while training; weights and optimizer stay in fp32."""
    gradient_checkpointing: bool = False
    """Trade compute for memory."""
    train_vision: bool = True
    """Train the vision tower too."""
    lora: LoraOptions = field(default_factory=LoraOptions)
    """Low-rank adapters."""
    health: HealthOptions = field(default_factory=HealthOptions)
    """When to warn or stop."""
    workers: int = 2
    """Environments that are stepped, and images that are processed, at the same time. Judges are asked besides."""
    threads: int = 0
    """CPU threads of torch; 0 leaves the choice to torch."""
    eval: HeldOutOptions = field(default_factory=HeldOutOptions)
    """Evaluation before and after."""
    save_every: int = 25
    """Updates between checkpoints."""
    keep: int = 2
    """Checkpoints to keep."""
    show_every: int = 25
    """Updates between pictures and transcripts of episodes in TensorBoard."""
    estimate: EstimateOptions = field(default_factory=EstimateOptions)
    """Assumptions of `--dry-run`."""
