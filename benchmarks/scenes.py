"""Times the drawing of scenes: `python benchmarks/scenes.py [--preset toy] [--difficulty 1] [--n 200]`."""

from __future__ import annotations

import argparse
import statistics
import time

from codev_env.tasks import SCENES, SceneTaskSet
from codev_env.tasks.readers.cache import TASKS


def milliseconds(tasks: SceneTaskSet, count: int) -> list[float]:
    """Draw scenes one by one and return the CPU time of each."""
    times = []
    for scene in range(count):
        start = time.process_time()
        # Consecutive tasks may ask about the same scene.
        tasks[scene * tasks.options.cycles]
        times.append((time.process_time() - start) * 1e3)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", choices=sorted(SCENES), help="only this preset")
    parser.add_argument("--n", type=int, default=100, help="scenes per preset")
    parser.add_argument("--difficulty", type=float, help="0 to 1; default: that of the preset")
    args = parser.parse_args()
    print(f"{'preset':14} {'MP':>5} {'median ms':>10} {'p95 ms':>10} {'scenes/s':>10}   (CPU time, one core)")
    for name in [args.preset] if args.preset else SCENES:
        options = SCENES[name] if args.difficulty is None else SCENES[name].at_difficulty(args.difficulty)
        tasks = SceneTaskSet(options, "train")
        milliseconds(tasks, 20)  # fill the caches of sprites and photographs
        TASKS.clear()
        times = sorted(milliseconds(tasks, args.n))
        p95 = times[int(0.95 * (len(times) - 1))]
        area = statistics.mean(tasks[i].image.width * tasks[i].image.height for i in range(3)) / 1e6
        median, mean = statistics.median(times), statistics.mean(times)
        print(f"{name:14} {area:5.1f} {median:10.2f} {p95:10.2f} {1e3 / mean:10.1f}")


if __name__ == "__main__":
    main()
