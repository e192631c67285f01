"""The cold start: supervised learning of the skills that reinforcement learning improves on."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import gymnasium as gym
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from tqdm import tqdm

from codev_agents.engines.batch import bucket, collate, to_device
from codev_agents.engines.policy import Policy
from codev_agents.engines.toy import build_image_processor, build_model, build_tokenizer
from codev_agents.engines.vision import speed_up
from codev_agents.engines.weights import is_sharded
from codev_agents.rollout.families import positions_of
from codev_agents.rollout.tokens import ChatProcessor
from codev_env.envs.image_tool import unwrap
from codev_env.errors import CodevError, ConfigError
from codev_env.trajectory import Trajectory
from codev_train.learn.optimizer import learning_rate, make_optimizer, set_learning_rate
from codev_train.learn.scorer import TokenScorer
from codev_train.learn.sharding import prepare, reads_weights
from codev_train.run.environments import make_env
from codev_train.run.monitor import Monitor
from codev_train.run.options import SFTOptions, StageOptions
from codev_train.sft.examples import TOY, Example, ExampleMaker, StageData, corpus, named_objects, read_recorded

CORPUS_SCENES = 400
STAGES = ("ground", "imitate")
_LOOKED_AT = 8
"""Scenes of each stage that are looked at before anything is learned."""


def check_stages(options: SFTOptions) -> None:
    """Make the scenes of all stages: an error of the last one would cost what the others have learned.

    Raises:
        ConfigError: Scenes of a stage have no such options, or no names for a toy, or for captions and reads.
    """
    make_env(options.env, "train").close()
    for name in STAGES:
        stage: StageOptions = getattr(options, name)
        if not stage.steps:
            continue
        try:
            env = _honest_env(options, stage)
        except ConfigError as error:
            raise ConfigError(f"{name}.scene or {name}.objects: {error}") from error
        tasks = unwrap(env).tasks
        if not options.model or stage.captions or stage.reads:
            for number in range(min(_LOOKED_AT, options.pool, len(tasks))):
                made = (f"captions and reads of {name} are",) if options.model else TOY
                named_objects(tasks[number], *made)
        env.close()


def toy_policy(options: SFTOptions, shown: bool = True) -> Policy:
    """Make a toy policy from random weights, with a tokenizer trained on the environment's texts.

    Args:
        options: Those of the cold start.
        shown: Show how many scenes were read: large ones take minutes.
    """
    env = unwrap(make_env(options.env, split="train"))
    scenes = tqdm(range(min(CORPUS_SCENES, len(env.tasks))), "cold start: words of scenes", disable=not shown)
    tasks = (env.tasks[number] for number in scenes)
    tokenizer = build_tokenizer(*corpus(tasks, env.dialect, options.snap))
    model = build_model(options.toy, tokenizer, options.seed)
    speed_up(model)
    return Policy(model, ChatProcessor(tokenizer, build_image_processor(options.toy)))


def cold_start(options: SFTOptions, monitor: Monitor, accelerator: Accelerator) -> Policy:
    """Run all stages and return the policy; nothing is saved here.

    Raises:
        CodevError: The gradient is not finite, or no example is short enough.
    """
    recorded = read_recorded(options)
    whole = reads_weights(accelerator)
    shown = accelerator.is_main_process
    dtype = torch.bfloat16 if options.has_bf16_base else torch.float32
    policy = Policy.load(options.model, dtype, whole) if options.model else toy_policy(options, shown)
    policy.restrict(options.train_vision, options.lora, seed=options.seed)
    if options.gradient_checkpointing:
        policy.checkpoint_gradients()
    longest = positions_of(policy.model.config) or options.max_length
    options = dataclasses.replace(options, max_length=min(options.max_length, longest))
    module = prepare(accelerator, TokenScorer(policy.model))
    for number, name in enumerate(STAGES):
        stage: StageOptions = getattr(options, name)
        if stage.steps:
            _run_stage(module, policy, options, recorded, name, number, monitor, accelerator)
    return policy


def _run_stage(
    module: Any,
    policy: Policy,
    options: SFTOptions,
    recorded: Sequence[Trajectory],
    name: str,
    number: int,
    monitor: Monitor,
    accelerator: Accelerator,
) -> None:
    stage: StageOptions = getattr(options, name)
    optimizer = make_optimizer(module, stage.optimizer)
    seed = (options.seed, number, accelerator.process_index)
    data = StageData(
        functools.partial(example_maker, options, stage, policy.processor, recorded), stage, options.pool, seed
    )
    # One process of its own makes the data while this one trains.
    loader: Iterable[list[Example] | CodevError] = DataLoader(data, batch_size=None, num_workers=1, prefetch_factor=4)
    progress = tqdm(desc=f"cold start: {name}", total=stage.steps, disable=not accelerator.is_main_process)
    with progress as bar, _named_loader(name):
        average = math.nan
        for step, examples in enumerate(loader):
            if isinstance(examples, CodevError):
                raise examples
            bar.total = max(stage.steps, step + 1)
            set_learning_rate(optimizer, learning_rate(stage.optimizer, min(step, stage.steps), stage.steps))
            own = accumulate(module, policy.processor, examples, options.micro_batch, accelerator, options.precision)
            loss = float(accelerator.reduce(torch.tensor(own, device=accelerator.device)))
            norm = float(accelerator.clip_grad_norm_(module.parameters(), stage.optimizer.grad_clip))
            if not math.isfinite(norm):
                raise CodevError(
                    f"the gradient norm of step {step + 1} of {name} is {norm}; lower {name}.optimizer.lr. Nothing of "
                    "this cold start is saved."
                )
            optimizer.step()
            optimizer.zero_grad()
            average = loss if step == 0 else 0.95 * average + 0.05 * loss
            bar.set_postfix(loss=f"{average:.3f}", refresh=False)
            bar.update()
            monitor.scalars({f"sft/{name}/loss": loss, f"sft/{name}/grad_norm": norm}, step)
            if step + 1 >= stage.steps and average <= stage.until:
                break
    if (count := data.left_out.value) and accelerator.is_main_process:
        tqdm.write(
            f"{name}: {count} example{' has' if count == 1 else 's have'} more tokens than --max-length "
            f"{options.max_length} and {'was' if count == 1 else 'were'} left out.",
            file=sys.stderr,
        )
    if stage.more and average > stage.until and accelerator.is_main_process:
        tqdm.write(
            f"The loss of {name} is {average:.3f} after {stage.steps + stage.more} steps, above {name}.until "
            f"{stage.until:g}: this policy may be too weak to learn from its rewards. Try another --seed, or raise "
            f"sft.{name}.more.",
            file=sys.stderr,
        )


@contextlib.contextmanager
def _named_loader(stage: str) -> Iterator[None]:
    """Name the process that has ended: PyTorch says so in the middle of whatever is computed."""
    try:
        yield
    except RuntimeError as error:
        if not str(error).startswith("DataLoader worker"):
            raise
        reason = str(error).strip().rstrip(".")
        raise CodevError(
            f"the process that makes the examples of {stage} has ended, perhaps for lack of memory ({reason}). Nothing "
            "of this cold start is saved."
        ) from error


def accumulate(
    module: Any,
    processor: ChatProcessor,
    examples: list[Example],
    micro_batch: int,
    accelerator: Accelerator,
    precision: str = "fp32",
) -> float:
    """Accumulate the gradient of the weighted mean negative log-likelihood; returns its value.

    The examples are those of this process; the mean is over the examples of all processes.
    """
    count = float(sum(w > 0 for e in examples for w in e.weights))
    total = float(accelerator.reduce(torch.tensor(count, device=accelerator.device)))
    value = 0.0
    module.train()
    batches = bucket([len(e.ids) for e in examples], micro_batch)
    passes, sharded = len(batches), is_sharded(module)
    if sharded:
        # Processes that share the weights meet in every layer: all of them run the same number of passes.
        passes = int(accelerator.gather(torch.tensor([passes], device=accelerator.device)).max())
    for number in range(passes):
        # Without a batch of its own, a process repeats its shortest one and adds nothing.
        counts = number < len(batches)
        part = [examples[row] for row in batches[number if counts else 0]]
        batch = collate([e.ids for e in part], [e.images for e in part], processor.pad_id, processor.image_id)
        batch = to_device(batch, accelerator.device)
        weights = torch.zeros(batch["input_ids"].shape)
        for row, example in enumerate(part):
            weights[row, : len(example.weights)] = torch.tensor(example.weights)
        weights = weights.to(accelerator.device)
        # Whole gradients are added up once, in the last pass; sharded ones in every pass.
        reduces = sharded or number + 1 == passes
        with contextlib.nullcontext() if reduces else accelerator.no_sync(module):
            # Accelerate's own precision is that of the run that makes this start, see `make_start`.
            half = precision == "bf16"
            with torch.autocast(accelerator.device.type, torch.bfloat16, half, cache_enabled=not sharded):
                logprobs, _ = module(batch, weights > 0, banned=tuple(processor.banned_ids))
            loss = -(logprobs * weights[weights > 0]).sum() / total * counts
            accelerator.backward(loss * accelerator.num_processes)
        value += loss.item()
    return value


def example_maker(
    options: SFTOptions, stage: StageOptions, processor: ChatProcessor, recorded: Sequence[Trajectory]
) -> ExampleMaker:
    """Make environments inside the loader process, which must not fight the trainer for the cores."""
    torch.set_num_threads(1)
    envs = make_env(options.env, "train"), _honest_env(options, stage)
    return ExampleMaker(options, processor, envs, recorded)


def _honest_env(options: SFTOptions, stage: StageOptions) -> gym.Env[Any, Any]:
    """Make the environment of all but the decorative episodes of a stage."""
    scene: dict[str, Any] = {**options.env.scene, **stage.scene}
    if any(stage.objects):
        scene["objects"] = stage.objects
    return make_env(options.env, "train", scene=scene)
