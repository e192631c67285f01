"""A whole run: cold start, evaluation, training, the same evaluation again, and the folder that holds them."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import json
import shlex
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from accelerate import PartialState
from accelerate.utils import InitProcessGroupKwargs, broadcast_object_list

from codev_agents.engines import make_engine
from codev_agents.rollout.engine import ClosingEngine
from codev_agents.rollout.families import positions_of
from codev_env.files import write_json, write_text
from codev_env.trajectory import read_trajectories
from codev_train.checks import PlannedRun, check
from codev_train.evaluate import comparison, drop_evaluations, evaluate, scores
from codev_train.learn import checkpoint
from codev_train.learn.sharding import layout_of, make_accelerator
from codev_train.learn.trained import load_trained
from codev_train.run.config import OPTIONS, Request
from codev_train.run.environments import with_view
from codev_train.run.interrupt import INTERRUPTED, Interrupted
from codev_train.run.machine import cpu_threads, free_folder, make_folder
from codev_train.run.monitor import Monitor
from codev_train.run.options import TrainOptions
from codev_train.run.processes import ProcessLost, is_lost, launcher_advice, visible_gpus
from codev_train.run.resumed import changed_evaluation, continues, keep_evaluation_options, other_start
from codev_train.run.trackers import RunTracker
from codev_train.sft.start import find_start
from codev_train.tapo import tapo

PATIENCE = datetime.timedelta(hours=6)  # processes wait for the one whose episodes or judge are slowest
SUMMARY = "summary.json"


def run_experiment(request: Request, options: TrainOptions, started: float) -> Path | None:
    """Run `codev train` with these options.

    Args:
        request: The request that the options come from.
        options: The options.
        started: `time.perf_counter()` when the command started.

    Returns:
        The run folder; `None` in all but the main process.

    Raises:
        ConfigError: Options that cannot be used.
        Interrupted: The user stopped the run.
    """
    accelerator = make_accelerator(options.precision, [InitProcessGroupKwargs(timeout=PATIENCE)])
    plan = PlannedRun(request, options, processes=accelerator.num_processes, layout=layout_of(accelerator))
    check(plan, accelerator)
    # Of the main process, as all that is found on disk: others may see a new folder late.
    resume = broadcast_object_list([checkpoint.last(Path(options.resume)) if options.resume else None])[0]
    done = checkpoint.read_step(resume) if resume else 0
    run = Path(options.resume) if options.resume else free_folder(Path(options.out) / options.name)
    run = broadcast_object_list([run])[0]
    say = print if accelerator.is_main_process else lambda *_: None
    if options.resume and accelerator.is_main_process:
        for line in continues(run, resume, done):
            say(line)
    if resume and not _needs_start(options) and (known := other_start(run, options.model)):
        say(f"--model {options.model} is not read: the weights are those of the checkpoint.")
        options = dataclasses.replace(options, model=known)
    _announce(request, options, run, say)

    seconds = _read_seconds(run)
    with _timed(seconds, "cold start"):
        start = options.model or find_start(request, say, options.fresh)
    options = dataclasses.replace(options, fresh=False)  # a resumed run takes the same start
    make_folder(run.parent)
    trained = load_trained(options, start, resume, accelerator)
    policy = trained.policy
    if options.max_pixels:
        policy.processor.limit_pixels(options.max_pixels)
    # Longer episodes would end the run: no engine of vLLM takes them, and the model was not made for them.
    longest = positions_of(policy.model.config) or options.max_length
    options = dataclasses.replace(options, max_length=min(options.max_length, longest))
    engine = make_engine(
        options.engine,
        policy.model,
        policy.processor,
        options.engine_batch,
        options.seed,
        options.vllm,
        options.max_length,
        accelerator.device,
        apart=options.staleness > 0,
        version=done,
        in_flight=options.in_flight,
    )
    if resume:  # A resumption that is refused changes nothing: the options are written after that.
        checkpoint.load_optimizer(resume, policy.model, trained.optimizer)
    if accelerator.is_main_process:
        own, announced = dataclasses.replace(options, model=start, resume=""), run
        if options.resume:
            keep_evaluation_options(run)
            _write_options(run, request, own)
        else:
            run = _begin(request, own)
        if run != announced:
            say(f"Another run has taken the name meanwhile: this one is {run}.")
    run = broadcast_object_list([run])[0]
    if accelerator.is_main_process:
        checkpoint.prune(run, options.keep)  # A run killed after its last update writes no other checkpoint.
        drop_evaluations(run, done)
    options = dataclasses.replace(options, env=with_view(options.env, policy.processor.view_pixels))
    names = dict.fromkeys(options.trackers) if accelerator.is_main_process else ()
    monitor = Monitor(run, accelerator.is_main_process, done, [RunTracker(name, run, options) for name in names])
    if spent := _spent(monitor.history()):  # A run that was killed has noted no time, but a row for each update.
        seconds |= {name: max(seconds.get(name, 0.0), spent) for name in ("training", "total")}
    before_file = run / "before" / "metrics.json"
    evaluated = broadcast_object_list([before_file.exists()])[0]
    held_out = functools.partial(evaluate, engine, policy.processor, options, accelerator=accelerator)
    try:
        with _timed(seconds, "evaluation before"):
            if not evaluated:
                monitor.scalars(scores(held_out(run / "before", "before")), 0)
        with _timed(seconds, "training"), cpu_threads(options.threads):
            given = dataclasses.replace(options, model=start)
            finished = tapo(given, trained, engine, run, monitor, accelerator, done)
        if not finished and accelerator.is_main_process:
            seconds["total"] = seconds.get("total", 0.0) + time.perf_counter() - started
            write_json(run / "seconds.json", seconds)
        if not finished and not accelerator.is_main_process:
            raise SystemExit(INTERRUPTED)
        if not finished:
            raise Interrupted(f"stopped and saved. Continue with: codev train --resume {shlex.quote(str(run))}")
        with _timed(seconds, "evaluation after"):
            after = held_out(run / "after", "after")
            monitor.scalars(scores(after), options.steps)
        if not accelerator.is_main_process:
            return None
        with _timed(seconds, "saving"), checkpoint.replace_folder(run / "model") as partial:
            # The last checkpoint holds the same weights, whole, however many processes share them here.
            shutil.copytree(checkpoint.checkpoints(run)[-1] / "model", partial, dirs_exist_ok=True)
    except KeyboardInterrupt as error:
        if isinstance(error, Interrupted):
            raise
        saved = "training is saved" if checkpoint.checkpoints(run) else "no update is saved yet"
        raise Interrupted(f"stopped; {saved}. Continue with: codev train --resume {shlex.quote(str(run))}") from error
    except RuntimeError as error:
        if not is_lost(error):
            raise
        raise ProcessLost(
            f"another process of this run has ended or does not answer; its own output says why ({error}). Continue "
            f"with: codev train --resume {shlex.quote(str(run))}"
        ) from error
    finally:
        monitor.close()
        if isinstance(engine, ClosingEngine):
            engine.close()
    seconds["total"] = seconds.get("total", 0.0) + time.perf_counter() - started
    before = json.loads(before_file.read_text())
    _summarize(run, request, options, before, after, seconds)
    others = f" after and {before['n']} before" if before["n"] != after["n"] else ""
    say(f"\n{after['n']} held-out {options.eval.split} episodes{others}, 95 % intervals in brackets\n")
    say(comparison(before, after))
    say(f"\nPolicy:      {run / 'model'}\nNumbers:     {run / SUMMARY}")
    return run


def _announce(request: Request, options: TrainOptions, run: Path, say: Callable[[str], Any]) -> None:
    """Say what is going to happen."""
    if request.ignored:
        say(f"--preset and --config are not read again: {run / OPTIONS} holds; name single options that are to change.")
    if options.resume and (known := _other_start(run, options)):
        say(
            f"--model is {options.model} and was {known}: right only if it holds the same weights, since adapters and "
            "the KL term belong to these."
        )
    if options.resume and (changed := changed_evaluation(run, options)):
        say(f"{run / 'before'} is kept, though made with {_another(changed)}")
    if request.about:
        say(f"{request.about}\n")
    start = f"a cold start by SFT{'' if options.fresh else ', if it is not there yet'}"
    if options.model:
        start = f"the policy {options.model}"
    held_out = f"{options.eval.episodes} held-out {options.eval.split} tasks"
    episodes = options.prompts * options.group
    say(f"Run {run}, seed {options.seed}, environment {options.env.id.rpartition(':')[2]}:")
    say(f"  1. {start}")
    contrast = " ".join(f"{name} {value}" for name, value in options.eval.contrast.items())
    say(f"  2. evaluation on {held_out}" + (f", and on as many with {contrast}" if contrast else ""))
    say(f"  3. {options.steps} updates by TAPO, reward {options.reward!r}, {episodes} episodes each")
    say("  4. the same evaluation again, and a report\n")
    if advice := launcher_advice():
        say(f"{advice}\n")
    if PartialState().num_processes == 1 and (gpus := visible_gpus()) > 1:
        say(f"One process uses one of the {gpus} visible GPUs (--processes).\n")


def _another(changed: Sequence[str]) -> str:
    return f"another {', '.join(changed)}: before and after do not compare."


def _needs_start(options: TrainOptions) -> bool:
    """Whether a run that goes on needs the weights that it began with."""
    return bool(options.kl or options.lora.rank)


def _other_start(run: Path, options: TrainOptions) -> str:
    """The model that a run began with, if another is named now and weights of it are still needed; else empty."""
    return other_start(run, options.model) if _needs_start(options) else ""


def _write_options(run: Path, request: Request, options: TrainOptions) -> None:
    content = {"about": request.about, "train": dataclasses.asdict(options)}
    write_text(run / OPTIONS, yaml.safe_dump(content, sort_keys=False))


def _begin(request: Request, options: TrainOptions) -> Path:
    """Make the folder of a new run with its options; returns the first that is free.

    It is named when it is whole: without its options a run could not be resumed, and a name that is taken earlier would
    stay taken after a kill.
    """
    wanted = Path(options.out) / options.name
    made = wanted.with_name(f".{wanted.name}.{uuid.uuid4().hex}")
    with checkpoint.replace_folder(made, again="start again with the same command") as partial:
        _write_options(partial, request, options)
    while True:
        run = free_folder(wanted)
        try:
            return made.rename(run)
        except OSError:  # another run has begun as this one just now
            if not run.exists():
                raise


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
    if changed := changed_evaluation(run, options):
        summary["evaluation_before"] = f"with {_another(changed)}"
    write_json(run / SUMMARY, summary)


def _read_seconds(run: Path) -> dict[str, float]:
    path = run / "seconds.json"
    return json.loads(path.read_text()) if path.exists() else {}


def _spent(history: Sequence[Mapping[str, Any]]) -> float:
    """Return the seconds that the updates of a history took, and the evaluations between them."""
    parts = [f"seconds/{name}" for name in ("rollouts", "waiting", "update", "evaluation")]
    return float(sum(row.get(part) or 0.0 for row in history for part in parts))


@contextlib.contextmanager
def _timed(seconds: dict[str, float], phase: str) -> Iterator[None]:
    started = time.perf_counter()
    try:
        yield
    finally:
        seconds[phase] = seconds.get(phase, 0.0) + time.perf_counter() - started
