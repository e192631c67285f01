"""Measures the overhead of the vision-language judge over its server's response time: python benchmarks/judge.py.

A server on this machine answers every request after a fixed time. The judge scores 1,000 different crops in one batch.
In the same run, a bare loop over aiohttp sends requests of the same size. The ideal is ceil(calls / concurrency) x
latency. Client and server share the machine's processors, so the server's own work counts as overhead too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import aiohttp
import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from fake_judge_server import FakeJudgeServer, good

from codev_env.judges.client import SCHEMA, messages
from codev_env.judges.images import data_url
from codev_env.judges.vlm import VLMJudge
from codev_env.types import Code, Execution, Step, Task

CALLS = 1000
SETTINGS = [(0.2, 64), (1.0, 64), (5.0, 250), (30.0, 1000)]
"""Latency in seconds and requests in flight."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="runs of each setting; the median is shown")
    parser.add_argument("--most", action="store_true", help="only the setting with all calls in flight")
    parser.add_argument("--side", type=int, default=224, help="side of a crop in pixels")
    parser.add_argument("--serve", type=float, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve is not None:
        serve(args.serve)
        return
    print(f"{CALLS} crops of {args.side} x {args.side} pixels, median of {args.repeats} runs\n")
    print(
        "| latency | in flight | ideal | bare aiohttp | judge | overhead, bare | judge | CPU per call, bare | judge |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for latency, concurrency in SETTINGS[-1:] if args.most else SETTINGS:
        ideal = math.ceil(CALLS / concurrency) * latency
        runs = [one_run(latency, concurrency, args.side) for _ in range(args.repeats)]
        bare, judge, bare_cpu, judge_cpu = (statistics.median(times) for times in zip(*runs, strict=True))
        print(
            f"| {latency:g} s | {concurrency} | {ideal:.2f} s | {bare:.2f} s | {judge:.2f} s | "
            f"{bare / ideal - 1:.1%} | {judge / ideal - 1:.1%} | {bare_cpu:.1f} ms | {judge_cpu:.1f} ms |",
            flush=True,
        )


def one_run(latency: float, concurrency: int, side: int) -> tuple[float, float, float, float]:
    """Return the seconds that the bare loop and the judge take, and the milliseconds of processors per call of each."""
    command = [sys.executable, __file__, "--serve", str(latency)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin and server.stdout
        try:
            url = server.stdout.readline().strip()
            task, crops = make_crops(side)
            bare, bare_cpu = bare_seconds(url, crops, concurrency)
            judge, judge_cpu = judge_seconds(url, task, crops, concurrency)
            return bare, judge, bare_cpu / CALLS * 1e3, judge_cpu / CALLS * 1e3
        finally:
            server.stdin.close()


def make_crops(side: int) -> tuple[Task, list[Image.Image]]:
    """Return a task and different crops of its image, smooth enough to compress as photographs do."""
    noise = np.random.default_rng(0).integers(0, 256, (160, 160, 3), dtype=np.uint8)
    image = Image.fromarray(noise).resize((1280, 1280), Image.Resampling.BICUBIC)
    places = [(30 * (i % 32), 30 * (i // 32)) for i in range(CALLS)]
    return Task("t", (image,), "What colour is the mug?", "red"), [
        image.crop((x, y, x + side, y + side)) for x, y in places
    ]


def judge_seconds(url: str, task: Task, crops: list[Image.Image], concurrency: int) -> tuple[float, float]:
    """Return the seconds, of the clock and of the processors, that the judge takes for one batch of all crops."""
    judge = VLMJudge("toy", url, "none", concurrency=concurrency, timeout_s=120.0)
    items = [(task, Step("", Code(""), Execution(images=(crop,))), ()) for crop in crops]
    judge.score(task, Step("", Code(""), Execution(images=(crops[0].rotate(90),))), ())  # Loads and connects.
    started, worked = time.perf_counter(), time.process_time()
    scores = judge.score_batch(items)
    seconds, work = time.perf_counter() - started, time.process_time() - worked
    assert len(scores) == CALLS and all(score.value == 1.0 for score in scores)
    judge.close()
    return seconds, work


def bare_seconds(url: str, crops: list[Image.Image], concurrency: int) -> tuple[float, float]:
    """Return the seconds that aiohttp takes for the same requests, made beforehand, without anything around it."""
    body = {
        "model": "toy",
        "messages": messages("search", "What colour is the mug?", "", [data_url(crops[0], 1024)], 123456),
        "response_format": {"type": "json_schema", "json_schema": SCHEMA},
    }

    async def run() -> tuple[float, float]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=concurrency)) as client:

            async def one() -> None:
                async with client.post(f"{url}/chat/completions", json=body) as reply:
                    json.loads(await reply.read())

            await one()
            started, worked = time.perf_counter(), time.process_time()
            await asyncio.gather(*(one() for _ in range(CALLS)))
            return time.perf_counter() - started, time.process_time() - worked

    return asyncio.run(run())


def serve(latency: float) -> None:
    """Answer until standard input is closed."""
    with FakeJudgeServer(partial(good, delay_s=latency)) as server:
        print(server.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
