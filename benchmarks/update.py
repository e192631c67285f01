"""Measures the gain of packing: `python benchmarks/update.py [--rows 32] [--longest 1024] [--budget 4096]`.

A toy Qwen3-VL takes the same gradient step on the same trajectories in three ways: padded, in batches of `micro_batch`
trajectories sorted by length; packed, in rows of at most `--budget` tokens; and packed with the trajectories of a group
together, so that the vision tower sees the image that they share once. `micro_batch` is the budget divided by
the longest trajectory, so all ways hold at most the same number of tokens. Lengths are drawn from a log-normal
distribution, as is typical of multi-turn trajectories: most are short, a few are long. Each way runs in its own
process, alternating. The output has the median seconds (wall clock, and the process's own CPU time, which other
programs disturb less), the peak memory above that of the loaded model (the process's own memory on a CPU, allocated
memory on a GPU), their ratios, and the difference of the two gradients.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np
import torch
from resident import most, resident

VOCABULARY = 4096
IMAGE, PAD = 5, 0
GROUP, TOKENS = 8, 36
WAYS = ("padded", "packed", "grouped")


def model(device: str) -> torch.nn.Module:
    from transformers import PreTrainedTokenizerFast

    from codev_agents.engines.options import ToyModelOptions
    from codev_agents.engines.toy import build_model, build_tokenizer

    tokenizer: PreTrainedTokenizerFast = build_tokenizer(["a line of text"], [], [])
    made = build_model(ToyModelOptions(), tokenizer, seed=0)
    made.resize_token_embeddings(VOCABULARY, mean_resizing=False)
    return made.to(device)


def trajectories(rows: int, longest: int) -> tuple[list[list[int]], list[list]]:
    """Draw trajectories with an image that eight of them share; half of the tokens after it are the model's."""
    from codev_agents.rollout.tokens import PixelBlock

    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(np.log(longest / 8), 0.9, rows), TOKENS + 24, longest).astype(int)
    lengths[0] = longest
    ids, images = [], []
    for row, length in enumerate(lengths):
        if row % GROUP == 0:
            values = rng.standard_normal((4 * TOKENS, 3 * 2 * 7 * 7), dtype=np.float32)
            block = PixelBlock(torch.from_numpy(values), (1, 12, TOKENS // 3), TOKENS)
        text = rng.integers(10, VOCABULARY, length - TOKENS - 2).tolist()
        ids.append([3, *[IMAGE] * TOKENS, 4, *text])
        images.append([block])
    return ids, images


def peak(device: str, run: Callable[[], None]) -> float:
    """Run, and return the peak memory in MiB."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        run()
        return torch.cuda.max_memory_allocated() / 2**20
    return most(run) / 2**20


def measure(way: str, rows: int, longest: int, budget: int, out: str) -> dict[str, float]:
    """Take the gradient in one way, twice; the first is a warm-up."""
    from codev_agents.engines.batch import collate, to_device
    from codev_agents.engines.vision import speed_up
    from codev_train.learn.packing import plan
    from codev_train.learn.scorer import TokenScorer

    device = "cuda" if torch.cuda.is_available() else "cpu"
    scorer = TokenScorer(model(device))
    speed_up(scorer.model)
    ids, images = trajectories(rows, longest)
    order = sorted(range(rows), key=lambda row: len(ids[row]))
    micro_batch = max(1, budget // longest)
    passes = [order[start : start + micro_batch] for start in range(0, rows, micro_batch)]
    if way != "padded":
        scenes = [row // GROUP for row in range(rows)] if way == "grouped" else []
        passes = plan([len(s) for s in ids], budget, scenes)
    places = 0

    def step() -> None:
        nonlocal places
        places = 0
        for part in passes:
            given = [ids[r] for r in part], [images[r] for r in part]
            batch = to_device(collate(*given, PAD, IMAGE, once=way == "grouped"), device)
            length = batch["input_ids"].shape[1]
            chosen = batch["attention_mask"].bool() & (torch.arange(length, device=device) % 2 == 0)
            chosen[:, : TOKENS + 2] = False
            scorer(batch, chosen, packed=way != "padded")[0].sum().div(rows * longest).backward()
            places += int(batch["attention_mask"].sum()) if way != "padded" else batch["input_ids"].numel()
        if device == "cuda":
            torch.cuda.synchronize()

    base = (resident() if device == "cpu" else torch.cuda.memory_allocated()) / 2**20
    memory = peak(device, step) - base
    gradient = torch.cat([p.grad.flatten() for p in scorer.parameters() if p.grad is not None]).cpu()
    scorer.zero_grad()
    started, cpu = time.perf_counter(), time.process_time()
    step()
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    torch.save(gradient, out)
    counts = {"passes": len(passes), "places": places, "tokens": sum(map(len, ids))}
    return {"seconds": seconds, "cpu": cpu, "MiB": memory} | counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--longest", type=int, default=1024)
    parser.add_argument("--budget", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way:
        print(json.dumps(measure(given.way, given.rows, given.longest, given.budget, given.out)))
        return
    with tempfile.TemporaryDirectory() as folder:
        found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
        for _ in range(given.repeats):
            for way, values in found.items():
                command = [sys.executable, *sys.argv, "--way", way, "--out", f"{folder}/{way}.pt"]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                values.append(json.loads(done.stdout.splitlines()[-1]))
        first, *others = (torch.load(f"{folder}/{way}.pt") for way in found)
    medians = {way: {k: statistics.median(v[k] for v in values) for k in values[0]} for way, values in found.items()}
    print("| | passes | places for tokens | seconds | CPU seconds | peak MiB |\n| --- | --- | --- | --- | --- | --- |")
    for way, m in medians.items():
        cells = f"{m['seconds']:.2f} | {m['cpu']:.2f} | {m['MiB']:.0f}"
        print(f"| {way} | {m['passes']:.0f} | {m['places']:.0f} | {cells} |")
    for below, above in itertools.pairwise(WAYS):
        ratios = [f"{medians[above][k] / medians[below][k]:.2f}" for k in ("places", "seconds", "cpu", "MiB")]
        print(f"| {above} / {below} | | {' | '.join(ratios)} |")
    difference = max(float((first - other).norm() / other.norm()) for other in others)
    print(f"\n{medians['packed']['tokens']:.0f} tokens; the gradients differ by {difference:.1e} of their norm at most")


if __name__ == "__main__":
    main()
