"""Measures the engines: tokens per second of `hf` and `vllm` on the same prompts, and the time of a weight push.

Run `python benchmarks/engines.py [--model FOLDER] [--device cuda] [--rollouts 64] [--tokens 128] [--rounds 3]` with a
Python that has vLLM. Without a model it uses a toy of the smallest size that vLLM accepts. The engines take turns on
prompts with one image each, `rounds` times, after a warm-up round. Completions are cut at `tokens`, because random
weights hardly ever end one earlier. Only ratios within one run are meaningful.

`--images` measures something else: the processor time that the thread that steps vLLM spends on each image of a
request, of 1600x900 pixels, if it processes images itself and if others do, as in training.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from typing import Any

import numpy as np
import torch

from codev_agents.engines import make_engine
from codev_agents.engines.options import ToyModelOptions, VllmOptions
from codev_agents.engines.policy import Policy
from codev_agents.rollout.engine import Engine, Prompt, Sampling
from codev_env.types import IMAGE_PLACEHOLDER
from codev_train.run.options import EnvOptions, SFTOptions
from codev_train.sft.cold_start import toy_policy

_GROUP = 8


def make_policy(toy: ToyModelOptions) -> Policy:
    return toy_policy(SFTOptions(env=EnvOptions(scenes="tiny"), toy=toy))


def make_prompts(policy: Policy, rollouts: int) -> list[Prompt]:
    """Groups of rollouts that share a prompt with one image."""
    rng = np.random.default_rng(0)
    prompts = []
    for number in range(max(1, rollouts // _GROUP)):
        image = policy.processor.image(rng.integers(0, 256, (400, 600, 3), dtype=np.uint8))
        ids = policy.processor.prompt("Look closely.", f"{IMAGE_PLACEHOLDER}\nWhich number is {number}?", [image])
        prompts += [Prompt(ids, [image])] * _GROUP
    return prompts


def measure(engine: Engine, prompts: list[Prompt], sampling: Sampling, model: Any) -> tuple[float, float]:
    """Return tokens per second, and seconds of a push of weights after it."""
    started = time.perf_counter()
    found = engine.generate(prompts, sampling)
    sampled = time.perf_counter()
    engine.sleep()
    engine.sync(model)
    return sum(len(c.ids) for c in found) / (sampled - started), time.perf_counter() - sampled


def image_ms(device: str, count: int = 8) -> tuple[float, float]:
    """Return milliseconds of this thread per image that is processed for vLLM: here, and by other threads."""
    policy = make_policy(ToyModelOptions(hidden=128, layers=1, vision_layers=1, heads=4, view=1200, patch=14))
    engine: Any = make_engine("vllm", policy.model, policy.processor, count, 0, VllmOptions(), 4096, device)
    renderer = engine._llm.llm_engine.renderer
    rng = np.random.default_rng(1)
    processor = policy.processor

    def requests() -> list[Prompt]:
        """New images, so that no cache knows them."""
        images = [processor.image(rng.integers(0, 256, (900, 1600, 3), dtype=np.uint8)) for _ in range(count)]
        return [Prompt(processor.prompt("", IMAGE_PLACEHOLDER, [image]), [image]) for image in images]

    async def elsewhere(prompt: Prompt) -> None:
        given = await asyncio.to_thread(engine._input, prompt)
        await renderer.render_cmpl_async([given], skip_mm_cache=True)

    async def all_elsewhere(prompts: list[Prompt]) -> float:
        started = time.thread_time()
        await asyncio.gather(*map(elsewhere, prompts))
        return time.thread_time() - started

    here = []
    for prompt in requests():
        started = time.thread_time()
        renderer.render_cmpl([engine._input(prompt)], skip_mm_cache=True)
        here.append(time.thread_time() - started)
    return 1000 * sum(here) / count, 1000 * asyncio.run(all_elsewhere(requests())) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rollouts", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--images", action="store_true")
    options = parser.parse_args()
    if options.images:
        here, elsewhere = image_ms(options.device)
        print(f"ms of the thread that steps vLLM, per image: {here:.1f} itself, {elsewhere:.2f} if others process them")
        return
    toy = ToyModelOptions(hidden=256, layers=6, heads=8)
    policy = Policy.load(options.model) if options.model else make_policy(toy)
    policy.model.to(options.device)
    prompts = make_prompts(policy, options.rollouts)
    sampling = Sampling(1.0, options.tokens)
    parts = (policy.model, policy.processor, len(prompts), 0, VllmOptions(), 4096, options.device)
    engines = {name: make_engine(name, *parts) for name in ("hf", "vllm")}
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in engines}
    for number in range(options.rounds + 1):
        for name, engine in engines.items():
            row = measure(engine, prompts, sampling, policy.model)
            if number:
                results[name].append(row)
    weights = sum(p.numel() for p in policy.model.parameters())
    print(
        f"{len(prompts)} rollouts of {options.tokens} tokens, {weights / 1e6:.1f} million weights, {options.device}, "
        f"{torch.get_num_threads()} threads; medians of {options.rounds} rounds\n"
    )
    print("| engine | tokens / s | push of weights, ms |")
    print("| --- | --- | --- |")
    for name, rows in results.items():
        speed, push = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"| `{name}` | {speed:.0f} | {1000 * push:.0f} |")


if __name__ == "__main__":
    main()
