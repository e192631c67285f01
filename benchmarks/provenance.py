"""Measures accuracy and speed of provenance: `python benchmarks/provenance.py`.

By default by kind of generated program; with `--everyday`, for everyday looks at targets, by kind of scene and size;
with `--chains`, for everyday changes of colours and shapes one after the other; with `--crops`, the processor time of
all processes for crops, resized and in other colours.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from everyday import SCENES, SIZES, chain, look, task
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
    parser.add_argument("--chains", type=int, metavar="N", help="N chains of everyday changes")
    parser.add_argument(
        "--crops", type=int, metavar="N", help="N runs of each way to crop, 500 x 500 pixels of 2K and 4K"
    )
    options = parser.parse_args()
    if options.crops:
        crops(options.crops)
        return
    if options.everyday:
        names = list(EVERYDAY)
        everyday(lambda number: {name: EVERYDAY[name] for name in names[number % options.everyday :: options.everyday]})
        return
    if options.chains:
        rng = np.random.default_rng(0)
        everyday(lambda _: dict(chain(rng) for _ in range(options.chains // (len(SCENES) * len(SIZES)))))
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


_CUT, _SLICE = (
    "im = image.crop((700, 500, 1200, 1000))\n",
    "import cv2\na = cv2.imread(image_path)[500:1000, 700:1200]\n",
)
_TO_GREY = _SLICE + "g = cv2.cvtColor(a, cv2.COLOR_BGR2GRAY)\n"
CROPS = {
    "crop": _CUT + "show(im)",
    **{
        f"crop, x2 {name.lower()}": _CUT + f"show(im.resize((1000, 1000), Image.{name}))"
        for name in "NEAREST BOX BILINEAR HAMMING BICUBIC LANCZOS".split()
    },
    "cv2 slice": _SLICE + "show(a[..., ::-1])",
    "cv2 slice, x2 linear": _SLICE + "show(cv2.resize(a, None, fx=2, fy=2)[..., ::-1])",
    "cv2 slice, x2 cubic": _SLICE + "show(cv2.resize(a, None, fx=2, fy=2, interpolation=cv2.INTER_CUBIC)[..., ::-1])",
    "grey": _CUT + "show(im.convert('L'))",
    "autocontrast": _CUT + "show(ImageOps.autocontrast(im))",
    "Otsu": _TO_GREY + "show(cv2.threshold(g, 0, 255, cv2.THRESH_OTSU)[1])",
}
"""Ways to crop; Otsu of a photograph hides parts of it, and is placed as any other program."""


def crops(repeats: int) -> None:
    """Print by way to crop: processor time of a program, and of a step without and with recorded cuts."""
    names = "image, program ms, step ms without cuts, with, step/program without cuts, with".split(", ")
    print("| " + " | ".join(names) + " |\n|" + " --- |" * len(names))
    with Sandbox(Limits(image_pixels=1 << 27, wall_s=20)) as box:
        for size, name in ((size, name) for size in SIZES for name in CROPS):
            image = task("vstar", size, 0).image
            times = []
            for cuts, traced in ((True, False), (False, True), (True, True)):
                with box.session({"input.png": image}) as session:
                    tracker = Tracker(session, {"input.png": image})
                    totals = []
                    for _ in range(repeats + 1):  # The first run begins the episode.
                        execution = session.run(CROPS[name])
                        if traced:
                            tracker.trace(CROPS[name], execution if cuts else replace(execution, cuts=()))
                        totals.append(spent())
                    times.append(1e3 * (totals[-1] - totals[0]) / repeats)
            run, without, with_cuts = times
            cells = [f"{name} {size}", *(f"{one:.1f}" for one in times)]
            print("| " + " | ".join([*cells, f"{without / run:.1f}", f"{with_cuts / run:.2f}"]) + " |", flush=True)


def spent() -> float:
    """Seconds of processor time of this process and all below it, those that ended included."""
    total = 0.0
    for one in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(one.cpu_times()[:4])
    return total


class Look(NamedTuple):
    """One everyday program on a task: whether its region and its box are right, seconds, runs, and its name."""

    faithful: bool
    exact: bool
    run_s: float
    step_s: float
    runs: int
    name: str


def everyday(programs: Callable[[int], Mapping[str, str]]) -> None:
    """Print one line per kind of scene and size, and the programs that went wrong.

    Args:
        programs: Returns programs by name, given the number of the kind.
    """
    names = "scene, faithful, box, program ms, step ms, 95 %, slowest, step/program, runs".split(", ")
    print("| " + " | ".join(names) + " |\n|" + " --- |" * len(names))
    total: list[Look] = []
    with Sandbox(Limits(image_pixels=1 << 27, wall_s=20)) as box:
        for size in SIZES:
            of_size: list[Look] = []
            for number, kind in enumerate(SCENES):
                looks = list(looks_at(box, kind, size, programs(number)))
                of_size += looks
                print(summary(f"{kind} {size}", looks), flush=True)
            print(summary(f"all {size}", of_size), flush=True)
            total += of_size
    print("\nwrong: " + ", ".join(sorted({one.name for one in total if not (one.faithful and one.exact)})))


def looks_at(box: Sandbox, kind: str, size: str, programs: Mapping[str, str]) -> Iterator[Look]:
    """Run programs around the target of seven tasks, each in an episode that has begun."""
    for number, (name, template) in enumerate(programs.items()):
        one = task(kind, size, number % 7)
        target = look(one, np.random.default_rng(zlib.crc32(f"{name} {kind} {size}".encode())))
        program = fill(template, target)
        with box.session({"input.png": one.image}) as session:
            counted = Counted(session)
            tracker = Tracker(counted, {"input.png": one.image})
            first = "import cv2\nimport matplotlib.pyplot\nshow(Image.open('input.png').crop((0, 0, 60, 50)))"
            tracker.trace(first, session.run(first))
            counted.runs = 0
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
