"""Checks of the options of a run before anything is started or written."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from codev_agents.engines.options import VllmOptions
from codev_env.errors import CodevError, ConfigError
from codev_env.judges import get_judge
from codev_train.learn.credit import get_credit
from codev_train.learn.curriculum import get_curriculum
from codev_train.learn.loss import check_loss
from codev_train.run.environments import make_env, make_eval_env, make_train_env
from codev_train.run.health import HealthOptions
from codev_train.run.model_size import is_here
from codev_train.run.options import EstimateOptions, OptimizerOptions, SFTOptions, StageOptions, TrainOptions

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
    "candidates",
)
_NOT_NEGATIVE = ("kl", "entropy", "token_budget", "resample", "step_timeout", "threads", "seed")


def check(options: TrainOptions, processes: int = 1) -> None:
    """Check values, and that the environment can be made with them.

    Args:
        options: The options of `codev train`.
        processes: How many processes share each update.

    Raises:
        ConfigError: Options that cannot be used; the message names each, its value and what is allowed.
        TaskError: Data that cannot be read.
    """
    _raise(value_problems(options, processes))
    for make in (make_train_env, make_eval_env):
        make(options).close()


def check_judge(options: TrainOptions) -> None:
    """Ask the judge's server, where the judge has one, whether it is there; raises `JudgeError` if it is not."""
    if ping := getattr(get_judge(options.env.judge), "ping", None):
        ping()


def check_sft(options: SFTOptions) -> None:
    """Check the options of `codev sft` likewise; raises `ConfigError` and `TaskError`."""
    _raise(_sft_problems(options))
    make_env(options.env, "train").close()


def _raise(problems: Iterator[str]) -> None:
    if found := list(problems):
        raise ConfigError(" ".join(found))


def value_problems(options: TrainOptions, processes: int = 1) -> Iterator[str]:
    """Give a sentence for each value that is out of its range."""
    yield from _not_finite(options)
    yield from _name_problems(options.name)
    yield from _model_problems(options.model)
    for name in _AT_LEAST_ONE:
        yield from _range(getattr(options, name) >= 1, name, getattr(options, name), "at least 1")
    for name in _NOT_NEGATIVE:
        yield from _range(getattr(options, name) >= 0, name, getattr(options, name), "0 or more")
    group, minibatches, prompts = options.group, options.minibatches, options.prompts
    yield from _range(group >= 2, "group", group, "at least 2, because advantages are relative to a group")
    yield from _range(prompts % processes == 0, "prompts", prompts, f"a multiple of the {processes} processes")
    rollouts = prompts // processes * group
    yield from _range(
        minibatches <= rollouts or prompts < 1, "minibatches", minibatches, f"at most the {rollouts} rollouts"
    )
    longest = options.max_length
    yield from _range(longest < 1 or longest > options.max_tokens, "max_length", longest, "more than max-tokens")
    yield from _range(options.temperature > 0, "temperature", options.temperature, "above 0, for rollouts are sampled")
    yield from _range(0 < options.clip_low <= 1, "clip_low", options.clip_low, "above 0, and at most 1")
    yield from _range(options.clip_high > 0, "clip_high", options.clip_high, "above 0")
    dual = options.dual_clip
    yield from _range(dual == 0 or dual > 1, "dual_clip", dual, "above 1, or 0 for none")
    yield from _range(options.correction_cap >= 1, "correction_cap", options.correction_cap, "at least 1")
    yield from _range(options.lora.rank >= 0, "lora.rank", options.lora.rank, "0 (all weights) or more")
    yield from _range(options.lora.alpha > 0, "lora.alpha", options.lora.alpha, "above 0")
    yield from _range(options.env.max_turns >= 1, "env.max_turns", options.env.max_turns, "at least 1")
    evaluation = options.eval
    yield from _range(evaluation.episodes >= 1, "eval.episodes", evaluation.episodes, "at least 1")
    yield from _range(evaluation.temperature >= 0, "eval.temperature", evaluation.temperature, "0 (greedy) or more")
    yield from _optimizer_problems(options.optimizer, "optimizer")
    yield from _health_problems(options.health)
    yield from _engine_problems(options.engine, options.vllm)
    yield from _estimate_problems(options.estimate)
    trajectory = options.estimate.trajectory
    yield from _range(trajectory <= longest, "estimate.trajectory", trajectory, f"at most max-length, {longest}")
    for find, option in ((get_curriculum, "curriculum"), (get_credit, "credit"), (check_loss, "loss")):
        try:
            find(getattr(options, option))
        except CodevError as error:
            yield f"--{option}: {error}"
    if options.env.data == "auto":
        yield "--env.data is auto, but a run is evaluated and nobody could tell on what: use synthetic or a path."


def _sft_problems(options: SFTOptions) -> Iterator[str]:
    yield from _not_finite(options)
    yield from _name_problems(options.name)
    yield from _model_problems(options.model)
    if options.trajectories:
        yield from _range(
            Path(options.trajectories).is_dir(), "trajectories", options.trajectories, "a folder that exists"
        )
    for name in ("pool", "micro_batch"):
        yield from _range(getattr(options, name) >= 1, name, getattr(options, name), "at least 1")
    for name in ("snap", "threads", "seed"):
        yield from _range(getattr(options, name) >= 0, name, getattr(options, name), "0 or more")
    yield from _range(options.number_weight > 0, "number_weight", options.number_weight, "above 0")
    for field in dataclasses.fields(options.toy):
        value = getattr(options.toy, field.name)
        yield from _range(value >= 1, f"toy.{field.name}", value, "at least 1")
    for name in ("ground", "imitate"):
        stage: StageOptions = getattr(options, name)
        for part in ("steps", "captions", "reads", "experts", "decorative"):
            value = getattr(stage, part)
            yield from _range(value >= 0, f"{name}.{part}", value, "0 or more")
        least, most = stage.objects
        yield from _range(0 <= least <= most, f"{name}.objects", f"{least} {most}", "two numbers, the least first")
        yield from _optimizer_problems(stage.optimizer, f"{name}.optimizer")


def _name_problems(name: str) -> Iterator[str]:
    plain = name not in ("", ".", "..") and not set(name) & {"/", "\\", "\0"}
    yield from _range(plain, "name", repr(name), "the name of one folder, which lies in --out: no separators, no '..'")


def _model_problems(model: str) -> Iterator[str]:
    """Tell of a folder that is not there before a hub is asked for its name."""
    path = Path(model)
    if not model or path.exists():
        return
    if path.is_absolute() or model.startswith((".", "~")):
        yield f"--model {model}: there is no such folder."
    elif len(path.parts) > 1 and Path(path.parts[0]).is_dir() and not is_here(model):
        inside = Path(*path.parts[1:])
        yield (
            f"--model {model}: the folder {path.parts[0]} holds no {inside}. If a model of the hub is meant, start it "
            "from another folder."
        )


def _optimizer_problems(options: OptimizerOptions, name: str) -> Iterator[str]:
    yield from _range(options.lr > 0, f"{name}.lr", options.lr, "above 0")
    yield from _range(options.warmup >= 0, f"{name}.warmup", options.warmup, "0 or more")
    yield from _range(0 <= options.decay <= 1, f"{name}.decay", options.decay, "from 0 to 1")
    yield from _range(0 <= options.final <= 1, f"{name}.final", options.final, "from 0 to 1")
    yield from _range(0 <= options.beta2 < 1, f"{name}.beta2", options.beta2, "from 0 to below 1")
    yield from _range(options.weight_decay >= 0, f"{name}.weight_decay", options.weight_decay, "0 or more")
    yield from _range(options.grad_clip > 0, f"{name}.grad_clip", options.grad_clip, "above 0")


def _health_problems(options: HealthOptions) -> Iterator[str]:
    yield from _range(options.mismatch > 0, "health.mismatch", options.mismatch, "above 0")
    ratio = options.ratio
    yield from _range(ratio == 0 or ratio > 1, "health.ratio", ratio, "above 1, or 0 for never")
    for name in ("entropy", "tools"):
        yield from _range(getattr(options, name) >= 0, f"health.{name}", getattr(options, name), "0 (never) or more")
    yield from _range(0 < options.signal <= 1, "health.signal", options.signal, "a share above 0, at most 1")
    failed = options.judge_failed
    yield from _range(0 <= failed <= 1, "health.judge_failed", failed, "a share from 0 to 1 (never)")
    yield from _range(options.patience >= 1, "health.patience", options.patience, "at least 1")


def _engine_problems(engine: str, options: VllmOptions) -> Iterator[str]:
    yield from _range(0 < options.memory <= 1, "vllm.memory", options.memory, "a share of the GPU above 0, at most 1")
    yield from _range(options.patience >= 0, "vllm.patience", options.patience, "0 seconds or more")
    yield from _range(options.timeout > 0, "vllm.timeout", options.timeout, "above 0 seconds")
    address = options.url.startswith(("http://", "https://"))
    yield from _range(address, "vllm.url", options.url, "an address such as http://node2:8000")
    if engine == "vllm-server" and options.folder:
        yield from _range(Path(options.folder).is_dir(), "vllm.folder", options.folder, "a folder that exists")


def _estimate_problems(options: EstimateOptions) -> Iterator[str]:
    for name in ("gpus", "servers", "trajectory", "response"):
        yield from _range(getattr(options, name) >= 0, f"estimate.{name}", getattr(options, name), "0 or more")
    shards, gpus = options.shards, max(1, options.gpus)
    fits = shards >= 1 and gpus % shards == 0
    yield from _range(fits, "estimate.shards", shards, f"a divisor of the {gpus} processes")
    yield from _range(0 <= options.images < 1, "estimate.images", options.images, "a share from 0 to below 1")
    for name in ("mfu", "decode"):
        value = getattr(options, name)
        yield from _range(0 < value <= 1, f"estimate.{name}", value, "a share above 0, at most 1")
    yield from _range(options.network > 0, "estimate.network", options.network, "above 0 GB/s")


def _not_finite(options: Any, prefix: str = "") -> Iterator[str]:
    """Find numbers that are infinite or none, in nested options too."""
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if dataclasses.is_dataclass(value):
            yield from _not_finite(value, f"{prefix}{field.name}.")
        elif isinstance(value, float):
            yield from _range(math.isfinite(value), f"{prefix}{field.name}", value, "a finite number")


def _range(ok: bool, name: str, value: object, allowed: str) -> Iterator[str]:
    if not ok:
        yield f"--{name.replace('_', '-')} is {value}; it must be {allowed}."
