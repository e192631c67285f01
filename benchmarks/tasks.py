"""Measures speed and memory of reading tasks from Parquet: `python benchmarks/tasks.py [--rows 50000]`.

Makes files of small JPEGs in verl's form in a temporary folder, in two layouts: row groups of 100 rows, as `datasets`
writes images, and one row group for all rows, as pandas and pyarrow write them and as in published training sets. Each
layout is measured in a fresh process. Memory is the process's own (anonymous, RssAnon): pages of a mapped file belong
to the system's cache and are released when needed.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

LAYOUTS = {"groups of 100": 100, "one group": None}


def jpegs(count: int, size: int, seed: int = 0) -> list[bytes]:
    """Return some different JPEGs of a few kilobytes each."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        coarse = Image.fromarray(rng.integers(0, 255, (size // 16, size // 16, 3), dtype=np.uint8))
        stream = io.BytesIO()
        coarse.resize((size, size), Image.Resampling.BICUBIC).save(stream, "JPEG", quality=85)
        found.append(stream.getvalue())
    return found


def write(path: Path, rows: int, group: int | None, size: int) -> None:
    """Write a Parquet file in verl's form, a few thousand rows at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pictures = jpegs(64, size)
    writer = None
    step = 2000
    # One row group is written from one table, so that file needs memory for all its rows.
    for start in range(0, rows, step if group else rows):
        numbers = range(start, min(rows, start + (step if group else rows)))
        table = pa.table(
            {
                "data_source": ["vstar"] * len(numbers),
                "prompt": [[{"role": "user", "content": f"<image>\nWhich number is {i}?"}] for i in numbers],
                # Each image differs slightly, because equal bytes would be stored once.
                "images": [
                    [{"bytes": pictures[i % len(pictures)] + i.to_bytes(4, "big"), "path": None}] for i in numbers
                ],
                "reward_model": [{"ground_truth": f"answer {i}", "style": "model"} for i in numbers],
                "extra_info": [
                    {
                        "question": f"Which number is {i}?",
                        "answer": f"answer {i}",
                        "index": str(i),
                        "bbox": [1, 2, 30, 40],
                    }
                    for i in numbers
                ],
            }
        )
        writer = writer or pq.ParquetWriter(path, table.schema, use_dictionary=False)
        writer.write_table(table, row_group_size=group or rows)
    if writer is not None:
        writer.close()


def anonymous_mib() -> float:
    """Return the own memory of this process, in MiB; Linux only, else 0."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0.0
    return int(status.split("RssAnon:")[1].split()[0]) / 1024


def measure(path: Path, count: int) -> dict[str, float]:
    """Open a file and read tasks in order and shuffled; runs in a separate process."""
    import pyarrow.parquet  # noqa: F401 - importing it is not part of opening a file

    from codev_env.tasks import open_bench
    from codev_env.tasks.readers.cache import TASKS

    before = anonymous_mib()
    start = time.perf_counter()
    tasks = open_bench("codev-rl", path)
    found = {"rows": len(tasks), "open_s": time.perf_counter() - start, "open_mib": anonymous_mib() - before}
    start = time.perf_counter()
    assert tasks[len(tasks) // 2].answer == f"answer {len(tasks) // 2}"
    found["first_s"] = time.perf_counter() - start
    orders: dict[str, Sequence[int]] = {
        "in_order": range(min(count, len(tasks))),
        "shuffled": random.Random(0).sample(range(len(tasks)), min(count, len(tasks))),
    }
    peak = anonymous_mib()
    for name, order in orders.items():
        TASKS.clear()
        start = time.perf_counter()
        for index in order:
            assert tasks[index].answer == f"answer {index}"
            peak = max(peak, anonymous_mib())
        found[f"{name}_per_s"] = len(order) / (time.perf_counter() - start)
    return {**found, "peak_mib": peak - before}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--size", type=int, default=256, help="pixels a side of each JPEG")
    parser.add_argument("--n", type=int, default=1000, help="tasks to read in each order")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.measure, args.n)))
        return
    names = ("open_s", "open_mib", "first_s", "in_order_per_s", "shuffled_per_s", "peak_mib")
    print(f"{'layout':14} {'file MiB':>9}  " + " ".join(f"{name:>14}" for name in names))
    for layout, group in LAYOUTS.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "train.parquet"
            write(path, args.rows, group, args.size)
            command = [sys.executable, __file__, "--measure", str(path), "--n", str(args.n)]
            environment = {**os.environ, "CODEV_CACHE": str(Path(folder) / "cache")}
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
            found = json.loads(done.stdout)
            size = path.stat().st_size / 2**20
            print(f"{layout:14} {size:9.0f}  " + " ".join(f"{found[name]:14.2f}" for name in names), flush=True)


if __name__ == "__main__":
    main()
