"""Measures one part of `gpu.py`, in a process of its own: each part yields its cells, and each cell a row of numbers.

A row is appended to the part's file as soon as it is measured, and cells that have a row are not measured again.
Running out of memory is a result. A cell in which the process ended twice is recorded as failed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpu_attention import attention
from gpu_cells import CUDA, DEVICE, GIB, Cell, Missing, Row, clear, memory, timed
from gpu_models import SIZES, make_model, make_samples, narrow_base, useful_flops

LENGTHS = (2048, 8192, 16384, 32768)
PASS = 8192
"""Tokens of a forward pass, unless a trajectory has more."""


def machine(toy: bool) -> Iterator[Cell]:
    """The ceilings: a large matrix product and a large copy."""

    def product() -> Row:
        n = 128 if toy else 8192
        a, b = (torch.randn(n, n, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
        return {"tflops": 2 * n**3 / timed(lambda: a @ b, 10) / 1e12}

    def copy() -> Row:
        a = torch.randn((1 << 14) if toy else (1 << 30), device=DEVICE)
        b = torch.empty_like(a)
        return {"gb_per_second": 2 * a.nbytes / timed(lambda: b.copy_(a), 10) / 1e9}

    yield "product", product
    yield "copy", copy


def update(name: str) -> Callable[[bool], Iterator[Cell]]:
    """Steps of the updater on trajectories with images: LoRA, all weights with AdamW, all weights with plain SGD."""

    def cells(toy: bool) -> Iterator[Cell]:
        size = SIZES["tiny" if toy else name]
        for way in ("lora", "full", "full, SGD"):
            trainers: list[Any] = []  # made with the first cell of its kind, freed after the last
            for length in (128,) if toy else LENGTHS:
                yield f"{way}, {length}", lambda way=way, length=length, t=trainers: step(size, way, length, t)
            trainers.clear()
            clear()

    return cells


def eight_bits(toy: bool) -> Iterator[Cell]:
    """The same of all weights with AdamW whose moments have 8 bits."""
    for name in ("3b", "7b"):
        size, length = (SIZES["tiny"], 128) if toy else (SIZES[name], PASS)
        yield f"{name} full, 8-bit AdamW, {length}", lambda s=size, n=length: step(s, "full, 8-bit AdamW", n, [])


def checkpointing(toy: bool) -> Iterator[Cell]:
    """The same, with the activations of no, of half, and of all decoder layers kept for the backward pass."""
    for name in ("3b", "7b"):
        size, length = (SIZES["tiny"], 128) if toy else (SIZES[name], PASS)
        for way in ("lora", "full, SGD"):
            trainers: list[Any] = []
            for kept in (0, size.layers // 2, size.layers):
                cell = f"{name} {way}, {length}, {kept} of {size.layers}"
                yield cell, lambda s=size, w=way, n=length, t=trainers, kept=kept: step(s, w, n, t, kept)
            trainers.clear()
            clear()


SAVINGS = {
    "logits of 1024 tokens": (2**40, False, False, False),
    "of 441": (2**26, False, False, False),
    "of 441, adapters by their own product": (2**26, True, False, False),
    "of 220, adapters by their own product": (2**25, True, False, False),
    "the same, gates keep their inputs alone": (2**25, True, True, False),
    "of 220, adapters by their own product, compiled": (2**25, True, False, True),
}
"""Most logits at a time, and whether the trainer's adapters, its gates, and compiled layers are used."""


def savings(toy: bool) -> Iterator[Cell]:
    """Updates with LoRA, with what the trainer does to take less memory one after the other."""
    size, length = (SIZES["tiny"], 128) if toy else (SIZES["3b"], PASS)
    trainers: list[Any] = []
    for cell, ways in SAVINGS.items():
        yield cell, lambda ways=ways: saving(size, length, trainers, *ways, "eager" if toy else "inductor")


def saving(
    size: Any, length: int, trainers: list[Any], logits: int, product: bool, gate: bool, compiled: bool, backend: str
) -> Row:
    from codev_agents.engines import lora, vision
    from codev_train.learn import logprobs
    from codev_train.learn.scorer import compile_layers

    if not trainers:
        trainers.append(make_updater(size, "lora"))
    model = trainers[0].accelerator.unwrap_model(trainers[0].module).model
    logprobs.LOGITS = logits
    for module in model.modules():
        for changed, wanted, forward in (
            (hasattr(module, "lora_A"), product, lora._add_in_product),
            (type(module).__name__ in vision._GATED, gate, vision._gated_mlp),
        ):
            if changed:
                vars(module).pop("forward", None)
                if wanted:
                    module.forward = types.MethodType(forward, module)
    if compiled:
        compile_layers(model, backend)
    return step(size, "lora", length, trainers)


def step(size: Any, way: str, length: int, trainers: list[Any], kept: int = 0) -> Row:
    from codev_agents.engines.policy import Policy

    clear()
    try:
        if not trainers:
            trainers.append(make_updater(size, way))
        updater = trainers[0]
        updater = make_updater(size, way, max(length, PASS), updater)
        policy = Policy(updater.accelerator.unwrap_model(updater.module).model, size.ids)
        policy.checkpoint_gradients(kept)
        samples = make_samples(size, length, max(2, 32768 // length) if CUDA else 2)
        clear()  # what making the weights took
        rng = np.random.default_rng(0)
        seconds = timed(lambda: updater.update(samples, rng), 2)
    except torch.cuda.OutOfMemoryError:
        if trainers:  # the gradient stays where the step broke off
            trainers[0].optimizer.zero_grad()
        raise
    tokens = sum(map(len, samples))
    model = updater.accelerator.unwrap_model(updater.module).model
    flops = sum(useful_flops(model, sample, way == "lora") for sample in samples)
    return {
        "seconds": seconds,
        "tokens_per_second": tokens / seconds,
        "tflops": flops / seconds / 1e12,
        "trajectories": len(samples),
        "images": len(samples[0].images),
        **memory(),
    }


def make_updater(size: Any, way: str, budget: int = 0, like: Any = None) -> Any:
    """Make the updater as `codev train` does, or one with another budget over the same weights."""
    from accelerate import Accelerator

    from codev_agents.engines.options import LoraOptions
    from codev_agents.engines.policy import Policy
    from codev_agents.engines.vision import speed_up
    from codev_train.learn.optimizer import make_optimizer
    from codev_train.learn.scorer import TokenScorer
    from codev_train.learn.update import Updater
    from codev_train.run.health import HealthOptions
    from codev_train.run.options import OptimizerOptions, TrainOptions

    if "8-bit" in way and not importlib.util.find_spec("torchao"):
        raise Missing("torchao is not installed")
    options = TrainOptions(
        precision="bf16",
        gradient_checkpointing=True,
        token_budget=budget or 1,
        train_vision=False,
        correction="token",
        lora=LoraOptions(rank=16 if way == "lora" else 0),
        health=HealthOptions(mismatch=1e9),  # the sampler's numbers are made up
    )
    if like is not None:
        return Updater(like.module, like.optimizer, size.ids, options, like.accelerator)
    policy = Policy(make_model(size, DEVICE), size.ids)
    speed_up(policy.model)
    narrow_base(policy.model, options)
    policy.restrict(options.train_vision, options.lora)
    scorer = TokenScorer(policy.model)
    trained = [p for p in scorer.parameters() if p.requires_grad]
    chosen = OptimizerOptions(name="adamw8bit" if "8-bit" in way else "adamw")
    optimizer = torch.optim.SGD(trained, lr=1e-6) if "SGD" in way else make_optimizer(scorer, chosen)
    accelerator = Accelerator(mixed_precision=options.precision, cpu=not CUDA)
    module, optimizer = accelerator.prepare(scorer, optimizer)
    return Updater(module, optimizer, size.ids, options, accelerator)


def agreement(toy: bool) -> Iterator[Cell]:
    """Differences of log-probabilities in bf16 from those in fp32, for the same weights and tokens."""
    name = "tiny" if toy else "3b"
    for length in (128,) if toy else (2048, 8192):
        yield f"{name}, {length}", lambda length=length: compare(SIZES[name], length)


def compare(size: Any, length: int) -> Row:
    from accelerate import Accelerator

    from codev_agents.engines.batch import collate, to_device
    from codev_agents.engines.vision import speed_up
    from codev_train.learn.scorer import TokenScorer

    clear()
    model = make_model(size, DEVICE).eval()
    speed_up(model)
    scorer = TokenScorer(model)
    (sample,) = make_samples(size, length, 1)
    batch = to_device(collate([sample.ids], [sample.images], size.ids.pad_id, size.ids.image_id), DEVICE)
    chosen = torch.tensor([sample.mask], device=DEVICE)

    @torch.no_grad()
    def score(module: Any) -> torch.Tensor:
        return module(batch, chosen, 1.0, tuple(size.ids.banned_ids), True)[0].float()

    exact = score(scorer)
    autocast = score(Accelerator(mixed_precision="bf16", cpu=not CUDA).prepare_model(scorer, evaluation_mode=True))
    stored = score(scorer.to(torch.bfloat16))

    def differences(name: str, a: torch.Tensor, b: torch.Tensor) -> Row:
        gap = (a - b).abs()
        return {f"{name}_mean": gap.mean().item(), f"{name}_max": gap.max().item()}

    return {
        "tokens": len(exact),
        **differences("trainer", autocast, exact),  # fp32 weights, computed in bf16
        **differences("engine", stored, exact),  # bf16 weights, as an engine holds them
        **differences("between", stored, autocast),
    }


def sleep(toy: bool) -> Iterator[Cell]:
    """Memory and seconds of vLLM's sleep and of waking it with new weights; greedy tokens before and after."""
    yield "vLLM", lambda: sleep_and_wake(toy)


def sleep_and_wake(toy: bool) -> Row:
    if not importlib.util.find_spec("vllm"):
        raise Missing("vLLM is not installed")
    from codev_agents.engines.options import ToyModelOptions, VllmOptions
    from codev_agents.engines.policy import Policy
    from codev_agents.engines.toy import build_image_processor, build_model, build_tokenizer
    from codev_agents.engines.vllm import VllmEngine
    from codev_agents.rollout.engine import Prompt, Sampling
    from codev_agents.rollout.tokens import ChatProcessor
    from codev_env.types import IMAGE_PLACEHOLDER

    # The language model of a Qwen3-VL of 1.6B parameters, with the toy's vocabulary.
    big = ToyModelOptions(
        hidden=2048, layers=28, heads=16, vision_hidden=1024, vision_layers=24, view=896, min_view=64, patch=16
    )
    options = ToyModelOptions() if toy else big
    tokenizer = build_tokenizer(["a line of text, and another"] * 8, [], [])
    policy = Policy(
        build_model(options, tokenizer, 0).to(DEVICE), ChatProcessor(tokenizer, build_image_processor(options))
    )
    image = policy.processor.image(np.zeros((256, 256, 3), dtype=np.uint8))
    prompt = Prompt(policy.processor.prompt("a line", f"another {IMAGE_PLACEHOLDER} text", [image]), [image])
    engine = VllmEngine(policy.model, policy.processor, VllmOptions(), 8, 2048, device=DEVICE)

    def greedy() -> list[int]:
        return list(engine.generate([prompt], Sampling(0.0, 16))[0].ids)

    def used() -> float:
        free, total = torch.cuda.mem_get_info() if CUDA else (0, 0)
        return (total - free) / GIB

    first, awake = greedy(), used()
    started = time.perf_counter()
    engine.sleep()
    slept = time.perf_counter()
    asleep = used()
    log = engine.sync(policy.model)
    woken = time.perf_counter()
    return {
        "parameters": sum(p.numel() for p in policy.model.parameters()),
        "sleep_seconds": slept - started,
        "wake_seconds": woken - slept,
        "awake_gib": awake,
        "asleep_gib": asleep,
        "woken_gib": used(),
        "same_tokens": greedy() == first,
        **log,
    }


def whole_run(toy: bool) -> Iterator[Cell]:
    """A whole run by the command line, killed and resumed."""
    from gpu_run import run

    def play() -> Row:
        if not importlib.util.find_spec("RestrictedPython"):
            raise Missing("RestrictedPython is not installed")
        return run(toy)

    yield "toy" if toy else "1.8B", play


def trl(toy: bool) -> Iterator[Cell]:
    """A gradient step of TRL's `GRPOTrainer` and of ours on the same trajectories, with the same precision."""
    name, lengths = ("tiny", (128,)) if toy else ("3b", (8192, 16384))
    for way in ("lora", "full"):
        for length in lengths:
            yield f"{way}, {length}, ours", lambda w=way, n=length: step(SIZES[name], w, n, [])
            yield f"{way}, {length}, TRL", lambda w=way, n=length: trl_step(SIZES[name], w, n)


def trl_step(size: Any, way: str, length: int) -> Row:
    if not importlib.util.find_spec("trl"):
        raise Missing("TRL is not installed")
    from gpu_trl import run

    clear()
    samples = make_samples(size, length, max(2, 32768 // length) if CUDA else 2)
    seconds = run(make_model(size, DEVICE), size, samples, way == "lora", CUDA)
    return {"seconds": seconds, "tokens_per_second": sum(map(len, samples)) / seconds, **memory()}


PARTS: dict[str, Callable[[bool], Iterator[Cell]]] = {
    "machine": machine,
    "attention": attention,
    "update-3b": update("3b"),
    "update-7b": update("7b"),
    "update-8bit": eight_bits,
    "savings": savings,
    "checkpointing": checkpointing,
    "agreement": agreement,
    "sleep": sleep,
    "run": whole_run,
    "trl": trl,
}


def read(path: Path) -> list[Row]:
    """Return the rows of a part's file; a line that was cut off is left out."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def results(path: Path) -> dict[str, Row]:
    """Return the results by cell."""
    return {row["cell"]: row for row in read(path) if row["state"] != "begun"}


def measure(part: str, path: Path, toy: bool) -> None:
    """Measure the cells that have no result yet."""
    done = results(path)
    begun = [row["cell"] for row in read(path) if row["state"] == "begun"]
    with path.open("a") as file:

        def write(**row: Any) -> None:
            file.write("\n" + json.dumps(row))
            file.flush()

        for cell, run in PARTS[part](toy):
            if cell in done:
                continue
            if begun.count(cell) >= 2:
                write(cell=cell, state="failed", why="the process ended twice while it was measured")
                continue
            write(cell=cell, state="begun")
            try:
                row = run()
            except Missing as error:
                row = {"state": "not installed", "why": str(error)}
            except torch.cuda.OutOfMemoryError as error:
                row = {"state": "out of memory", "why": str(error).splitlines()[0]}
            except Exception as error:
                write(cell=cell, state="failed", why=f"{type(error).__name__}: {error}"[:500])
                raise
            wrong = [name for name, value in row.items() if isinstance(value, float) and not math.isfinite(value)]
            if wrong:
                row = {"state": "failed", "why": f"not finite: {', '.join(wrong)}"}
            write(cell=cell, **({"state": "measured"} | row))
            print(f"{part}: {cell}: {row}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("path", type=Path)
    parser.add_argument("--toy", action="store_true")
    given = parser.parse_args()
    sys.exit(measure(given.part, given.path, given.toy))
