"""`codev train` and `codev sft`: read options, then import what runs them. Torch is imported only after that."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from codev_agents.engines.lean import import_transformers
from codev_env.app.check import Status
from codev_env.app.options import Problem
from codev_env.errors import CodevError, ConfigError
from codev_train.run.config import OPTIONS, Request, read_file, read_request
from codev_train.run.options import SFTOptions, TrainOptions
from codev_train.run.processes import (
    SAID_S,
    Launch,
    follow_launcher,
    is_first,
    is_launched,
    launch,
    planned_processes,
    visible_gpus,
)


def _grow_in_place() -> None:
    """Let PyTorch's blocks of GPU memory grow: passes differ in length, and blocks for each length would pile up."""
    if not {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"} & set(os.environ):
        os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"


@contextlib.contextmanager
def _said_once() -> Iterator[None]:
    """Let the main process say first why a run ends: mostly the others would say the same, and are ended by then."""
    try:
        yield
    except CodevError as error:
        if not is_first() and not isinstance(error, KeyboardInterrupt):
            time.sleep(SAID_S)
        raise


@_said_once()
def sft(argv: Sequence[str]) -> int:
    """Run `codev sft`; returns the exit code."""
    request = read_request(argv)
    if request.dry_run:
        raise ConfigError("--dry-run is an option of `codev train`, which checks the cold start as well.")
    options = request.parse("sft", SFTOptions, "codev sft")
    if not options.ground.steps and not options.imitate.steps:
        raise ConfigError("nothing to learn: both stages have 0 steps. Use --preset tiny, or set --imitate.steps.")
    if _launched("sft", options, argv):
        return 0
    _grow_in_place()
    say = print if is_first() else lambda *_: None
    import_transformers()
    from codev_train.checks import check_sft
    from codev_train.learn.sharding import make_accelerator
    from codev_train.sft.start import are_starts, make_start, start_folder

    check_sft(options)
    folder = start_folder(options)
    make_accelerator()  # A `PartialState` that is made first is blind to ACCELERATE_USE_CPU.
    if are_starts(folder)[0]:
        say(f"This start exists already: {folder}. Remove the folder to make it again.")
        return 0
    if request.about:
        say(f"{request.about}\n")
    steps = f"{options.ground.steps} + {options.imitate.steps} steps, seed {options.seed}"
    say(f"Cold start from {options.model or 'random weights'}, {steps}: {folder}")
    make_start(options, folder)
    say(f"Start:       {folder}\nTrain it:    codev train --model {shlex.quote(str(folder))} …")
    return 0


@_said_once()
def train(argv: Sequence[str]) -> Path | None:
    """Run `codev train`; returns the run folder; `None` after `--dry-run` and in all but the main process."""
    started = time.perf_counter()
    asked = read_request(argv)
    request = _with_resumed_options(asked)
    if request.dry_run:
        _dry_run(request, [word for word in argv if word != "--dry-run"])
        return None
    options = request.parse("train", TrainOptions, "codev train")
    if _launched("train", options, argv):
        return None
    if options.engine != "vllm":  # whose sleep takes memory of fixed blocks
        _grow_in_place()
    import_transformers()
    from codev_train.experiment import run_experiment

    if options.resume and asked.layers:
        request = dataclasses.replace(request, ignored=len(asked.layers))
    return run_experiment(request, options, started)


def _launched(command: str, options: TrainOptions | SFTOptions, argv: Sequence[str]) -> bool:
    """Run the command in several processes, if options and GPUs ask for it; returns whether they did."""
    if is_launched():
        follow_launcher()
        return False
    if (number := planned_processes(options)) == 1:
        return False
    wanted = Launch(number, options.sharding, options.replicas, (command, *argv))
    print(f"Starting {number} processes (--processes 1 starts one), as by:")
    print(f"  {wanted.line(not visible_gpus())}\n", flush=True)
    if code := launch(wanted):
        raise SystemExit(code)
    return True


def _dry_run(request: Request, argv: Sequence[str]) -> None:
    options, problems = request.examine("train", TrainOptions, "codev train")
    import_transformers()
    from codev_train.checks import PlannedRun, look
    from codev_train.run.dryrun import dry_run, is_elsewhere

    lacking: Status = "warn" if is_elsewhere(options) else "fail"
    number = options.estimate.gpus
    try:
        number = number or planned_processes(options)
    except ConfigError as error:
        problems = [*problems, Problem("processes", str(error))]
    plan = PlannedRun(request, options, problems, max(1, number), dry=True, lacking=lacking)
    checks = look(plan)
    dry_run(options, checks, plan.size)
    print(f"Start:       {shlex.join(['codev', 'train', *argv])}")
    if number > 1:
        on_cpus = not options.estimate.gpus and not visible_gpus()
        wanted = Launch(number, options.sharding, options.replicas, ("train", *argv))
        print(f"By hand:     {wanted.line(on_cpus)}")


def _with_resumed_options(request: Request) -> Request:
    """Replace presets and files by the options that a run was started with, if it is resumed."""
    for layer in request.layers:
        if resumed := layer.get("train", {}).get("resume"):
            raise ConfigError(
                "a file sets resume, and its other options would replace those that the run was started with: "
                f"give --resume {shlex.quote(str(resumed))} on the command line."
            )
    given = dict[str, str]()
    for word, value in zip(request.arguments, (*request.arguments[1:], ""), strict=False):
        name, _, attached = word.partition("=")
        given[name] = attached or value
    folder = given.get("--resume", "")
    if folder and not folder.startswith("--"):  # else the parser refuses it
        run = Path(folder)
        if not run.exists():
            raise ConfigError(
                f"--resume: there is no folder {run}. A run that was stopped in its cold start has none yet: start "
                "it again with the same command."
            )
        if not (run / OPTIONS).is_file():
            raise ConfigError(f"--resume: {run} is not a run folder ({OPTIONS} is missing).")
        place = run.resolve()
        out, name = Path(given.get("--out", place.parent)).resolve(), given.get("--name", place.name)
        for option, changed in (("--out", out != place.parent), ("--name", name != place.name)):
            if changed:
                raise ConfigError(f"{option} cannot be changed by --resume: the run stays in {run}. Leave it out.")
        return dataclasses.replace(request, layers=(read_file(str(run / OPTIONS)),))
    return request
