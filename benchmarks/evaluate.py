"""Times `codev eval` with a scripted agent and reports the size of its report.

    python benchmarks/evaluate.py [--n 1000] [--workers 2]

Prints the load, the seconds of the episodes and in total, the CPU seconds of the command and its sandbox, and the size
of the report. Wall-clock seconds need an idle machine; CPU seconds depend less on other programs.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "eval"))
from browser import CHROMIUM, Browser


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--model", default="scripted:oracle")
    parser.add_argument("--scenes", default="toy")
    parser.add_argument("--keep", type=Path, help="keep the results in this folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = options.keep or Path(folder) / "out"
        command = ["eval", "--model", options.model, "--data", "synthetic", "--scenes", options.scenes]
        command += ["--n", str(options.n), "--workers", str(options.workers), "--out", str(out)]
        started = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "codev_env.app.cli", *command], stdout=subprocess.DEVNULL)
        wall, used = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        if not (out / "report.html").exists():
            sys.exit(done.returncode or 1)
        played = (out / "trajectories.jsonl").stat().st_mtime - (out / "eval.json").stat().st_mtime
        size = (out / "report.html").stat().st_size / 1e6
        who = f"{options.model} on {options.scenes} scenes, {options.workers} workers, exit {done.returncode}"
        print(f"{options.n} episodes of {who}, load {os.getloadavg()[0]:.1f}")
        cpu = used.ru_utime + used.ru_stime
        print(f"episodes {played:.1f} s, in all {wall:.1f} s; CPU of all processes {cpu:.1f} s")
        print(f"report {size:.1f} MB", flush=True)
        if CHROMIUM:
            paints = sorted(first_paint(out / "report.html") for _ in range(5))
            print(f"first paint in Chromium {', '.join(map(str, paints))} ms")


def first_paint(page: Path) -> int:
    """Return the time of Chromium's first contentful paint of the page, in ms, in a new browser."""
    with Browser() as browser:
        browser.open(page.absolute().as_uri())
        entries = browser.js("performance.getEntriesByType('paint').map(e => [e.name, e.startTime])")
    return round(dict(entries)["first-contentful-paint"])


if __name__ == "__main__":
    main()
