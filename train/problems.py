"""Values of options that do not fit together, or that name something that is not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from codev_agents.engines.lora import ADAPTERS, check_adapters
from codev_env.app.options import Problem
from codev_env.errors import CodevError
from codev_train.learn import checkpoint
from codev_train.learn.credit import check_credit
from codev_train.learn.curriculum import check_curriculum
from codev_train.learn.loss import check_loss
from codev_train.learn.sharding import Layout
from codev_train.run.config import OPTIONS, read_file
from codev_train.run.loads import mean_trajectory
from codev_train.run.model_files import folder_problem
from codev_train.run.options import Sharding, TrainOptions
from codev_train.run.processes import replicas_problem


def find_problems(options: TrainOptions, processes: int = 1, layout: Layout | None = None) -> Iterator[Problem]:
    """Yield what is wrong with names, folders and the processes.

    Args:
        options: The options.
        processes: How many processes share each update.
        layout: How their launcher makes them hold the weights; None if they are not started yet.
    """
    yield from model_problems(needed_model(options))
    rollouts = options.prompts * min(options.group, options.down_sample or options.group)
    if options.prompts % processes:
        yield make_problem("prompts", options.prompts, f"a multiple of the {processes} processes (--processes)")
    if processes % options.sequence_parallel:
        allowed = f"a divisor of the {processes} processes (--processes)"
        yield make_problem("sequence-parallel", options.sequence_parallel, allowed)
    if processes > 1 and (text := replicas_problem(options, processes)):
        yield Problem("replicas", text)
    if processes == 1 and options.sharding in ("hsdp", "fsdp2-offload"):
        yield make_problem("sharding", options.sharding, "none with one process (--processes), which shards nothing")
    elif layout:
        yield from _layout_problems(options, processes, layout)
    if options.minibatches > rollouts > 0:  # none are left by what is wrong with --prompts
        yield make_problem("minibatches", options.minibatches, f"at most the {rollouts} rollouts")
    if options.estimate.response > (mean := mean_trajectory(options)):
        yield make_problem("estimate.response", options.estimate.response, f"at most {mean}, as a mean trajectory has")
    if options.engine == "vllm-server" and options.vllm.folder and not Path(options.vllm.folder).is_dir():
        yield make_problem("vllm.folder", options.vllm.folder, "a folder that exists")
    for check, option in ((check_curriculum, "curriculum"), (check_credit, "credit"), (check_loss, "loss")):
        try:
            check(getattr(options, option))
        except CodevError as error:
            yield Problem(option, f"--{option}: {error}")


def _layout_problems(options: TrainOptions, processes: int, layout: Layout) -> Iterator[Problem]:
    """Yield why the processes of a launcher cannot hold the weights as asked."""
    if layout.sharding == options.sharding:
        if layout.sharding == "hsdp" and layout.replicas != options.replicas:
            allowed = f"{layout.replicas}, as in the configuration of this launcher (dp_replicate_size)"
            yield make_problem("replicas", options.replicas, allowed)
    elif processes > 1 or layout.sharding != "none":
        own = "without a launcher, codev train starts the right one"
        if layout.sharding in get_args(Sharding):
            does = "shards nothing" if layout.sharding == "none" else "shards in this way"
            yield make_problem(
                "sharding", options.sharding, f"{layout.sharding} under this launcher, which {does}; {own}"
            )
        else:
            text = f"this launcher's configuration is for {layout.sharding}, which the trainer does not use; {own}."
            yield Problem("sharding", f"--sharding is {options.sharding}, but {text}")


def shape_problems(options: TrainOptions, heads: int, linear: int = 0, positions: int = 0) -> Iterator[Problem]:
    """Yield why a model cannot be trained as asked.

    Args:
        options: The options.
        heads: Attention heads of the model.
        linear: Its layers of linear attention.
        positions: The longest sequence that it was made for; 0 for any.
    """
    number = options.sequence_parallel
    if heads % number:
        yield make_problem("sequence-parallel", number, f"a divisor of the model's {heads} attention heads")
    if number > 1 and linear:
        allowed = "1 for a model with linear attention, whose state passes from token to token"
        yield make_problem("sequence-parallel", number, allowed)
    if positions and options.max_tokens >= positions:
        allowed = f"less than the {positions} positions of the model, which the first prompt shares"
        yield make_problem("max-tokens", options.max_tokens, allowed)
    if positions and options.estimate.trajectory > positions:
        yield make_problem(
            "estimate.trajectory", options.estimate.trajectory, f"at most the {positions} positions of the model"
        )


def kept_problems(options: TrainOptions, last: Path) -> Iterator[Problem]:
    """Yield what a resumed run has to keep as its last checkpoint has it."""
    if (name := options.optimizer.name) != (saved := checkpoint.read_optimizer(last)):
        yield make_problem("optimizer.name", name, f"{saved}, whose moments {last} has")
    if (last / "model" / ADAPTERS).exists() and not options.lora.rank:
        yield make_problem("lora.rank", 0, f"that of the adapters in {last}")
    if options.lora.rank:
        try:
            check_adapters(options.lora, last / "model")
        except CodevError as error:
            yield Problem("lora", str(error))
    began = Path(options.resume) / OPTIONS
    before = read_file(str(began))["train"] if began.is_file() else {}
    if not options.lora.rank and before.get("train_vision") == str(not options.train_vision):
        has = "has no" if options.train_vision else "has"
        kept = f"{not options.train_vision}, as so far: {last} {has} moments of the vision tower"
        text = f"{kept}. Leave train_vision and lora.rank as they were"
        yield make_problem("train-vision", options.train_vision, text)


def model_problems(model: str) -> Iterator[Problem]:
    """Yield what is wrong with the name of a model that is meant as a folder."""
    if text := folder_problem(model):
        yield Problem("model", text)


def needed_model(options: TrainOptions) -> str:
    """Return the model that a run begins with: once it has a checkpoint, that one, unless it needs its start as well.

    The reference policy is the start, and so are the weights beside adapters.
    """
    last = checkpoint.last(Path(options.resume)) if options.resume else None
    return str(last / "model") if last and not (options.kl or options.lora.rank) else options.model


def make_problem(name: str, value: object, allowed: str) -> Problem:
    """Write the message about a value that is not allowed."""
    return Problem(name, f"--{name} is {value}; it must be {allowed}.")
