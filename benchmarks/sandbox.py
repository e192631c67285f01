"""Compares the cost of a step in the sandbox with the ways in which peers run a model's code, all in one run.

Run `python benchmarks/sandbox.py [--steps 100] [--json FILE]`; it takes about a minute. `--processor N` measures only
processor time, which other work on the machine changes least. Peers that are not installed
get a line that says so. Only ratios within one run are meaningful, and the method makes them fair:

- The contenders take turns: each round is one step of each, in an order drawn anew, so all see the same machine. Those
  that take milliseconds and those that take more have rounds of their own: a fork makes each page of the process that
  forks be copied when it is next written, and a fresh process empties the processor's caches, at others' expense.
- Every step is a new program: 13 lines that look at another place, and each peer's way to save a crop.
- A step ends when the crop is an image with pixels in this process. The last 32 crops are kept, as a trainer does.
- `new`: malloc gives every crop fresh pages of the kernel, as in a trainer whose crops accumulate; `reused`: pages it
  had before. By default glibc switches between the two with the history of a process, and `exec` costs 1x or 5x.

`peers.py` describes the work that each peer's row includes.
"""

from __future__ import annotations

import argparse
import collections
import ctypes
import functools
import importlib.metadata
import itertools
import json
import math
import multiprocessing
import os
import platform
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from peers import CONTENDERS, EXEC, TEXT_ONLY, Step, crop_of, kernel_memory, memory_of
from PIL import Image

from codev_env.sandbox import Limits, Sandbox

_WARM_UP = 12


def photo(width: int, height: int, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def fix_malloc(reuse: bool) -> bool:
    """Set where glibc takes large blocks from: the kernel each time, or the heap; false without glibc."""
    try:
        libc = ctypes.CDLL(None)
        mmap_threshold, trim_threshold = -3, -1
        return bool(
            libc.mallopt(mmap_threshold, 32 << 20 if reuse else 128 << 10)
            and libc.mallopt(trim_threshold, (1 << 31) - 1 if reuse else 128 << 10)
        )
    except (OSError, AttributeError):
        return False


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    """Call a function; return milliseconds and its result."""
    start = time.perf_counter()
    result = action()
    return 1000 * (time.perf_counter() - start), result


def summary(times: Iterable[float]) -> dict[str, float]:
    ordered = sorted(times)
    p95 = ordered[min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)]
    return {"median": round(statistics.median(ordered), 3), "p95": round(p95, 3), "n": len(ordered)}


def take_turns(steps: dict[str, Step], expected: Step, rounds: int, numbers: Iterator[int]) -> dict[str, Any]:
    """Time one step of each contender per round; the rounds before the first warm up and compare the crops."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    kept: collections.deque[Image.Image] = collections.deque(maxlen=32)
    rng = random.Random(0)
    for turn in range(-_WARM_UP, rounds):
        order = [name for name in steps if turn % (CONTENDERS[name][2] + 1) == 0]
        for name in rng.sample(order, len(order)):
            number = next(numbers)
            ms, crop = timed(lambda: steps[name](number))  # noqa: B023
            kept.append(crop)
            if turn >= 0:
                times[name].append(ms)
            elif name != TEXT_ONLY and crop.tobytes() != expected(number).tobytes():
                raise RuntimeError(f"{name} returned another crop than {EXEC}")
    return {name: summary(values) for name, values in times.items()}


def episodes(image: Image.Image, times: int, numbers: Iterator[int]) -> dict[str, dict[str, float]]:
    """Time opening, closing and losing a worker; every episode has a new image."""
    rows = collections.defaultdict(list)
    with Sandbox() as box, Sandbox(Limits(wall_s=0.4)) as strict:
        for turn in range(-2, times):
            image = image.copy()
            image.putpixel((0, 0), (turn % 256, 0, 0))
            opened, session = timed(lambda: box.session({"input.png": image}))  # noqa: B023
            first, _ = timed(lambda: crop_of(session, next(numbers)))  # noqa: B023
            for _ in range(5):
                crop_of(session, next(numbers))
            closed, _ = timed(session.close)
            if turn < 0:
                continue
            rows["episode: open"].append(opened)
            rows["episode: open and first step"].append(opened + first)
            rows["episode: close"].append(closed)
            if turn % 3 == 0:
                with strict.session({"input.png": image}) as killed:
                    if killed.run(f"while {next(numbers)} >= 0:\n    pass").stop != "timeout":
                        raise RuntimeError("an endless program was not ended")
                    rows["first step after a killed worker"].append(timed(lambda: crop_of(killed, next(numbers)))[0])  # noqa: B023
                    killed.run("while True:\n    pass")
                opened, session = timed(lambda: box.session({"input.png": image}))  # noqa: B023
                first, _ = timed(lambda: crop_of(session, next(numbers)))  # noqa: B023
                session.close()
                rows["open and first step after a killed worker"].append(opened + first)
    return {name: summary(values) for name, values in rows.items()}


def client(size: tuple[int, int], seconds: float, seed: int) -> float:
    """Steps per second of one client, which starts when all are ready."""
    numbers = itertools.count(seed << 32)
    with Sandbox() as box, box.session({"input.png": photo(*size)}) as session:
        for _ in range(20):
            crop_of(session, next(numbers))
        _start.wait(60)
        done, begun = 0, time.perf_counter()
        while time.perf_counter() < begun + seconds:
            crop_of(session, next(numbers))
            done += 1
        return done / (time.perf_counter() - begun)


def _set_start(barrier: Any) -> None:
    global _start
    _start = barrier


_start: Any = None


def throughput(size: tuple[int, int], clients: int, seconds: float) -> dict[str, float]:
    """Steps per second of several clients in threads of one process, and in separate processes; of one in a thread."""
    spawn = multiprocessing.get_context("spawn")
    pools: dict[str, Executor] = {
        "threads": ThreadPoolExecutor(clients, initializer=_set_start, initargs=(threading.Barrier(clients),)),
        "processes": ProcessPoolExecutor(clients, spawn, initializer=_set_start, initargs=(spawn.Barrier(clients),)),
    }
    rates = {}
    if clients == 1:
        del pools["processes"]
    for kind, pool in pools.items():
        with pool:
            each = [pool.submit(client, size, seconds, seed + 1) for seed in range(clients)]
            rates[f"{clients} client{'s' * (clients > 1)} in {kind}"] = round(
                sum(future.result() for future in each), 1
            )
    return rates


def sessions(image: Image.Image, clients: int, seconds: float, numbers: Iterator[int]) -> dict[str, float]:
    """Sessions per second of several threads, without a step and with one."""
    rates = {}
    with Sandbox() as box, ThreadPoolExecutor(clients) as pool:

        def serve(steps: int, end: float) -> int:
            done = 0
            while time.perf_counter() < end:
                with box.session({"input.png": image}) as session:
                    for _ in range(steps):
                        crop_of(session, next(numbers))
                done += 1
            return done

        for steps, name in enumerate(("without a step", "of one step")):
            end = time.perf_counter() + seconds
            found = pool.map(functools.partial(serve, steps), [end] * clients)
            rates[f"{clients} client{'s' * (clients > 1)}, sessions {name}"] = round(sum(found) / seconds, 1)
    return rates


def children(pid: int) -> list[int]:
    paths = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in paths for child in path.read_text().split()]


def used(pid: int) -> int:
    """Processor time of a process, in ticks of 10 ms; 0 if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    fields = stat.rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def total_used() -> float:
    """Processor milliseconds of this process, its zygotes and their workers so far, living and ended."""
    ticks = 0
    for zygote in children(os.getpid()):
        fields = Path(f"/proc/{zygote}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15])) + sum(map(used, children(zygote)))
    return 1000 * (time.process_time() + ticks / os.sysconf("SC_CLK_TCK"))


def processor_time(image: Image.Image, times: int, numbers: Iterator[int]) -> dict[str, float]:
    """Processor milliseconds of a step in a worker that serves many, in one of its own, and of a session with one."""
    code = "crop = image.crop((10, 10, 210, 210))\ncrop.save('crop.png')\nprint('crop.png')\nnumber = {}"
    own = f"{code}\ngetattr(image, 'size')"
    rows = {}

    def measure(name: str, action: Callable[[], Any]) -> None:
        for _ in range(5):
            action()
        time.sleep(0.5)
        before = total_used()
        for _ in range(times):
            action()
        time.sleep(0.5)  # workers that were killed may still be ending
        rows[name] = round((total_used() - before) / times, 2)

    def episode(**options: Any) -> None:
        with box.session({"input.png": image}, **options) as other:
            other.run(code.format(next(numbers)))

    with Sandbox() as box, box.session({"input.png": image}) as session:
        measure("a step", lambda: session.run(code.format(next(numbers))))
        measure("a step in a worker of its own", lambda: session.run(own.format(next(numbers))))
        measure("a session without a step", lambda: box.session({"input.png": image}).close())
        measure("a session with a step", episode)
        measure("the same, persist='variables'", lambda: episode(persist="variables"))
    return rows


def worker_memory(image: Image.Image, numbers: Iterator[int]) -> dict[str, dict[str, float]]:
    """Memory of an idle worker, before and after steps: the one grandchild that works when its session is busy."""
    if not Path("/proc/self/smaps_rollup").exists():
        return {}
    with Sandbox() as box, box.session({"input.png": image}) as session:
        session.run("pass")
        workers = [pid for child in children(os.getpid()) for pid in children(child)]
        if not workers:  # a kernel that does not list children
            return {}
        before = {pid: used(pid) for pid in workers}
        session.run("total = 0\nfor i in range(2_000_000):\n    total = total + i")
        # Workers of sessions that were closed may still be ending, and spare ones wait.
        worker = max(workers, key=lambda pid: used(pid) - before[pid])
        rows = {"sandbox worker, no step yet": memory_of(worker)}
        for _ in range(20):
            crop_of(session, next(numbers))
        rows["sandbox worker, after 20 steps"] = memory_of(worker)
    return rows


def measure(size: tuple[int, int], options: argparse.Namespace, numbers: Iterator[int]) -> dict[str, Any]:
    image = photo(*size)
    missing: dict[str, str] = {}
    memory: dict[str, dict[str, float]] = {}
    found: dict[str, dict[str, Any]] = {"new": {}, "reused": {}}
    slow = [name for name, (_, _, pause) in CONTENDERS.items() if pause]
    for group in ([name for name in CONTENDERS if name not in slow], slow):
        with ExitStack() as stack:
            expected = stack.enter_context(CONTENDERS[EXEC][0](image))
            steps = {}
            for name in group:
                try:
                    steps[name] = stack.enter_context(CONTENDERS[name][0](image))
                except ImportError:
                    missing[name] = f"not installed: pip install {CONTENDERS[name][1]}"
            for label, rows in found.items():
                if fix_malloc(label == "reused") or label == "new":
                    rows.update(take_turns(steps, expected, options.steps, numbers))
            memory.update({name: read() for name, read in kernel_memory.items()})
            kernel_memory.clear()
    rates = {}
    for label in ("reused", "new"):
        if fix_malloc(label == "reused") or label == "new":
            found_rates = throughput(size, 1, options.seconds) | throughput(size, 2, options.seconds)
            rates |= {f"{name}, pages {label}": rate for name, rate in found_rates.items()}
    memory = {**worker_memory(image, numbers), **memory}
    return {
        "steps": {label: rows for label, rows in found.items() if rows},
        "missing": missing,
        "episodes": episodes(image, max(9, options.steps // 3), numbers),
        "steps_per_second": rates,
        "sessions_per_second": {
            name: rate
            for clients in (1, 2)
            for name, rate in sessions(image, clients, options.seconds, numbers).items()
        },
        "memory_mib": memory,
    }


def show(size: tuple[int, int], found: dict[str, Any]) -> None:
    """Print the figures of one image size."""
    labels = list(found["steps"])
    print(f"\n{size[0]}x{size[1]}, milliseconds")
    print(f"{'':44}" + "".join(f"{f'{label}: median':>16}{'p95':>8}{'x exec':>8}" for label in labels))
    for name in CONTENDERS:
        if name in found["missing"]:
            print(f"{name:44}  {found['missing'][name]}")
            continue
        cells = [(found["steps"][label][name], found["steps"][label][EXEC]["median"]) for label in labels]
        print(
            f"{name:44}"
            + "".join(f"{row['median']:16.2f}{row['p95']:8.2f}{row['median'] / base:8.1f}" for row, base in cells)
        )
    for name, row in found["episodes"].items():
        print(f"sandbox, {name:35}{row['median']:16.2f}{row['p95']:8.2f}")
    for name, rate in found["steps_per_second"].items():
        print(f"sandbox, {name:35}{rate:16.0f} steps/s")
    for name, rate in found["sessions_per_second"].items():
        print(f"sandbox, {name:35}{rate:16.0f} sessions/s")
    for name, sizes in found["memory_mib"].items():
        print(f"{name:44}  MiB: " + ", ".join(f"{key} {value:.1f}" for key, value in sizes.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100, help="rounds of each comparison")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each measurement of throughput")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to this file")
    parser.add_argument("--processor", type=int, metavar="N", help="measure only processor time, over N repetitions")
    options = parser.parse_args()
    if options.processor:
        for name, ms in processor_time(photo(672, 504), options.processor, itertools.count()).items():
            print(f"{name:35}{ms:8.2f} ms")
        return
    ms, layers = timed(Sandbox().describe)
    versions = {name: importlib.metadata.version(name) for name in ("numpy", "pillow", "RestrictedPython")}
    machine = {
        "python": platform.python_version(), "system": platform.platform(), "cores": os.cpu_count(),
        **versions, "layers": layers, "first_start_ms": round(ms, 1),
    }  # fmt: skip
    print(", ".join(f"{key} {value}" for key, value in machine.items()))
    numbers, sizes = itertools.count(), {}
    for size in ((672, 672), (3840, 2160)):
        found = sizes[f"{size[0]}x{size[1]}"] = measure(size, options, numbers)
        show(size, found)
        if options.json:
            Path(options.json).write_text(json.dumps({"machine": machine, "sizes": sizes}, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
