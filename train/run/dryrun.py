"""`codev train --dry-run`: the report on what the checks found and what the run costs."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from codev_env.app.check import Check, as_text
from codev_env.errors import ConfigError
from codev_env.files import read_rows
from codev_train.run import estimate, schedule
from codev_train.run.monitor import HISTORY
from codev_train.run.options import TrainOptions
from codev_train.run.sizes import GPUS, Gpu, ModelSize

_GB = 1e9
_GPUS_OF_A_MACHINE = 8


def dry_run(options: TrainOptions, checks: Sequence[Check], size: ModelSize | None) -> None:
    """Print what the checks of a run found and what the run will cost.

    Args:
        options: The options, with defaults in place of values that cannot be used.
        checks: What was found.
        size: Size of the model, if it is known.

    Raises:
        ConfigError: Something would stop the run; all of it was printed.
    """
    checks = [*checks, *(_memory(size, options) if size else ())]
    print(as_text(checks))
    failed = [check for check in checks if check.status == "fail"]
    if size and not any(check.group == "options" for check in failed):
        print(f"\n{report(size, options)}")
        if schedules := schedule.table(size, options):
            print(f"\n{schedules}")
    if failed:
        names = ", ".join(check.name for check in failed)
        raise ConfigError(f"this run would not work, because of {len(failed)} of the checks above: {names}.")
    if is_elsewhere(options):
        meant, here = options.estimate, torch.cuda.device_count()
        print(
            f"\nThis looked at a run on {meant.gpus} x {meant.gpu}. It does not run on this machine, with {here} GPUs."
        )
    print("\nNothing was trained, nothing was written.")


def is_elsewhere(options: TrainOptions) -> bool:
    """Return whether the run is meant for another machine: this one has fewer GPUs than `estimate.gpus`."""
    return options.estimate.gpus > torch.cuda.device_count()


def _memory(size: ModelSize, options: TrainOptions) -> Iterator[Check]:
    peak = estimate.memory(size, options).peak
    gpus, kind = options.estimate.gpus, options.estimate.gpu
    if gpus:
        here = f"there are {torch.cuda.device_count()} here"
        yield Check("machine", "GPUs", "warn" if is_elsewhere(options) else "ok", f"{gpus} of {kind} wanted, {here}")
        room, what = GPUS[kind].memory, f"an {kind}"
        advice = (
            "raise estimate.shards (FSDP) or sequence-parallel; lower token-budget, vllm.memory; use --lora.rank 64 or "
            "--sharding fsdp2-offload"
        )
    else:
        room, what, advice = _machine_bytes(), "this machine", "lower micro-batch, max-length or engine-batch"
    detail = f"{peak / _GB:.1f} GB estimated at the peak, {what} has {room / _GB:.0f} GB"
    yield Check("machine", "memory", "fail" if peak > room else "ok", detail, advice if peak > room else "")
    if not is_elsewhere(options):
        held = max(1, gpus) * (estimate.pixel_bytes(size, options) + estimate.host_bytes(size, options))
        held += 0 if gpus else peak
        detail = f"at most {held / _GB:.1f} GB with the pixels of all episodes of an update, "
        detail += f"this machine has {_machine_bytes() / _GB:.0f} GB"
        advice = "" if held <= _machine_bytes() else "lower prompts or group, or --max-pixels and estimate.trajectory"
        yield Check("machine", "CPU memory", "warn" if advice else "ok", detail, advice)
    together = estimate.episodes_at_once(size, options)
    if not together and estimate.mean_trajectory(options) <= options.max_length:
        detail = "the engine's weights leave no room for one trajectory"
        yield Check("machine", "cache", "fail", detail, "raise vllm.memory, or use --engine vllm-server")


def _machine_bytes() -> float:
    return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def report(size: ModelSize, options: TrainOptions) -> str:
    """Write the estimates of memory and time, with their assumptions."""
    assumed, memory = options.estimate, estimate.memory(size, options)
    gpu = GPUS[assumed.gpu] if assumed.gpus else Gpu(0.0, cpu_flops(), 1e10)
    where = f"{assumed.gpus} x {assumed.gpu}, {assumed.shards} shards" if assumed.gpus else "this CPU"
    lines = [f"memory of one process, estimated, in GB ({size.name}, {where})"]
    lines += [f"  {name:<12} {value / _GB:9.3f}" for name, value in memory.parts().items() if value]
    lines.append(f"  update {memory.update / _GB:.3f}, rollouts {memory.rollouts / _GB:.3f}")
    if host := estimate.host_bytes(size, options):
        lines.append(f"  in CPU memory, beside the weights that the main process reads: {host / _GB:.3f}")
    pixels, processes = estimate.pixel_bytes(size, options) / _GB, min(assumed.gpus, _GPUS_OF_A_MACHINE)
    kept = options.prompts * options.group * (1 + options.staleness) // max(1, assumed.gpus)
    together = f"; of {processes} processes {processes * pixels:.3f}" if processes > 1 else ""
    lines.append(f"  pixels of {kept} trajectories, in CPU memory, at most: {pixels:.3f}{together}")
    lines.append("")
    played, learned = options.prompts * options.group, estimate.learned(options)
    trajectories = f"{played} trajectories of {estimate.mean_trajectory(options)} tokens"
    sampled = f"{estimate.sampled_tokens(options)} sampled" + (f"; {learned} learned from" if learned != played else "")
    lines.append(f"time of one update, estimated, in seconds ({trajectories}, {sampled})")
    if estimate.episodes_at_once(size, options):
        times = estimate.seconds(size, options, gpu)
        lines += [f"  {name:<12} {value:9.2f}" for name, value in vars(times).items() if value]
        lines.append(
            f"  {times.total:.2f} in all, {_duration(times.total * options.steps)} for {options.steps} updates"
        )
    speed = f"{gpu.flops / 1e12:.3g} TFLOPS" + ("" if assumed.gpus else " (just measured, a matrix product)")
    lines.append(
        f"  assumed: {speed}, of which {assumed.mfu:.0%} are used; {assumed.images:.0%} of the tokens are of images; "
        "environments and judges overlap with decoding; no stragglers"
        + (f"; none of --resample's up to {spare} groups" if (spare := options.resample * options.prompts) else "")
        + (f"; imitation scores at most {played} looks" if options.imitation.answers else "")
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
    rows = read_rows(history)
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
