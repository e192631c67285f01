"""Checks of the options of a run before anything is started or written."""

from __future__ import annotations

from codev_env.errors import ConfigError
from codev_train.environments import make_env
from codev_train.options import OptimizerOptions, TrainOptions

_AT_LEAST_ONE = (
    "steps",
    "prompts",
    "max_tokens",
    "max_length",
    "engine_batch",
    "epochs",
    "minibatches",
    "micro_batch",
    "workers",
    "save_every",
    "keep",
    "show_every",
)


def check(options: TrainOptions, processes: int = 1) -> None:
    """Check values, and that the environment can be made with them.

    Args:
        options: The options of `codev train`.
        processes: How many processes share each update.

    Raises:
        ConfigError: An option that cannot be used; the message names it, its value and what is allowed.
        TaskError: Data that cannot be read.
    """
    for name in _AT_LEAST_ONE:
        require(getattr(options, name) >= 1, name, getattr(options, name), "at least 1")
    require(options.eval.episodes >= 1, "eval.episodes", options.eval.episodes, "at least 1")
    require(options.group >= 2, "group", options.group, "at least 2, because advantages are relative to a group")
    require(options.prompts % processes == 0, "prompts", options.prompts, f"a multiple of the {processes} processes")
    rollouts = options.prompts // processes * options.group
    require(options.minibatches <= rollouts, "minibatches", options.minibatches, f"at most the {rollouts} rollouts")
    require(options.temperature > 0, "temperature", options.temperature, "above 0, because rollouts are sampled")
    require(options.eval.temperature >= 0, "eval.temperature", options.eval.temperature, "0 (greedy) or more")
    require(0 < options.clip_low <= 1, "clip-low", options.clip_low, "above 0, and at most 1")
    require(options.clip_high > 0, "clip-high", options.clip_high, "above 0")
    require(options.dual_clip == 0 or options.dual_clip > 1, "dual-clip", options.dual_clip, "above 1, or 0 for none")
    require(options.correction_cap >= 1, "correction-cap", options.correction_cap, "at least 1")
    for name in ("kl", "entropy", "token_budget"):
        require(getattr(options, name) >= 0, name, getattr(options, name), "0 or more")
    require(options.lora.rank >= 0, "lora.rank", options.lora.rank, "0 (all weights) or more")
    require(options.lora.alpha > 0, "lora.alpha", options.lora.alpha, "above 0")
    require(options.health.mismatch > 0, "health.mismatch", options.health.mismatch, "above 0")
    require(options.health.patience >= 1, "health.patience", options.health.patience, "at least 1")
    require(options.seed >= 0, "seed", options.seed, "0 or more")
    check_optimizer(options.optimizer, "optimizer")
    if options.env.data == "auto":
        raise ConfigError(
            "--env.data is 'auto', but a run is evaluated and nobody could tell on what: use 'synthetic' or a path."
        )
    for split in ("train", options.eval.split):
        make_env(options.env, split, options.reward, options.weights).close()


def check_optimizer(options: OptimizerOptions, name: str) -> None:
    """Check the values of an optimizer; raises `ConfigError`."""
    require(options.lr > 0, f"{name}.lr", options.lr, "above 0")
    require(options.warmup >= 0, f"{name}.warmup", options.warmup, "0 or more")
    require(0 <= options.decay <= 1, f"{name}.decay", options.decay, "from 0 to 1")
    require(0 <= options.final <= 1, f"{name}.final", options.final, "from 0 to 1")
    require(0 <= options.beta2 < 1, f"{name}.beta2", options.beta2, "from 0 to below 1")
    require(options.weight_decay >= 0, f"{name}.weight-decay", options.weight_decay, "0 or more")
    require(options.grad_clip > 0, f"{name}.grad-clip", options.grad_clip, "above 0")


def require(ok: bool, name: str, value: object, allowed: str) -> None:
    """Raise a `ConfigError` that names the option, its value and what is allowed, unless `ok`."""
    if not ok:
        raise ConfigError(f"--{name.replace('_', '-')} is {value}; it must be {allowed}.")
