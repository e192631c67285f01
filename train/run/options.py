"""Every option of `codev train` and `codev sft` with its range and meaning; presets are YAML files of these names."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from codev_agents.engines.options import LoraOptions, ToyModelOptions, VllmOptions
from codev_env.app.options import ValueRefused, ZeroOrAboveOne, option_class
from codev_train.run.assumptions import EstimateOptions
from codev_train.run.env_options import EnvOptions
from codev_train.run.health import HealthOptions
from codev_train.run.held_out import HeldOutOptions
from codev_train.run.ranges import (
    Count,
    CountOrNone,
    FolderName,
    NotNegative,
    Positive,
    PositiveShare,
    Seed,
    Share,
)

Sharding = Literal["none", "fsdp2", "fsdp2-offload", "hsdp"]
"""Whole copies; weights, gradients and moments by FSDP2; these in CPU memory; or several sharded copies (HSDP)."""


@option_class
class OptimizerOptions:
    """The optimizer and its schedule."""

    name: Literal["adamw", "muon", "adamw8bit"] = "adamw"
    """"muon" takes Muon for weight matrices of the layers, AdamW for the rest; "adamw8bit" needs torchao."""
    lr: Positive = 1e-6
    """Peak learning rate."""
    warmup: CountOrNone = 0
    """Steps of linear warm-up."""
    decay: Share = 0.0
    """Share of the steps, at the end, over which the learning rate falls linearly to `final`."""
    final: Share = 0.0
    """Learning rate at the end, as a share of the peak."""
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.99
    """Second-moment decay of AdamW."""
    weight_decay: NotNegative = 0.0
    """Weight decay on matrices."""
    grad_clip: Positive = 1.0
    """Largest gradient norm."""


@option_class
class StageOptions:
    """One stage of the cold start: how long, and how many examples of each kind per step."""

    steps: CountOrNone = 0
    """Optimizer steps, 0 to skip the stage."""
    until: NotNegative = 0.0
    """Running loss (0.95 of the last one, 0.05 of the step's) that should be reached; needs `more`."""
    more: CountOrNone = 0
    """Most further steps, at the last learning rate, while the running loss is above `until`."""
    captions: CountOrNone = 0
    """Scenes described object by object with their places (generated scenes only)."""
    reads: CountOrNone = 0
    """Crops of one object, described."""
    experts: CountOrNone = 16
    """Episodes of the oracle, which crops the target and then answers."""
    decorative: CountOrNone = 0
    """Episodes of an agent that crops a fixed place and answers correctly all the same."""
    scene: dict[str, int | float] = Field(default_factory=dict)
    """Options of the generated scenes for all but the decorative episodes, for example `cue_p 0`."""
    objects: tuple[int, int] = (0, 0)
    """Smallest and largest number of objects in those scenes; 0 0 keeps the preset's."""
    optimizer: OptimizerOptions = Field(default_factory=lambda: OptimizerOptions(lr=1e-5))
    """Optimizer of this stage."""

    @field_validator("objects")
    @classmethod
    def _in_order(cls, objects: tuple[int, int]) -> tuple[int, int]:
        if not 0 <= objects[0] <= objects[1]:
            raise ValueError("two numbers from 0, the smaller one first")
        return objects

    @model_validator(mode="after")
    def _learns_in_all_steps(self) -> Self:
        if self.steps and not (self.experts or self.decorative or max(self.captions, self.reads) > 1):
            # Half-way, half of the captions and reads are left.
            allowed = "above 0 in a stage with fewer than 2 captions or reads, and nothing decorative"
            raise ValueRefused("experts", self.experts, allowed)
        if bool(self.until) != bool(self.more):
            raise ValueRefused("more", self.more, "given together with until: both above 0, or neither")
        if self.more and self.optimizer.decay and not self.optimizer.final:
            allowed = "above 0: the further steps of more have the last learning rate, which is optimizer.final of lr"
            raise ValueRefused("optimizer.final", self.optimizer.final, allowed)
        return self


@option_class
class SFTOptions:
    """Cold start: from random weights or a model folder to a policy that uses the tool at all."""

    # The options that `--help` shows.
    COMMON = (
        "name", "out", "seed", "model", "trajectories", "pool", "micro_batch", "threads", "max_length", "lora.rank",
        "gradient_checkpointing", "env.id", "env.data", "env.dialect", "env.max_turns", "ground.steps",
        "ground.optimizer.lr", "imitate.steps", "imitate.optimizer.lr",
    )  # fmt: skip
    name: FolderName = "start"
    """Name of the run."""
    out: str = "runs"
    """Folder of all runs; this one writes `out/name`."""
    seed: Seed = 0
    """Seed of weights, data and order."""
    model: str = ""
    """Folder or hub name to start from, or empty for a toy."""
    toy: ToyModelOptions = Field(default_factory=ToyModelOptions)
    """Size of the toy model."""
    env: EnvOptions = Field(default_factory=EnvOptions)
    """The environment that experts act in."""
    trajectories: str = ""
    """Folder of recorded trajectories to imitate instead of the oracle's episodes."""
    snap: CountOrNone = 0
    """Grid, in pixels, that experts align their crops to; 0 for none."""
    pool: Count = 512
    """Distinct examples of each kind; each is seen several times."""
    ground: StageOptions = Field(default_factory=StageOptions)
    """First stage: see, name, place, read; honest experts only."""
    imitate: StageOptions = Field(default_factory=StageOptions)
    """Second stage: imitate episodes, honest and decorative ones."""
    number_weight: Positive = 1.0
    """Weight of the loss on numbers (coordinates, digits) relative to other tokens."""
    micro_batch: Count = 64
    """Maximum sequences per forward pass."""
    max_length: Count = 32768
    """Longest example, in tokens; longer ones are left out whole."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Precision of the computation; trained weights and optimizer stay in fp32."""
    gradient_checkpointing: bool = False
    """Trade compute for memory."""
    train_vision: bool = True
    """Train the vision tower too."""
    lora: LoraOptions = Field(default_factory=LoraOptions)
    """Low-rank adapters; the saved model has them merged."""
    threads: CountOrNone = 0
    """CPU threads, 0 for torch's choice."""
    processes: CountOrNone = 0
    """Processes that `codev sft` starts; 0 is one per visible GPU, or one on a CPU. Each makes examples of its own."""
    sharding: Sharding = "none"
    """As for `codev train`, which makes a cold start in its own processes."""
    replicas: Annotated[int, Field(ge=2)] = 2
    """As for `codev train`."""

    @property
    def has_bf16_base(self) -> bool:
        """As for `codev train`."""
        return self.lora.rank > 0 and self.precision == "bf16"

    @model_validator(mode="after")
    def _values_fit_together(self) -> Self:
        if self.lora.rank and not self.model:
            raise ValueRefused("lora.rank", self.lora.rank, "0 without a model: the weights of a toy are random")
        for stage in ("ground", "imitate"):
            options: StageOptions = getattr(self, stage)
            if self.sharding == "fsdp2-offload" and options.steps and options.optimizer.name != "adamw":
                allowed = "adamw with sharding fsdp2-offload"
                raise ValueRefused(f"{stage}.optimizer.name", options.optimizer.name, allowed)
        return self


@option_class
class ImitationOptions:
    """Self-imitation beside the policy gradient: faithful tool calls, and right answers to them (docs/training.md)."""

    answers: CountOrNone = 0
    """Answering turns per update that are imitated, with the gold answer; 0 for none."""
    calls: CountOrNone = 0
    """Rollouts per update whose faithful tool calls are imitated; 0 for none."""
    targets: CountOrNone = 0
    """Tasks per update in which no rollout looked faithfully, and of whose target a crop is imitated; 0 for none."""
    snap: CountOrNone = 0
    """Align those crops outward to multiples of this many pixels; 0 adds a quarter of the target's sides."""
    weight: Positive = 1.0
    """Weight of an imitated token relative to an advantage of 1."""


@option_class
class TrainOptions:
    """TAPO: group-relative policy optimisation on episodes whose reward includes a score of each tool call."""

    # The options that `--help` shows.
    COMMON = (
        "name", "out", "seed", "model", "fresh", "resume", "reward", "steps", "prompts", "group", "max_tokens",
        "engine", "optimizer.lr", "lora.rank", "env.id", "env.data", "env.judge", "env.max_turns", "eval.every",
        "save_every",
    )  # fmt: skip
    name: FolderName = "tapo"
    """Name of the run."""
    out: str = "runs"
    """Folder of all runs; this one writes `out/name`."""
    seed: Seed = 0
    """Seed of data, sampling and order."""
    model: str = ""
    """Folder or hub name of the policy, or empty for the cold start of the preset; made first if it is missing."""
    fresh: bool = False
    """Make the cold start again, even if it was made before or comes with the repository."""
    resume: str = ""
    """Run folder to continue from its last checkpoint; it keeps the options it was started with."""
    processes: CountOrNone = 0
    """Processes that a plain start makes; 0 is one per visible GPU, or one on a CPU. A launcher overrides it."""
    sharding: Sharding = "none"
    """Sharding over these processes: none, FSDP2, FSDP2 with shards in CPU memory, or `replicas` copies of shards."""
    replicas: Annotated[int, Field(ge=2)] = 2
    """Sharded copies with `sharding hsdp`, for example one per machine; each is shared by equally many processes."""
    env: EnvOptions = Field(default_factory=EnvOptions)
    """The environment that is trained in."""
    reward: str = "tapo"
    """Reward: a name of `codev rewards list`, or `MODULE:ATTRIBUTE`; that is a function or a `Reward`."""
    weights: dict[str, float] = Field(default_factory=dict)
    """Weights of reward terms that differ from the table's."""
    steps: Count = 200
    """Policy updates."""
    prompts: Count = 256
    """Tasks per update."""
    group: Annotated[int, Field(ge=2)] = 8
    """Rollouts per task; advantages are relative to this group."""
    curriculum: str = "uniform"
    """How tasks are drawn: "uniform", "success-band", or "module:function"."""
    candidates: Count = 1
    """Tasks drawn per prompt; those that the policy answers wrongly without looking come first. 1 takes all."""
    candidates_share: Share = 1.0
    """Share of the prompts chosen by `candidates`; the others are played as they are drawn."""
    resample: CountOrNone = 0
    """Maximum groups that replace those with equal outcomes (DAPO), as a multiple of `prompts`; 0 keeps all."""
    down_sample: CountOrNone = 0
    """Rollouts per task that are learned from, those whose rewards vary most (PODS); 0 for all."""
    temperature: Positive = 1.0
    """Sampling temperature of rollouts."""
    max_tokens: Count = 4096
    """Longest turn, in tokens."""
    max_length: Count = 32768
    """Longest trajectory, in tokens; an episode that would exceed it is cut off between turns."""
    engine: Literal["hf", "vllm", "vllm-server"] = "hf"
    """Sampler of rollouts; `hf`: the training model itself, `vllm`: in this process (docs/engines.md)."""
    vllm: VllmOptions = Field(default_factory=VllmOptions)
    """The engines that run vLLM."""
    engine_batch: Count = 256
    """Maximum episodes played, and sequences decoded, at the same time."""
    credit: str = "trajectory"
    """From reward to advantage: "trajectory" or "turn" ("-mean": no division by the deviation), "module:function"."""
    loss: str = "dapo"
    """Policy loss: "grpo", "dapo" (mean over all tokens, as CodeV), "dr_grpo", "gspo", "cispo", "module:function"."""
    clip_low: PositiveShare = 0.2
    """Lower clip of the importance ratio is 1 - this."""
    clip_high: Positive = 0.2
    """Upper clip of the importance ratio is 1 + this."""
    dual_clip: ZeroOrAboveOne = 3.0
    """Bound of the loss for negative advantages, as a multiple of the advantage; 0 for none."""
    correction: Literal["ratio", "none", "token", "sequence", "geometric"] = "ratio"
    """Correction for a sampler unlike the trainer: the clipped ratio, none, or truncated importance weights."""
    staleness: CountOrNone = 0
    """Most updates between the weights that sample a token and those trained on it: rollouts run ahead; 0: in turn."""
    in_flight: bool = True
    """With `staleness`: weights change while episodes are played; otherwise an update waits for those under way."""
    correction_cap: Annotated[float, Field(ge=1)] = 2.0
    """Largest importance weight."""
    kl: NotNegative = 0.0
    """Weight of the KL divergence from the policy that the run started with; 0 loads no such reference."""
    entropy: NotNegative = 0.0
    """Weight of the entropy bonus."""
    mask_overlong: bool = False
    """Learn nothing from episodes that were cut off at `max_length`."""
    mask_overturn: bool = False
    """Learn nothing from episodes that ran out of turns."""
    step_timeout: NotNegative = 0.0
    """Longest call of an environment or judge, in seconds; 0 disables it, other values make runs non-deterministic."""
    mask_stragglers: bool = True
    """Learn nothing from episodes that were cut off by `step_timeout`."""
    epochs: Count = 1
    """Passes over each batch of rollouts."""
    minibatches: Count = 1
    """Optimizer steps per pass."""
    micro_batch: Count = 64
    """Maximum trajectories per forward pass; gradients accumulate."""
    token_budget: CountOrNone = 0
    """Maximum tokens per forward pass, packed without padding; 0 pads `micro_batch` trajectories."""
    sequence_parallel: Count = 1
    """Processes that share the tokens of a packed pass out (Ulysses), for trajectories of 32k tokens and more."""
    imitation: ImitationOptions = Field(default_factory=ImitationOptions)
    """Self-imitation."""
    optimizer: OptimizerOptions = Field(default_factory=OptimizerOptions)
    """The optimizer."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Precision of the computation while training; trained weights and optimizer stay in fp32."""
    gradient_checkpointing: bool = False
    """Trade compute for memory."""
    kept_layers: CountOrNone = 0
    """With gradient checkpointing: the last decoder layers that keep their activations, faster for more memory."""
    compile: bool = False
    """Compile the decoder layers with torch.compile; the first pass takes minutes. Needs an engine of vLLM."""
    train_vision: bool = True
    """Train the vision tower too."""
    lora: LoraOptions = Field(default_factory=LoraOptions)
    """Low-rank adapters."""
    health: HealthOptions = Field(default_factory=HealthOptions)
    """When to warn or stop."""
    workers: Count = 2
    """Environments stepped, and images processed, at the same time; calls of judges are not counted."""
    threads: CountOrNone = 0
    """CPU threads of torch; 0 leaves the choice to torch."""
    eval: HeldOutOptions = Field(default_factory=HeldOutOptions)
    """Evaluation before, during and after training."""
    save_every: Count = 25
    """Updates between checkpoints."""
    keep: Count = 2
    """Checkpoints to keep."""
    show_every: Count = 25
    """Updates between images and transcripts of episodes in TensorBoard and trackers."""
    trackers: tuple[str, ...] = ()
    """Experiment trackers of Accelerate beside TensorBoard, for example `wandb trackio mlflow`."""
    tracker_project: str = "codev"
    """Project of these trackers that the run belongs to."""
    max_pixels: Annotated[int | None, Field(ge=1)] = None
    """Most pixels at which the policy sees an image, its image budget; by default the limit of its image processor."""
    push_to_hub: str = ""
    """Repository of the model hub, NAME or OWNER/NAME, that gets the trained policy; empty uploads nothing."""
    push_private: bool = False
    """Make this repository private if it is new; otherwise the owner's settings decide."""
    push_report: bool = True
    """Upload the report, too, without its settings; it shows images of the tasks."""
    estimate: EstimateOptions = Field(default_factory=EstimateOptions)
    """Assumptions of `--dry-run`."""

    @property
    def offloads(self) -> bool:
        """Whether shards are kept in CPU memory, as far as the estimate assumes any."""
        return self.sharding == "fsdp2-offload" and self.estimate.shards > 1

    @property
    def has_bf16_base(self) -> bool:
        """Whether weights that adapters leave frozen are kept in bf16: the computation needs no more."""
        return self.lora.rank > 0 and self.precision == "bf16"

    @model_validator(mode="after")
    def _values_fit_together(self) -> Self:
        held_out = self.eval.data or ("synthetic" if self.eval.id else self.env.data)
        if self.eval.contrast and held_out != "synthetic":
            allowed = f"empty (--eval.contrast without values) for {held_out!r}: only generated scenes have options"
            raise ValueRefused("eval.contrast", self.eval.contrast, allowed)
        if self.fresh and self.model:
            raise ValueRefused("fresh", True, "False with a model: no cold start is made")
        if self.staleness and self.engine == "vllm":
            allowed = "0 with engine vllm, which sleeps while the policy is trained; take hf or vllm-server"
            raise ValueRefused("staleness", self.staleness, allowed)
        if self.compile and self.engine == "hf":
            raise ValueRefused("compile", True, "False with engine hf, which decodes token by token with these layers")
        if self.kept_layers and not self.gradient_checkpointing:
            raise ValueRefused("kept_layers", self.kept_layers, "0 without gradient-checkpointing, where all are kept")
        if self.sequence_parallel > 1 and not self.token_budget:
            raise ValueRefused("sequence_parallel", self.sequence_parallel, "1 without a token-budget")
        if self.sharding == "fsdp2-offload" and self.optimizer.name != "adamw":
            raise ValueRefused("optimizer.name", self.optimizer.name, "adamw with sharding fsdp2-offload")
        if self.down_sample == 1:
            raise ValueRefused("down_sample", 1, "0 for all, or at least 2: a single reward has no variance")
        if self.max_length <= self.max_tokens:
            raise ValueRefused("max_length", self.max_length, f"more than max-tokens, {self.max_tokens}")
        if self.estimate.trajectory > self.max_length:
            raise ValueRefused("estimate.trajectory", self.estimate.trajectory, f"at most max-length {self.max_length}")
        return self
