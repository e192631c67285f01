"""`codev train --dry-run`: checks everything that a run needs and estimates its cost; nothing is written."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from codev_agents.engines.http import Client, ServerLost
from codev_agents.engines.policy import Policy
from codev_agents.rollout.engine import EngineError
from codev_env.app import sandbox_check
from codev_env.app.check import Check, as_text
from codev_env.app.options import Problem
from codev_env.envs.image_tool import unwrap
from codev_env.errors import CodevError, ConfigError
from codev_env.judges import ServedJudge, get_judge
from codev_env.types import Answer, Code
from codev_train.run import estimate
from codev_train.run.config import Request
from codev_train.run.environments import make_env, make_eval_env, make_train_env
from codev_train.run.estimate import GPUS, Gpu, ModelSize
from codev_train.run.model_size import find_size, is_here, measure
from codev_train.run.monitor import HISTORY
from codev_train.run.options import SFTOptions, TrainOptions

_LOOK_S = 5.0  # longest wait for the engine's server
_GB = 1e9
Lacking = Literal["warn", "fail"]


def dry_run(
    request: Request, options: TrainOptions, problems: Sequence[Problem], toy_policy: Callable[[SFTOptions], Policy]
) -> None:
    """Check a run, and print what was found and what it will cost.

    If this machine has fewer GPUs than `estimate.gpus`, the run is meant for another one: anything missing on this one
    (GPUs, disk space, vLLM, the servers of engine and judge) is then a warning instead of a failure.

    Args:
        request: The request that the options come from.
        options: The options, with defaults in place of values that cannot be used.
        problems: What is wrong with the values.
        toy_policy: Makes the toy model of a cold start.

    Raises:
        ConfigError: Something would stop the run; all of it was printed.
    """
    plan = _Plan(request, options, problems, toy_policy, "warn" if _is_elsewhere(options) else "fail")
    checks: list[Check] = []
    first: dict[str, str] = {}  # message -> the look that reported it first
    for group, name, look in _LOOKS:
        try:
            for check in look(plan):
                checks.append(check)
        except CodevError as error:
            text = " ".join(str(error).split())
            again = f"fails like {first[text]}" if text in first else text
            first.setdefault(text, name)
            checks.append(Check(group, name, "fail", again))
    print(as_text(checks))
    failed = [check for check in checks if check.status == "fail"]
    if plan.size and not any(check.group == "options" for check in failed):
        print(f"\n{report(plan.size, options)}")
    if failed:
        names = ", ".join(check.name for check in failed)
        raise ConfigError(f"this run would not work, because of {len(failed)} of the checks above: {names}.")
    if _is_elsewhere(options):
        meant, here = options.estimate, torch.cuda.device_count()
        print(
            f"\nThis looked at a run on {meant.gpus} x {meant.gpu}. It does not run on this machine, with {here} GPUs."
        )
    print("\nNothing was trained, nothing was written.")


@dataclass
class _Plan:
    """A planned run, as `dry_run` takes it; `size` is that of its model, once it is known."""

    request: Request
    options: TrainOptions
    problems: Sequence[Problem]
    toy_policy: Callable[[SFTOptions], Policy]
    lacking: Lacking
    size: ModelSize | None = None


def _is_elsewhere(options: TrainOptions) -> bool:
    return options.estimate.gpus > torch.cuda.device_count()


def _values(plan: _Plan) -> Iterator[Check]:
    for problem in plan.problems:
        yield Check("options", problem.name.replace("_", "-"), "fail", problem.text)
    if not plan.problems:
        yield Check("options", "values", "ok", "all within their ranges")


def _packages(plan: _Plan) -> Iterator[Check]:
    wanted = [("peft", "lora", "lora.rank")] if plan.options.lora.rank else []
    wanted += [("torchao", "lowbit", "optimizer.name")] if plan.options.optimizer.name == "adamw8bit" else []
    for package, extra, option in wanted:
        if importlib.util.find_spec(package) is None:
            yield Check("options", option, "fail", f"needs {package}", f'pip install "codev-env[{extra}]"')
        else:
            yield Check("options", option, "ok", f"{package} is installed")


def _tasks(plan: _Plan) -> Iterator[Check]:
    options = plan.options
    for split, make in (("train", make_train_env), (options.eval.split, make_eval_env)):
        env = make(options)
        tasks = unwrap(env).tasks
        env.close()
        yield Check("environment", f"{split} tasks", "ok", f"{len(tasks)} of {tasks.name}, reward {options.reward}")


def _steps(plan: _Plan) -> Iterator[Check]:
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


def _sandbox(plan: _Plan) -> Iterator[Check]:
    yield from sandbox_check.sandbox()


def _judge(plan: _Plan) -> Iterator[Check]:
    judge = get_judge(plan.options.env.judge)
    if not isinstance(judge, ServedJudge):
        yield Check("judge", judge.name, "ok", "needs no server")
        return
    try:
        yield Check("judge", judge.name, "ok", judge.ping())
    except CodevError as error:
        yield Check("judge", judge.name, plan.lacking, " ".join(str(error).split()), "start its server: docs/judges.md")


def _engine(plan: _Plan) -> Iterator[Check]:
    options = plan.options
    advice = "docs/engines.md has the command"
    match options.engine:
        case "hf":
            yield Check("engine", "hf", "ok", "samples with the training model itself")
        case "vllm" if importlib.util.find_spec("vllm") is None:
            yield Check("engine", "vllm", plan.lacking, "vLLM is not installed", 'pip install "codev-env[vllm]"')
        case "vllm":
            yield Check("engine", "vllm", "ok", "vLLM is installed")
        case "vllm-server":
            try:
                Client(options.vllm.url, 0.0, _LOOK_S).get("/health", _LOOK_S)
                yield Check("engine", "vllm-server", "ok", f"{options.vllm.url} is healthy")
            except (ServerLost, EngineError, OSError) as error:
                detail = f"{options.vllm.url} does not answer: {str(error)[:120]}"
                yield Check("engine", "vllm-server", plan.lacking, detail, advice)


def _model(plan: _Plan) -> Iterator[Check]:
    name = plan.options.model
    if not name:
        start = plan.request.start_options()
        plan.size = find_size(start.model) if start.model else measure(plan.toy_policy(start).model, "toy")
        yield Check("model", "model", "ok", f"a cold start, {_count(plan.size.parameters)} parameters")
        return
    plan.size = find_size(name)
    detail = f"{name}: {_count(plan.size.parameters)} parameters, {_count(plan.size.vision)} of them see"
    if is_here(name):
        yield Check("model", "model", "ok", detail)
    else:
        advice = f"the run downloads it: {2 * plan.size.parameters / _GB:.0f} GB"
        yield Check("model", "model", "warn", f"{detail}; it is not on this machine", advice)


def _folder(plan: _Plan) -> Iterator[Check]:
    options = plan.options
    place = Path(options.out).absolute()
    while not place.exists():
        place = place.parent
    try:
        # Made and removed at once: `os.access` says yes to root even where nothing can be made, as in /proc.
        tempfile.TemporaryDirectory(prefix=".codev-", dir=place).cleanup()
    except OSError as error:
        detail = f"{place} cannot be written: {error.strerror}"
        yield Check("machine", "run folder", "fail", detail, "give --out FOLDER")
        return
    free = shutil.disk_usage(place).free
    wanted = estimate.checkpoint_bytes(plan.size, options) if plan.size else 0.0
    detail = f"{free / _GB:.1f} GB free in {place}, {wanted / _GB:.1f} GB wanted: {options.keep + 1} checkpoints, model"
    if free < wanted:
        yield Check("machine", "disk", plan.lacking, detail, "lower --keep, or give --out a folder on another disk")
    else:
        yield Check("machine", "disk", "ok", detail)


def _memory(plan: _Plan) -> Iterator[Check]:
    if plan.size is None:
        return
    options, peak = plan.options, estimate.memory(plan.size, plan.options).peak
    gpus, kind = options.estimate.gpus, options.estimate.gpu
    if gpus:
        here = f"there are {torch.cuda.device_count()} here"
        yield Check("machine", "GPUs", "warn" if _is_elsewhere(options) else "ok", f"{gpus} of {kind} wanted, {here}")
        room, what = GPUS[kind].memory, f"an {kind}"
        advice = "raise estimate.shards (FSDP); lower token-budget or vllm.memory; or use --lora.rank 64"
    else:
        room = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        what, advice = "this machine", "lower micro-batch, max-length or engine-batch"
    detail = f"{peak / _GB:.1f} GB estimated at the peak, {what} has {room / _GB:.0f} GB"
    yield Check("machine", "memory", "fail" if peak > room else "ok", detail, advice if peak > room else "")
    together = estimate.episodes_at_once(plan.size, options)
    if not together and estimate.mean_trajectory(options) <= options.max_length:
        detail = "the engine's weights leave no room for one trajectory"
        yield Check("machine", "cache", "fail", detail, "raise vllm.memory, or use --engine vllm-server")


_LOOKS: tuple[tuple[str, str, Callable[[_Plan], Iterator[Check]]], ...] = (
    ("options", "values", _values),
    ("options", "packages", _packages),
    ("environment", "tasks", _tasks),
    ("environment", "episode", _steps),
    ("sandbox", "sandbox", _sandbox),
    ("judge", "judge", _judge),
    ("engine", "engine", _engine),
    ("model", "model", _model),
    ("machine", "run folder", _folder),
    ("machine", "memory", _memory),
)
"""Group, name and function of each check; errors are reported under these names."""


def report(size: ModelSize, options: TrainOptions) -> str:
    """Write the estimates of memory and time, with their assumptions."""
    assumed, memory = options.estimate, estimate.memory(size, options)
    gpu = GPUS[assumed.gpu] if assumed.gpus else Gpu(0.0, cpu_flops(), 1e10)
    where = f"{assumed.gpus} x {assumed.gpu}, {assumed.shards} shards" if assumed.gpus else "this CPU"
    lines = [f"memory of one process, estimated, in GB ({size.name}, {where})"]
    lines += [f"  {name:<12} {value / _GB:9.3f}" for name, value in memory.parts().items() if value]
    lines += [f"  update {memory.update / _GB:.3f}, rollouts {memory.rollouts / _GB:.3f}", ""]
    trajectories = f"{options.prompts * options.group} trajectories of {estimate.mean_trajectory(options)} tokens"
    lines.append(
        f"time of one update, estimated, in seconds ({trajectories}, {estimate.sampled_tokens(options)} sampled)"
    )
    if estimate.episodes_at_once(size, options):
        times = estimate.seconds(size, options, gpu)
        lines += [f"  {name:<12} {value:9.2f}" for name, value in vars(times).items()]
        lines.append(
            f"  {times.total:.2f} in all, {_duration(times.total * options.steps)} for {options.steps} updates"
        )
    speed = f"{gpu.flops / 1e12:.3g} TFLOPS" + ("" if assumed.gpus else " (just measured, a matrix product)")
    lines.append(
        f"  assumed: {speed}, of which {assumed.mfu:.0%} are used; {assumed.images:.0%} of the tokens are of images; "
        "environments and judges overlap with decoding; no stragglers"
    )
    measured = _measured(Path(options.out) / options.name / HISTORY)
    return "\n".join([*lines, *([measured] if measured else [])])


def cpu_flops(size: int = 768, tries: int = 5) -> float:
    """Measure the operations per second of a matrix product in fp32 on this CPU, with torch's number of threads."""
    a, b = torch.ones(size, size), torch.ones(size, size)
    a @ b
    fastest = float("inf")
    for _ in range(tries):
        started = time.perf_counter()
        a @ b
        fastest = min(fastest, time.perf_counter() - started)
    return 2 * size**3 / fastest


def _measured(history: Path) -> str:
    """Write the measured time of updates in an earlier run of that name."""
    if not history.is_file():
        return ""
    rows = [json.loads(line) for line in history.read_text(encoding="utf-8").splitlines()]
    parts = [
        f"{phase} {statistics.median(row[f'seconds/{phase}'] for row in rows):.2f}"
        for phase in ("rollouts", "update")
        if rows and all(row.get(f"seconds/{phase}") is not None for row in rows)
    ]
    return f"  measured in {history.parent}: {', '.join(parts)} (medians of {len(rows)} updates)" if parts else ""


def _duration(seconds: float) -> str:
    """Write a time in the unit that fits: seconds up to two minutes, minutes up to two hours."""
    if seconds < 120:
        return f"{seconds:.1f} seconds"
    return f"{seconds / 60:.1f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def _count(number: float) -> str:
    return f"{number / 1e9:.2f} billion" if number >= 1e8 else f"{number / 1e6:.2f} million"
