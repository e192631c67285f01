"""Checks before anything is trained or written: a run stops at failures, `--dry-run` prints all of them."""

from __future__ import annotations

import importlib.util
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.utils import gather_object

from codev_agents.engines.folders import model_advice
from codev_env.app import sandbox_check
from codev_env.app.check import Check, Status
from codev_env.app.options import OptionError, Problem
from codev_env.envs.image_tool import unwrap
from codev_env.errors import CodevError, ConfigError
from codev_env.judges import ServedJudge, get_judge
from codev_env.types import Answer, Code
from codev_train.learn import checkpoint
from codev_train.learn.sharding import Layout
from codev_train.problems import (
    find_problems,
    kept_problems,
    make_problem,
    model_problems,
    needed_model,
    shape_problems,
)
from codev_train.publish import hub_checks
from codev_train.run import estimate
from codev_train.run.config import Request
from codev_train.run.environments import make_env
from codev_train.run.machine import existing, gpu_check, held_bytes, room_check
from codev_train.run.model_files import cache_folder, hub_problem, is_here, missing_file
from codev_train.run.model_size import family_problem, find_size, measure
from codev_train.run.options import SFTOptions, TrainOptions
from codev_train.run.processes import SAID_S as _SAID_S
from codev_train.run.servers import look_for_servers
from codev_train.run.shared_folder import is_seen, marker
from codev_train.run.sizes import ModelSize
from codev_train.run.trackers import tracker_checks
from codev_train.sft.cold_start import check_stages, toy_policy
from codev_train.sft.start import kept_start
from codev_train.task_checks import task_checks

_AGAIN = "fails like "


@dataclass
class PlannedRun:
    """A planned run.

    Attributes:
        request: The request that the options come from.
        options: The options, with defaults in place of values that cannot be used.
        problems: What is wrong with the values.
        processes: How many processes share each update.
        layout: How their launcher makes them hold the weights; None if they are not started yet.
        dry: Whether this is a dry run, which also looks at what takes seconds and waits for no server.
        lacking: Status of something that this machine lacks: a warning if the run is meant for another one.
        size: Size of its model, once it is known.
    """

    request: Request
    options: TrainOptions
    problems: Sequence[Problem] = ()
    processes: int = 1
    layout: Layout | None = None
    dry: bool = False
    lacking: Status = "fail"
    size: ModelSize | None = None


def look(plan: PlannedRun) -> list[Check]:
    """Make all checks; an error that several of them meet is written out once."""
    return _look(plan, (*_MACHINE, *_SERVERS))


def check(plan: PlannedRun, accelerator: Accelerator) -> None:
    """Stop a run that cannot work: all its processes, with one message.

    One process of each machine looks at the machine; when nothing is wrong, the main process looks at the servers.

    Raises:
        ConfigError: Something would stop the run; the message says all that was found.
        SystemExit: With code 1, in all but the main process.
    """
    _stop_together(_look(plan, _MACHINE) if accelerator.is_local_main_process else [], accelerator)
    with marker(Path(plan.options.resume or plan.options.out), accelerator) as file:
        _stop_together(list(_shared(file)) if accelerator.is_local_main_process else [], accelerator)
    _stop_together(_look(plan, _SERVERS) if accelerator.is_main_process else [], accelerator)


def _stop_together(found: list[Check], accelerator: Accelerator) -> None:
    failed = [c for c in gather_object(found) if c.status == "fail" and not c.detail.startswith(_AGAIN)]
    if failed and accelerator.is_main_process:
        raise ConfigError(" ".join(dict.fromkeys(map(_sentence, failed))))
    if failed:
        time.sleep(_SAID_S)
        raise SystemExit(1)


def check_sft(options: SFTOptions) -> None:
    """Check the options of `codev sft` likewise; raises `ConfigError` and `TaskError`."""
    problems = list(model_problems(options.model))
    if options.trajectories and not Path(options.trajectories).is_dir():
        problems.append(make_problem("trajectories", options.trajectories, "a folder that exists"))
    if problems:
        raise OptionError(problems)
    failed = [c for c in (*_packages_of(options), *_presence(options.model, "hf", "fail")) if c.status == "fail"]
    if failed:
        raise ConfigError(" ".join(map(_sentence, failed)))
    check_stages(options)


def _values(plan: PlannedRun) -> Iterator[Check]:
    problems = [*plan.problems, *find_problems(plan.options, plan.processes, plan.layout)]
    for problem in problems:
        yield Check("options", problem.name.replace("_", "-"), "fail", problem.text)
    if not problems:
        yield Check("options", "values", "ok", "all within their ranges")


def _resumed(plan: PlannedRun) -> Iterator[Check]:
    """Look whether a run that is resumed has what it continues from."""
    options, run = plan.options, Path(plan.options.resume)
    last = checkpoint.last(run) if options.resume else None
    if last is None:
        return
    done, before = checkpoint.read_step(last), run / "before" / "metrics.json"
    for problem in kept_problems(options, last):
        yield Check("options", problem.name, "fail", problem.text)
    if options.steps < done:
        text = f"--steps is {options.steps}, but {done} updates of {run} are done: give {done} or more."
        yield Check("options", "steps", "fail", text)
    elif not before.exists():
        text = f"--resume: {before} is missing, so there is nothing to compare with; start a new run."
        yield Check("options", "resume", "fail", text)
    else:
        yield Check("options", "resume", "ok", f"{done} updates of {run} are done")


def _packages(plan: PlannedRun) -> Iterator[Check]:
    options = plan.options
    if options.lora.rank:
        yield _package("--lora.rank", "lora.rank", "peft", "lora")
    if options.optimizer.name == "adamw8bit":
        yield _package("--optimizer.name adamw8bit", "optimizer.name", "torchao", "lowbit")


def _packages_of(options: SFTOptions) -> Iterator[Check]:
    if options.lora.rank:
        yield _package("--lora.rank", "lora.rank", "peft", "lora")
    for name, stage in (("ground", options.ground), ("imitate", options.imitate)):
        if stage.steps and stage.optimizer.name == "adamw8bit":
            option = f"{name}.optimizer.name"
            yield _package(f"--{option} adamw8bit", option, "torchao", "lowbit")


def _package(option: str, name: str, package: str, extra: str) -> Check:
    if importlib.util.find_spec(package) is None:
        detail = f"{option} needs {package}, which is not installed"
        return Check("options", name, "fail", detail, f'pip install "codev-env[{extra}]"')
    return Check("options", name, "ok", f"{package} is installed")


def _tasks(plan: PlannedRun) -> Iterator[Check]:
    yield from task_checks(plan.options, plan.dry)


def _episode(plan: PlannedRun) -> Iterator[Check]:
    """Run an episode of a crop and an answer. Its reward needs no judge: the judge has a check of its own."""
    env: Any = make_env(replace(plan.options.env, judge="none"), "train", "outcome")
    try:
        first, _ = env.reset(options={"index": 0})
        dialect, (width, height) = unwrap(env).dialect, unwrap(env).task.image.size
        crop: Code = dialect.crop((width // 4, height // 4, 3 * width // 4, 3 * height // 4))
        second, _, ended, cut, _ = env.step(dialect.write(crop))
        shown = [f"{image.shape[1]}x{image.shape[0]}" for image in second["images"]]
        if not (ended or cut):
            _, _, ended, cut, _ = env.step(dialect.write(Answer("1")))
        if not shown or not (ended or cut):
            yield Check("environment", "episode", "fail", f"a crop showed {shown or 'nothing'}: {second['text'][:200]}")
        else:
            images = ", ".join(f"{image.shape[1]}x{image.shape[0]}" for image in first["images"])
            yield Check("environment", "episode", "ok", f"an image of {images}, a crop of {shown[0]}, an answer")
    finally:
        env.close()


def _sandbox(plan: PlannedRun) -> Iterator[Check]:
    if plan.dry:  # in a run, the episode has shown that it works
        yield from sandbox_check.sandbox()


def _engine(plan: PlannedRun) -> Iterator[Check]:
    match plan.options.engine:
        case "hf":
            yield Check("engine", "hf", "ok", "samples with the training model itself")
        case "vllm" if importlib.util.find_spec("vllm") is None:
            detail = "--engine vllm needs vLLM, which is not installed"
            yield Check("engine", "vllm", plan.lacking, detail, 'pip install "codev-env[vllm]"')
        case "vllm":
            yield Check("engine", "vllm", "ok", "vLLM is installed")


def _model(plan: PlannedRun) -> Iterator[Check]:
    options, name, what = plan.options, needed_model(plan.options), ""
    if not name:
        start = plan.request.start_options()
        done, what = None if options.fresh else kept_start(start), "a cold start"
        name = str(done or start.model)
        if not done:
            yield from _packages_of(start)
            check_stages(start)
    if not name:
        if plan.dry:
            plan.size = measure(toy_policy(plan.request.start_options()).model, "toy")
            what = f"a cold start, {_count(plan.size.parameters)} parameters"
        yield Check("model", "model", "ok", what)
        yield from _shape(options, start.toy.heads)
        return
    found = list(_presence(name, options.engine, plan.lacking))
    yield from found
    if any(check.status == "fail" for check in found):
        return
    try:
        plan.size = find_size(name)
    except ConfigError as error:
        yield Check("model", "size", plan.lacking if plan.dry else "warn", str(error))
        return
    detail = f"{what or name}: {_count(plan.size.parameters)} parameters, {_count(plan.size.vision)} of them see"
    yield Check("model", "size", "ok", detail)
    yield from _shape(options, plan.size.heads, plan.size.linear, plan.size.positions)
    if not is_here(name):
        advice = "set HF_HUB_CACHE to a folder on another disk"
        yield room_check(cache_folder(), 2.0 * plan.size.parameters, "the download", plan.lacking, advice)


def _shape(options: TrainOptions, heads: int, linear: int = 0, positions: int = 0) -> Iterator[Check]:
    for problem in shape_problems(options, heads, linear, positions):
        yield Check("options", problem.name, "fail", problem.text)
    if 0 < positions < options.max_length:
        detail = f"--max-length is {options.max_length}: episodes are cut off at the model's {positions} positions"
        yield Check("model", "max-length", "warn", detail)


def _presence(name: str, engine: str, lacking: Status) -> Iterator[Check]:
    """Look for the files of a model; its config.json alone says whether it is of a tested family."""
    if not name:
        return
    missing = missing_file(name)
    has_config = missing != "config.json"
    if not missing:
        yield Check("model", "model", "ok", f"{name} is on this machine")
    elif Path(name).is_dir():
        detail = f"--model {name} holds no whole model: {missing} is missing"
        yield Check("model", "model", "fail", detail, model_advice(Path(name)))
    elif problem := hub_problem(name):
        yield Check("model", "model", lacking, f"--model {name}: {problem}", "download it first, or give a folder")
    else:
        has_config = True
        yield Check("model", "model", "warn", f"{name} is not on this machine", "the run downloads it")
    if has_config and (problem := family_problem(name, engine)):
        yield Check("model", "family", "fail", f"--model {name}: {problem}")


def _folder(plan: PlannedRun) -> Iterator[Check]:
    options = plan.options
    place = existing(Path(options.resume or options.out))
    try:
        # Made and removed at once: `os.access` says yes to root even where nothing can be made, as in /proc.
        tempfile.TemporaryDirectory(prefix=".codev-", dir=place).cleanup()
    except OSError as error:
        detail = f"--out: {place} cannot be written: {error.strerror}"
        yield Check("machine", "run folder", "fail", detail, "give --out FOLDER")
        return
    wanted, what = 0.0, f"{options.keep + 1} checkpoints and the model"
    if plan.size:
        wanted = estimate.checkpoint_bytes(plan.size, options)
    there = held_bytes(place) if options.resume else 0.0
    what += ", beside what is there" if there else ""
    advice = "free some disk space" if options.resume else "give --out a folder on another disk"
    yield room_check(place, max(0.0, wanted - there), what, plan.lacking, f"lower --keep, or {advice}")
    if options.engine == "vllm-server" and plan.size:
        shared = Path(options.vllm.folder or tempfile.gettempdir())
        pushed = 2.0 * (4 if options.vllm.dtype == "float32" else 2) * plan.size.parameters
        advice = "give --vllm.folder a folder on another disk that the server shares"
        yield room_check(shared, pushed, "two pushes of weights to the server", plan.lacking, advice)


def _gpu(plan: PlannedRun) -> Iterator[Check]:
    if not plan.dry and plan.size and (found := gpu_check(plan.size, plan.options, plan.processes)):
        yield found


def _shared(file: Path) -> Iterator[Check]:
    if not is_seen(file):
        where = f"{socket.gethostname()} in {existing(file.parent)}"
        detail = f"--out: a file that the main process writes in {file.parent} is not seen by {where}"
        advice = "all machines need the same --out on one shared file system: docs/training.md"
        yield Check("machine", "shared folder", "fail", detail, advice)


def _judge(plan: PlannedRun) -> Iterator[Check]:
    judge = get_judge(plan.options.env.judge)
    if not isinstance(judge, ServedJudge):
        yield Check("judge", judge.name, "ok", "needs no server")
        return
    try:
        yield Check("judge", judge.name, "ok", judge.ping())
    except CodevError as error:
        yield Check("judge", judge.name, plan.lacking, " ".join(str(error).split()), "start its server: docs/judges.md")


def _server(plan: PlannedRun) -> Iterator[Check]:
    """Look for the engine's servers; a run gives them `vllm.patience` seconds to come up."""
    if plan.options.engine == "vllm-server":
        positions = plan.size.positions if plan.size else 0
        patience = 0.0 if plan.dry else plan.options.vllm.patience
        yield from look_for_servers(plan.options, positions, patience, plan.lacking)


_Looks = tuple[tuple[str, str, Callable[[PlannedRun], Iterator[Check]]], ...]
_MACHINE: _Looks = (
    ("options", "values", _values),
    ("options", "resume", _resumed),
    ("options", "packages", _packages),
    ("options", "trackers", lambda plan: tracker_checks(plan.options.trackers)),
    ("environment", "tasks", _tasks),
    ("environment", "episode", _episode),
    ("sandbox", "sandbox", _sandbox),
    ("engine", "engine", _engine),
    ("model", "model", _model),
    ("machine", "run folder", _folder),
    ("machine", "GPU memory", _gpu),
)
"""Group, name and function of the checks of a machine; errors are reported under these names."""
_SERVERS: _Looks = (
    ("judge", "judge", _judge),
    ("engine", "vllm-server", _server),
    ("hub", "push-to-hub", lambda plan: hub_checks(plan.options.push_to_hub, plan.lacking)),
)
"""The checks of servers, which all machines share."""


def _look(plan: PlannedRun, looks: _Looks) -> list[Check]:
    checks: list[Check] = []
    first: dict[str, str] = {}  # message -> the look that reported it first
    for group, name, find in looks:
        try:
            for found in find(plan):
                checks.append(found)
        except CodevError as error:
            text = " ".join(str(error).split())
            again = f"{_AGAIN}{first[text]}" if text in first else text
            first.setdefault(text, name)
            checks.append(Check(group, name, "fail", again))
        if group == "options" and not plan.dry and any(c.status == "fail" for c in checks):
            break  # Bad values make other checks fail as well.
    return checks


def _sentence(failed: Check) -> str:
    detail = failed.detail.rstrip(".")
    return f"{detail} ({failed.advice})." if failed.advice else f"{detail}."


def _count(number: float) -> str:
    return f"{number / 1e9:.2f} billion" if number >= 1e8 else f"{number / 1e6:.2f} million"
