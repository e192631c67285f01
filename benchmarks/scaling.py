"""Estimates runs of other sizes: `python benchmarks/scaling.py`.

Tables by model and number of GPUs, from `codev_train.run.estimate`, all for the same run: 256 tasks x 8 trajectories of
6000 tokens on average, 1000 of them sampled, H200s, sharded within a machine of eight.
"""

from __future__ import annotations

import dataclasses

from codev_agents.engines.options import VllmOptions
from codev_train.run import estimate
from codev_train.run.options import EstimateOptions, TrainOptions
from codev_train.run.sizes import GPUS, KNOWN_MODELS, ModelSize

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
            phases = (times.prefill, times.decode, times.update, times.push, times.total)
            cells = [f"{value:.1f}" for value in phases]
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


if __name__ == "__main__":
    tables()
