"""`codev train` and `codev sft`: parse options, say what will happen, run, leave a run folder behind."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from accelerate import Accelerator
from accelerate.utils import DistributedType, InitProcessGroupKwargs, broadcast_object_list, set_seed

from codev_agents.engines import make_engine
from codev_agents.engines.policy import Policy
from codev_env.errors import CodevError, ConfigError
from codev_env.files import write_json, write_text
from codev_env.trajectory import read_trajectories
from codev_train.checks import check, check_judge, check_sft
from codev_train.evaluate import comparison, evaluate
from codev_train.learn import checkpoint
from codev_train.run.config import Request, fingerprint, read_file, read_request
from codev_train.run.dryrun import dry_run
from codev_train.run.monitor import Monitor
from codev_train.run.options import SFTOptions, TrainOptions
from codev_train.sft.cold_start import cold_start
from codev_train.tapo import tapo

OPTIONS = "options.yaml"
PATIENCE = datetime.timedelta(hours=6)  # other processes wait while the main one evaluates
SUMMARY = "summary.json"


class Interrupted(CodevError, KeyboardInterrupt):
    """The user stopped the run; the message says how to go on."""


def sft(argv: Sequence[str]) -> int:
    """Run `codev sft`; returns the exit code."""
    request = read_request(argv)
    if request.dry_run:
        raise ConfigError("--dry-run is an option of `codev train`, which looks at the cold start as well.")
    options = request.parse("sft", SFTOptions, "codev sft")
    if not options.ground.steps and not options.imitate.steps:
        raise ConfigError("nothing to learn: both stages have 0 steps. Use --preset tiny, or set --imitate.steps.")
    check_sft(options)
    folder = start_folder(options)
    if (folder / "config.json").exists():
        print(f"This start exists already: {folder}. Remove the folder to make it again.")
        return 0
    if request.about:
        print(f"{request.about}\n")
    steps = f"{options.ground.steps} + {options.imitate.steps} steps, seed {options.seed}"
    print(f"Cold start from {options.model or 'random weights'}, {steps}: {folder}")
    make_start(options, folder)
    print(f"Start:       {folder}\nTrain it:    codev train --model {folder} …")
    return 0


def train(argv: Sequence[str]) -> Path | None:
    """Run `codev train`; returns the run folder, on other than the main process and after `--dry-run` nothing."""
    started = time.perf_counter()
    asked = read_request(argv)
    request = _with_resumed_options(asked)
    options = request.parse("train", TrainOptions, "codev train")
    if request.dry_run:
        dry_run(request, options)
        return None
    mixed = "bf16" if options.precision == "bf16" else "no"
    accelerator = Accelerator(mixed_precision=mixed, kwargs_handlers=[InitProcessGroupKwargs(timeout=PATIENCE)])
    check(options, accelerator.num_processes)
    check_judge(options)
    resume = checkpoint.last(Path(options.resume)) if options.resume else None
    done = checkpoint.read_step(resume) if resume else 0
    if options.steps < done:
        raise ConfigError(
            f"--steps is {options.steps}, but {done} updates of {options.resume} are done: give {done} or more."
        )
    run = Path(options.resume) if options.resume else _free_folder(Path(options.out) / options.name)
    run = broadcast_object_list([run])[0]
    say = print if accelerator.is_main_process else lambda *_: None
    if options.resume and asked.layers:
        say(f"--preset and --config are not read again: {run / OPTIONS} holds; name single options that are to change.")
    _announce(request, options, run, say)

    seconds = _read_seconds(run)
    with _timed(seconds, "cold start"):
        start = options.model or _find_start(request, say)
    _make_folder(run.parent)
    policy = _load_policy(options, start, resume)
    policy.model.to(accelerator.device)
    engine = make_engine(
        options.engine,
        policy.model,
        policy.processor,
        options.engine_batch,
        options.seed,
        options.vllm,
        options.max_length,
    )
    if accelerator.is_main_process:
        _write_options(run, request, dataclasses.replace(options, model=start, resume=""))
        checkpoint.prune(run, options.keep)  # A run killed after its last update writes no other checkpoint.
    monitor = Monitor(run, accelerator.is_main_process, done)
    before_file = run / "before" / "metrics.json"
    if resume and not before_file.exists():
        raise ConfigError(f"resume: {before_file} is missing, so there is nothing to compare with; start a new run.")
    # The main process evaluates; the others meet it again at the first reduction.
    try:
        with _timed(seconds, "evaluation before"):
            if accelerator.is_main_process and not before_file.exists():
                before = evaluate(engine, policy.processor, options, run / "before", "before")
                write_json(before_file, before)
        with _timed(seconds, "training"), _threads(options.threads):
            given = dataclasses.replace(options, model=start)
            finished = tapo(given, policy, engine, run, monitor, accelerator, resume)
        if not finished and accelerator.is_main_process:
            seconds["total"] = seconds.get("total", 0.0) + time.perf_counter() - started
            write_json(run / "seconds.json", seconds)
        if not finished:
            raise Interrupted(f"stopped and saved. Continue with: codev train --resume {run}")
        if not accelerator.is_main_process:
            return None
        with _timed(seconds, "evaluation after"):
            after = evaluate(engine, policy.processor, options, run / "after", "after")
        before = json.loads(before_file.read_text())
        with _timed(seconds, "saving"), checkpoint.replace_folder(run / "model") as partial:
            # The last checkpoint holds the same weights, whole, whatever number of processes share them out here.
            shutil.copytree(checkpoint.checkpoints(run)[-1] / "model", partial, dirs_exist_ok=True)
    except KeyboardInterrupt as error:
        if isinstance(error, Interrupted):
            raise
        saved = "training is saved" if checkpoint.checkpoints(run) else "no update is saved yet"
        raise Interrupted(f"stopped; {saved}. Continue with: codev train --resume {run}") from error
    finally:
        monitor.close()
    seconds["total"] = seconds.get("total", 0.0) + time.perf_counter() - started
    _summarize(run, request, options, before, after, seconds)
    say(f"\n{options.eval.episodes} held-out {options.eval.split} episodes, 95 % intervals in brackets\n")
    say(comparison(before, after))
    say(f"\nPolicy:      {run / 'model'}\nNumbers:     {run / SUMMARY}")
    return run


def _load_policy(options: TrainOptions, start: str, resume: Path | None) -> Policy:
    # A saved model has its adapters merged: they are trained on beside the weights that they were started with.
    policy = Policy.load(str(resume / "model") if resume and not options.lora.rank else start)
    policy.restrict(options.train_vision, options.lora, resume / "model" if resume else None)
    if options.gradient_checkpointing:
        policy.model.gradient_checkpointing_enable()
    return policy


def _summarize(
    run: Path,
    request: Request,
    options: TrainOptions,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    seconds: Mapping[str, float],
) -> None:
    summary = {
        "name": run.name,
        "about": request.about,
        "source": read_trajectories(run / "after")[0].source,
        "seed": options.seed,
        "before": before,
        "after": after,
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
        "options": dataclasses.asdict(options),
    }
    write_json(run / SUMMARY, summary)


def start_folder(options: SFTOptions) -> Path:
    """Return where the result of a cold start lies: its name stands for all its options."""
    return Path(options.out) / f"{options.name}-seed{options.seed}-{fingerprint(options)}"


def make_start(options: SFTOptions, folder: Path) -> None:
    """Run the cold start and write the policy to `folder`."""
    _make_folder(folder.parent)
    set_seed(options.seed)
    accelerator = Accelerator(mixed_precision="no")
    if accelerator.distributed_type == DistributedType.DEEPSPEED:
        raise ConfigError(
            "the cold start does not run under DeepSpeed, which shares a model out once: make it first with codev sft "
            "in one process or with FSDP2, and give --model."
        )
    monitor = Monitor(folder.with_name(folder.name + "-log"), accelerator.is_main_process)
    try:
        with _threads(options.threads):
            policy = cold_start(options, monitor, accelerator)
    except KeyboardInterrupt as error:
        message = "stopped in the cold start, of which nothing is saved. Start again with the same command."
        raise Interrupted(message) from error
    finally:
        monitor.close()
    if not accelerator.is_main_process:
        policy.save(None)
    else:
        with checkpoint.replace_folder(folder) as partial:
            policy.save(partial)
            (partial / "sft.json").write_text(json.dumps(dataclasses.asdict(options), indent=1))
    accelerator.wait_for_everyone()


def _find_start(request: Request, say: Any) -> str:
    """Return the cold start of the same preset, made first if it is missing."""
    options = request.parse("sft", SFTOptions, "codev sft", own=False)
    if not options.ground.steps and not options.imitate.steps:
        raise ConfigError("model is empty and the preset has no cold start; give --model FOLDER or --preset tiny.")
    folder = start_folder(options)
    if (folder / "config.json").exists():
        say(f"Cold start: taking {folder}, made before.")
    else:
        say(f"Cold start: {folder} is not there yet, making it first (codev sft).")
        make_start(options, folder)
    return str(folder)


def _announce(request: Request, options: TrainOptions, run: Path, say: Any) -> None:
    """Say what is going to happen."""
    if request.about:
        say(f"{request.about}\n")
    start = f"the policy {options.model}" if options.model else "a cold start by SFT, if it is not there yet"
    held_out = f"{options.eval.episodes} held-out {options.eval.split} tasks"
    episodes = options.prompts * options.group
    say(f"Run {run}, seed {options.seed}, environment {options.env.id.rpartition(':')[2]}:")
    say(f"  1. {start}")
    say(f"  2. evaluation on {held_out}")
    say(f"  3. {options.steps} updates by TAPO, reward {options.reward!r}, {episodes} episodes each")
    say("  4. the same evaluation again, and a report\n")


def _with_resumed_options(request: Request) -> Request:
    """Put the options a run was started with under the command line, in the place of presets, if it resumes one."""
    for word, value in zip(request.arguments, (*request.arguments[1:], ""), strict=False):
        name, _, attached = word.partition("=")
        if name == "--resume":
            run = Path(attached or value)
            if not run.exists():
                raise ConfigError(
                    f"resume: there is no folder {run}. A run that was stopped in its cold start has none yet: start "
                    "it again with the same command."
                )
            if not (run / OPTIONS).is_file():
                raise ConfigError(f"resume: {run} is not a run folder ({OPTIONS} is missing).")
            return dataclasses.replace(request, layers=(read_file(str(run / OPTIONS)),))
    return request


def _write_options(run: Path, request: Request, options: TrainOptions) -> None:
    content = {"about": request.about, "train": dataclasses.asdict(options)}
    text = yaml.safe_dump(content, sort_keys=False)
    if run.exists():
        write_text(run / OPTIONS, text)
    else:  # A run folder never lacks its options: without them it could not be resumed.
        with checkpoint.replace_folder(run) as partial:
            (partial / OPTIONS).write_text(text, encoding="utf-8")


def _make_folder(out: Path) -> None:
    """Make the folder of all runs; raises `ConfigError` where that cannot be done."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {out} cannot be made: {error.strerror}. Give another folder.") from error


def _free_folder(wanted: Path) -> Path:
    """Return `wanted`, or the same with the first number that is free: an earlier run is never written over."""
    folder, number = wanted, 2
    while folder.exists():
        folder, number = wanted.with_name(f"{wanted.name}-{number}"), number + 1
    return folder


@contextlib.contextmanager
def _threads(threads: int) -> Iterator[None]:
    """Use this many CPU threads inside; 0 leaves torch's choice."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _read_seconds(run: Path) -> dict[str, float]:
    path = run / "seconds.json"
    return json.loads(path.read_text()) if path.exists() else {}


@contextlib.contextmanager
def _timed(seconds: dict[str, float], phase: str) -> Iterator[None]:
    started = time.perf_counter()
    try:
        yield
    finally:
        seconds[phase] = seconds.get(phase, 0.0) + time.perf_counter() - started
