"""Measures the memory in which processes load and save a policy: `python benchmarks/loading.py [MILLIONS] [RANK]`.

Two processes on this CPU load a Qwen3-VL of so many million weights (100), share the weights out by FSDP2 and make the
`hf` engine, as `codev train --sharding fsdp2` does before its first evaluation. The first table has, in MB and for each
process, the most resident memory above that before loading, and the memory that stays; both until the weights are
shared out, and with the engine.

Two further processes take an optimizer step, save a checkpoint, and load its moments again, as a run does (sharded) and
in the obvious way (gathered): the main process gathers weights and moments and writes them with `torch.save`, and each
process reads all moments and takes its shards. The second table has, for each process, the most resident memory above
that before the step, and seconds of processor time. Training goes on while a sharded checkpoint is written: the seconds
before that are in a row of their own.

`RANK` is that of adapters in fp32 beside weights in bf16; 0 trains all weights.
"""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1] / "tests" / "train"
HIDDEN, HEADS = 512, 8
LAYER = 4 * HIDDEN**2 + 9 * HIDDEN**2
"""Weights of the matrices of one layer."""


def resident(name: str) -> float:
    """Return `VmRSS`, the resident memory of this process, or `VmHWM`, the most since `begin`, in MB."""
    (kib,) = re.findall(rf"{name}:\s*(\d+) kB", Path("/proc/self/status").read_text())
    return int(kib) * 1024 / 1e6


def begin() -> float:
    """Measure `VmHWM` from here on; returns the resident memory."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    return resident("VmRSS")


def save_policy(folder: Path, millions: int) -> float:
    """Save a policy of random weights; returns their size in fp32, in MB."""
    from codev_agents.engines.options import ToyModelOptions
    from codev_agents.engines.policy import Policy
    from codev_agents.engines.toy import build_image_processor, build_model, build_tokenizer
    from codev_agents.rollout.tokens import ChatProcessor

    options = ToyModelOptions(hidden=HIDDEN, heads=HEADS, layers=max(1, round(millions * 1e6 / LAYER)))
    tokenizer = build_tokenizer(["look at the image"], [], [])
    policy = Policy(build_model(options, tokenizer, 0), ChatProcessor(tokenizer, build_image_processor(options)))
    policy.save(folder)
    return 4 * sum(p.numel() for p in policy.model.parameters()) / 1e6


def prepare(folder: Path, rank: int) -> tuple[Any, Callable[[], Any]]:
    """Return the processes, and a function that loads the policy and shares it out as a run does."""
    from codev_agents.engines.options import LoraOptions
    from codev_train.learn.sharding import make_accelerator
    from codev_train.learn.trained import load_trained
    from codev_train.run.options import TrainOptions

    options = TrainOptions(model=str(folder), lora=LoraOptions(rank=rank), precision="bf16" if rank else "fp32")
    accelerator = make_accelerator(options.precision)
    return accelerator, lambda: load_trained(options, options.model, None, accelerator)


def leave(folder: Path, accelerator: Any, found: Any) -> None:
    """Write what this process found, and end it when the others have."""
    (folder / f"{accelerator.process_index}.json").write_text(json.dumps(found))
    accelerator.wait_for_everyone()
    os._exit(0)


def load(folder: Path, rank: int) -> None:
    """Load, shard and sync as a run does, and write what it took."""
    from codev_agents.engines import make_engine

    accelerator, load_trained = prepare(folder, rank)
    before = begin()
    trained = load_trained()
    found = [resident("VmHWM") - before, begin() - before]
    engine = make_engine("hf", trained.policy.model, trained.policy.processor, 8, 0)
    found += [resident("VmHWM") - before, begin() - before]
    leave(folder, accelerator, found)
    del engine


def save(folder: Path, rank: int) -> None:
    """Save and load a checkpoint in both ways, and write what it took."""
    import torch
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_optimizer_state_dict

    from codev_train.learn import checkpoint
    from codev_train.learn.optimizer import parts

    accelerator, load_trained = prepare(folder, rank)
    trained = load_trained()
    module, optimizer = trained.module, trained.optimizer
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter) if parameter.requires_grad else None
    optimizer.step()
    optimizer.zero_grad()
    found: dict[str, tuple[float, float]] = {}
    gathered = StateDictOptions(full_state_dict=True, cpu_offload=True)

    def measure(name: str, *steps: Callable[[], Any]) -> None:
        """Run steps, and note what they have taken after each."""
        time.sleep(2)  # The thread of the step before may still be freeing its copies.
        accelerator.wait_for_everyone()
        before, started = begin(), time.process_time()
        for number, step in enumerate(steps, 1):
            step()
            so_far = name if number == len(steps) else f"{name}, until training goes on"
            found[so_far] = resident("VmHWM") - before, time.process_time() - started

    def gather() -> None:
        weights, moments = get_state_dict(module, optimizer, options=gathered)
        if accelerator.is_main_process:
            torch.save(weights, folder / "weights.pt")
            torch.save(moments, folder / "moments.pt")

    def scatter() -> None:
        moments = torch.load(folder / "moments.pt", weights_only=True)
        set_optimizer_state_dict(module, optimizer, moments, options=StateDictOptions(full_state_dict=True))

    writer = checkpoint.CheckpointWriter(folder / "run", 1)
    measure("save, sharded", lambda: writer.save(1, trained.policy, optimizer), writer.wait)
    measure("save, gathered", gather)
    for part in parts(optimizer):
        part.state.clear()
    (saved,) = checkpoint.checkpoints(folder / "run")
    measure("load moments, sharded", lambda: checkpoint.load_optimizer(saved, trained.policy.model, optimizer))
    for part in parts(optimizer):
        part.state.clear()
    measure("load moments, gathered", scatter)
    leave(folder, accelerator, found)


def launch(folder: Path, rank: int, step: str) -> list[Any]:
    """Start two processes; returns what each of them found."""
    config = str(resources.files("codev_train.run.launch") / "fsdp2.yaml")
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", config, "--num_processes", "2"]
    command += ["--main_process_port", "0", str(TESTS / "sharded_process.py"), "loading", str(folder), str(rank), step]
    paths = [str(Path(__file__).parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(p for p in paths if p)}
    environment["MALLOC_MMAP_THRESHOLD_"] = "65536"  # freed tensors are not kept by the allocator
    subprocess.run(command, env=environment, check=True)
    return [json.loads((folder / f"{number}.json").read_text()) for number in range(2)]


def main(millions: int = 100, rank: int = 0) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = save_policy(folder, millions)
        print(f"Weights: {size:.0f} MB in fp32. Memory in MB, peak / afterwards\n")
        print("| process | loaded and shared out | with the engine |\n| --- | --- | --- |")
        for role, found in zip(("main", "other"), launch(folder, rank, "load"), strict=True):
            print(f"| {role} | {found[0]:.0f} / {found[1]:.0f} | {found[2]:.0f} / {found[3]:.0f} |", flush=True)
        print("\n| checkpoint | main process, MB | other, MB | main, s | other, s |\n| --- | --- | --- | --- | --- |")
        main_one, other = launch(folder, rank, "save")
        for step, (memory, seconds) in main_one.items():
            also, long = other[step]
            print(f"| {step} | {memory:.0f} | {also:.0f} | {seconds:.1f} | {long:.1f} |")


if __name__ == "__main__":
    if "RANK" in os.environ:
        {"load": load, "save": save}[sys.argv[3]](Path(sys.argv[1]), int(sys.argv[2]))
    else:
        main(*map(int, sys.argv[1:]))
