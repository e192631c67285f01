"""Estimates runs of other sizes: `python benchmarks/scaling.py` computes, `… --measure` compares with a CPU.

Without arguments: tables by model and number of GPUs, from `codev_train.run.estimate`, all for the same run: 256 tasks
x 8 trajectories of 6000 tokens on average, 1000 of them sampled, H200s, sharded within a machine of eight.

`--measure` trains toy models on synthetic trajectories on this CPU, each in its own process. It prints the peak memory
above that of the loaded model (the process's own memory) and the estimate of gradients, moments, activations and
logits. The allocator is configured to return freed memory.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys

from resident import most, resident

from codev_agents.engines.options import VllmOptions
from codev_train.run import estimate
from codev_train.run.estimate import GPUS, KNOWN_MODELS, ModelSize
from codev_train.run.options import EstimateOptions, OptimizerOptions, TrainOptions

MODELS = ("Qwen2.5-VL-3B", "Qwen2.5-VL-7B", "Qwen3-VL-8B", "Qwen2.5-VL-32B")
RUN = TrainOptions(
    engine="vllm",
    vllm=VllmOptions(memory=0.5),
    precision="bf16",
    gradient_checkpointing=True,
    token_budget=32768,
    max_length=28672,
    estimate=EstimateOptions(gpus=8, shards=8, trajectory=6000, response=1000),
)
LONGEST_RESPONSE = 20_480
"""Tokens that a trajectory of ten turns may sample at most (CodeV, arXiv 2511.19661: response length)."""
TURNS = 4


def plan(model: str, gpus: int) -> tuple[ModelSize, TrainOptions]:
    """Return a model's size and the run on a number of GPUs; the largest one is sampled by a server with as many."""
    size = KNOWN_MODELS[model]
    engine = "vllm-server" if 2 * size.parameters > 0.3 * GPUS["h200"].memory else "vllm"
    assumed = dataclasses.replace(RUN.estimate, gpus=gpus)
    return size, dataclasses.replace(RUN, engine=engine, estimate=assumed)


def tables() -> None:
    gpu = GPUS["h200"]
    print("| model | GPUs | engine | update GB | rollouts GB | prefill s | decode s | update s | push s | all s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for model in MODELS:
        for gpus in (8, 32, 128, 256):
            size, options = plan(model, gpus)
            memory, times = estimate.memory(size, options), estimate.seconds(size, options, gpu)
            fits = "" if memory.peak < gpu.memory else " (too much)"
            cells = [f"{value:.1f}" for value in (*vars(times).values(), times.total)]
            gigabytes = f"{memory.update / 1e9:.0f}{fits} | {memory.rollouts / 1e9:.0f}"
            print(f"| {model} | {gpus} | {options.engine} | {gigabytes} | {' | '.join(cells)} |")
    print("\n| model | GPUs | a push, GB | GB/s for a push in 5 % of an update | the longest response, s |")
    print("| --- | --- | --- | --- | --- |")
    for model in MODELS:
        for gpus in (8, 256):
            size, options = plan(model, gpus)
            times, pushed = estimate.seconds(size, options, gpu), 2 * size.parameters
            step = times.decode / estimate.sampled_tokens(options) / _waves(size, options)
            others = times.total - times.push
            print(
                f"| {model} | {gpus} | {pushed / 1e9:.1f} | {pushed / 1e9 / (0.05 * others):.1f} | "
                f"{step * LONGEST_RESPONSE:.0f} |"
            )
    print("\n| model | GPUs | gathered in a pass, GB | computing a pass, s | GB/s to hide it | environment steps/s |")
    print("| --- | --- | --- | --- | --- | --- |")
    for model in MODELS:
        for gpus in (8, 256):
            size, options = plan(model, gpus)
            times = estimate.seconds(size, options, gpu)
            passes = estimate.passes_per_step(options)
            gathered = 2 * 2 * size.parameters + 4 * size.parameters  # twice weights in bf16, once gradients in fp32
            episodes = options.prompts * options.group
            steps = episodes * TURNS / (times.prefill + times.decode)
            print(
                f"| {model} | {gpus} | {gathered / 1e9:.0f} | {times.update / passes:.1f} | "
                f"{gathered / 1e9 / (times.update / passes):.0f} | {steps:.0f} |"
            )


def _waves(size: ModelSize, options: TrainOptions) -> int:
    per_gpu = options.prompts * options.group // estimate.decoding_gpus(options)
    return -(-per_gpu // max(1, estimate.episodes_at_once(size, options)))


GIVES_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536"}  # glibc would keep freed blocks of up to 32 MiB
CASES = (
    {"hidden": 128, "layers": 3, "checkpointing": False},
    {"hidden": 256, "layers": 6, "checkpointing": False},
    {"hidden": 512, "layers": 8, "checkpointing": False},
    {"hidden": 512, "layers": 8, "checkpointing": True},
)
VOCABULARY, IMAGE, IMAGE_TOKENS = 4096, 5, 36


def measure(case: dict, rows: int, length: int) -> dict[str, float]:
    """Take two optimizer steps; return measured and estimated bytes beyond the loaded model's."""
    import torch

    from codev_agents.engines.batch import collate
    from codev_agents.engines.options import ToyModelOptions
    from codev_agents.engines.toy import build_model, build_tokenizer
    from codev_agents.engines.vision import speed_up
    from codev_agents.rollout.tokens import PixelBlock
    from codev_train.learn.optimizer import make_optimizer
    from codev_train.learn.scorer import TokenScorer
    from codev_train.run.model_size import config_size

    toy = ToyModelOptions(hidden=case["hidden"], layers=case["layers"])
    model = build_model(toy, build_tokenizer(["a line of text"], [], []), seed=0)
    model.resize_token_embeddings(VOCABULARY, mean_resizing=False)
    speed_up(model)
    if case["checkpointing"]:
        model.gradient_checkpointing_enable()
    scorer = TokenScorer(model).train()
    optimizer = make_optimizer(scorer, OptimizerOptions(lr=1e-6))
    options = TrainOptions(
        micro_batch=rows,
        prompts=rows,
        group=2,
        minibatches=2,
        max_length=length,
        gradient_checkpointing=case["checkpointing"],
        estimate=EstimateOptions(trajectory=length, images=IMAGE_TOKENS / length),
    )

    def step() -> None:
        block = PixelBlock(torch.randn(4 * IMAGE_TOKENS, 3 * 2 * toy.patch**2), (1, 12, 12), IMAGE_TOKENS)
        text = torch.randint(10, VOCABULARY, (rows, length - IMAGE_TOKENS - 2)).tolist()
        batch = collate([[3, *[IMAGE] * IMAGE_TOKENS, 4, *ids] for ids in text], [[block]] * rows, 0, IMAGE)
        chosen = torch.zeros(rows, length, dtype=torch.bool)
        chosen[:, length // 2 :] = True
        scorer(batch, chosen)[0].mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    base = resident()
    peak = most(step) - base
    parts = estimate.memory(config_size(model.config, "toy"), options)
    guess = parts.optimizer + parts.gradients + parts.activations + parts.logits
    return {"measured": peak, "estimated": guess}


def measurements(rows: int, length: int, repeats: int) -> None:
    print(f"{rows} trajectories of {length} tokens in one pass, fp32; medians of {repeats} processes\n")
    print("| width | layers | checkpointing | measured MB | estimated MB | estimated / measured |")
    print("| --- | --- | --- | --- | --- | --- |")
    for number, case in enumerate(CASES):
        command = [sys.executable, *sys.argv, "--case", str(number)]
        found = [
            json.loads(
                subprocess.run(
                    command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | GIVES_BACK
                ).stdout.splitlines()[-1]
            )
            for _ in range(repeats)
        ]
        measured, estimated = (statistics.median(f[name] for f in found) for name in ("measured", "estimated"))
        shape = f"{case['hidden']} | {case['layers']} | {'yes' if case['checkpointing'] else 'no'}"
        print(f"| {shape} | {measured / 1e6:.0f} | {estimated / 1e6:.0f} | {estimated / measured:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case is not None:
        print(json.dumps(measure(CASES[given.case], given.rows, given.length)))
    elif given.measure:
        measurements(given.rows, given.length, given.repeats)
    else:
        tables()


if __name__ == "__main__":
    main()
