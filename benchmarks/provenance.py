"""Measures accuracy and speed of provenance by kind of program: `python benchmarks/provenance.py`."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from geometric_programs import scene
from traced_programs import EVERY, make

from codev_env.provenance import Tracker
from codev_env.sandbox import Limits, Sandbox


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
    options = parser.parse_args()
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
