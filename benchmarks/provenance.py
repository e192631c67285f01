"""Measures accuracy and speed of provenance: `python benchmarks/provenance.py`.

By default by kind of generated program; with `--everyday`, for everyday looks at targets, by kind of scene and size.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from everyday import SCENES, SIZES, look, task
from everyday_programs import EVERYDAY, fill
from geometric_programs import scene
from traced_programs import EVERY, make

from codev_env.judges.evidence import showing
from codev_env.provenance import Tracker
from codev_env.sandbox import Limits, Sandbox, Session
from codev_env.types import Execution


class Row(NamedTuple):
    """One program: how its image was located, largest corner error in pixels, seconds of the run and the trace."""

    how: str
    exact: bool
    error: float
    run_s: float
    trace_s: float


def main() -> None:
    """Print one line per kind: shares of how images were located, corner errors in pixels, median times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=50, help="programs per kind")
    parser.add_argument("--size", type=int, nargs=2, default=(672, 672), metavar=("WIDTH", "HEIGHT"))
    parser.add_argument("--kinds", nargs="*", default=list(EVERY), choices=list(EVERY), metavar="KIND")
    parser.add_argument("--everyday", type=int, metavar="K", help="every K-th everyday look at a target")
    options = parser.parse_args()
    if options.everyday:
        everyday(options.everyday)
        return
    size = (options.size[0], options.size[1])
    image = scene(size)
    print(f"{size[0]}x{size[1]}, {options.programs} programs per kind; errors in pixels, times in milliseconds\n")
    names = "kind, probe, match, unknown, exact, wrong, median error, max error, step, trace, trace/step".split(", ")
    print("| " + " | ".join(names) + " |\n|" + " --- |" * len(names))
    total: list[Row] = []
    with Sandbox(Limits(image_pixels=1 << 27, memory_mb=4096, files_mb=2048)) as box, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for kind in options.kinds:
            rows = [row for row in measure(box, kind, image, options.programs)]
            total += rows
            print(line(kind, rows), flush=True)
    print(line(f"all ({len(total)})", total))


class Look(NamedTuple):
    """One everyday program on a task: whether its region and its box are right, seconds, runs, and its name."""

    faithful: bool
    exact: bool
    run_s: float
    step_s: float
    runs: int
    name: str


def everyday(every: int) -> None:
    """Print one line per kind of scene and size, and the programs that went wrong."""
    names = "scene, faithful, box, program ms, step ms, 95 %, slowest, step/program, runs".split(", ")
    print("| " + " | ".join(names) + " |\n|" + " --- |" * len(names))
    total: list[Look] = []
    with Sandbox(Limits(image_pixels=1 << 27, wall_s=20)) as box:
        for size in SIZES:
            of_size: list[Look] = []
            for number, kind in enumerate(SCENES):
                looks = [one for one in looks_at(box, kind, size, list(EVERYDAY)[number % every :: every])]
                of_size += looks
                print(summary(f"{kind} {size}", looks), flush=True)
            print(summary(f"all {size}", of_size), flush=True)
            total += of_size
    print("\nwrong: " + ", ".join(sorted({one.name for one in total if not (one.faithful and one.exact)})))


def looks_at(box: Sandbox, kind: str, size: str, names: list[str]) -> Iterator[Look]:
    """Run everyday programs around the target of two tasks, each in an episode that has begun."""
    for number, name in enumerate(names):
        one = task(kind, size, number % 2)
        target = look(one, np.random.default_rng(zlib.crc32(f"{name} {kind} {size}".encode())))
        program = fill(EVERYDAY[name], target)
        with box.session({"input.png": one.image}) as session:
            tracker = Tracker(session, {"input.png": one.image})
            first = "import cv2\nimport matplotlib.pyplot\nshow(Image.open('input.png').crop((0, 0, 60, 50)))"
            tracker.trace(first, session.run(first))
            counted = Counted(session)
            tracker._session = counted
            times = [time.perf_counter()]
            execution = session.run(program)
            times.append(time.perf_counter())
            regions = tracker.trace(program, execution)
            times.append(time.perf_counter())
        if not regions:
            raise SystemExit(f"{name} on {kind}: no image ({execution.stop}: {execution.error})")
        region, tolerance = regions[-1], max(2.0, 0.005 * max(one.image.size))
        exact = region.box is not None and float(np.abs(np.array(region.box) - target).max()) <= tolerance
        clear = region.polygon is not None and showing(region, one.targets[0], one.image.size).clear
        yield Look(clear, exact, times[1] - times[0], times[2] - times[0], counted.runs, name)


class Counted:
    """A session that counts its runs."""

    def __init__(self, session: Session) -> None:
        self.session, self.runs = session, 0
        self.add_view, self.persist = session.add_view, session.persist

    def run(self, code: str, *, view: str = "main") -> Execution:
        """Run a program in a view."""
        self.runs += 1
        return self.session.run(code, view=view)


def summary(title: str, looks: list[Look]) -> str:
    """One row of the table."""
    program, step = (np.array([one[i] for one in looks]) * 1e3 for i in (2, 3))
    shares = [f"{100 * float(np.mean([one[i] for one in looks])):.1f} %" for i in (0, 1)]
    times = [np.median(program), np.median(step), np.quantile(step, 0.95), step.max()]
    rest = [f"{np.median(step / program):.1f}", f"{np.mean([one.runs for one in looks]):.1f}"]
    return "| " + " | ".join([f"{title} ({len(looks)})", *shares, *(f"{value:.0f}" for value in times), *rest]) + " |"


def line(kind: str, rows: list[Row]) -> str:
    """One row of the table."""
    share = {how: sum(row.how == how for row in rows) / len(rows) for how in ("probe", "match", "unknown")}
    exact = sum(row.exact for row in rows) / len(rows)
    wrong = sum(not row.exact and row.how in ("probe", "match") for row in rows) / len(rows)
    errors = [row.error for row in rows if np.isfinite(row.error)] or [float("nan")]
    run, trace = (1e3 * float(np.median([row[i] for row in rows])) for i in (3, 4))
    shares = (*share.values(), exact, wrong)
    cells = [kind, *(f"{100 * value:.1f} %" for value in shares), f"{np.median(errors):.2f}", f"{max(errors):.2f}"]
    return "| " + " | ".join([*cells, f"{run:.1f}", f"{trace:.1f}", f"{trace / run:.1f}"]) + " |"


def measure(box: Sandbox, kind: str, image: Image.Image, programs: int) -> Iterator[Row]:
    """Locate the last image of each program of a kind."""
    for seed in range(programs):
        case = make(kind, image, seed)
        with box.session(case.images) as session:
            session.run("pass" if kind != "plot" else "import matplotlib.pyplot")  # Wait for the worker.
            tracker = Tracker(session, case.images)
            for program in case.programs:
                times = [time.perf_counter()]
                execution = session.run(program)
                times.append(time.perf_counter())
                regions = tracker.trace(program, execution)
                times.append(time.perf_counter())
        if not regions:
            raise SystemExit(
                f"{kind}, seed {seed}: no image ({execution.stop}: {execution.error})\n{case.programs[-1]}"
            )
        region = regions[-1]
        if region.polygon is None or case.polygon is None:
            error, exact = np.inf, region.polygon is None and case.polygon is None and region.how == "probe"
        else:
            error = case.error(region.polygon)
            exact = error <= case.tolerance and region.image_index == case.index
        yield Row(region.how, exact, error, times[1] - times[0], times[2] - times[1])


if __name__ == "__main__":
    main()
