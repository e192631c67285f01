"""Measures the memory in which processes load and share a policy: `python benchmarks/loading.py [MILLIONS] [ADAPTERS]`.

Two processes on this CPU load a Qwen3-VL of so many million weights (100), share the weights out by FSDP2 and make the
`hf` engine, as `codev train --sharding fsdp2` does before its first evaluation. The table has, in MB and for each
process, the most resident memory above that before loading, and the memory that stays; both until the weights are
shared out, and with the engine. `ADAPTERS` is a rank: adapters in fp32 beside weights in bf16.
"""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
import tempfile
from importlib import resources
from pathlib import Path

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


def load(folder: Path, rank: int) -> None:
    """Load, shard and sync as a run does, and write what it took."""
    from codev_agents.engines import make_engine
    from codev_agents.engines.options import LoraOptions
    from codev_train.learn.sharding import make_accelerator
    from codev_train.learn.trained import load_trained
    from codev_train.run.options import TrainOptions

    options = TrainOptions(model=str(folder), lora=LoraOptions(rank=rank), precision="bf16" if rank else "fp32")
    accelerator = make_accelerator(options.precision)
    before = begin()
    trained = load_trained(options, options.model, None, accelerator)
    found = [resident("VmHWM") - before, begin() - before]
    engine = make_engine("hf", trained.policy.model, trained.policy.processor, 8, 0)
    found += [resident("VmHWM") - before, begin() - before]
    (folder / f"{accelerator.process_index}.json").write_text(json.dumps(found))
    del engine
    accelerator.wait_for_everyone()
    os._exit(0)


def main(millions: int = 100, rank: int = 0) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = save_policy(folder, millions)
        config = str(resources.files("codev_train.run.launch") / "fsdp2.yaml")
        command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", config, "--num_processes", "2"]
        command += ["--main_process_port", "0", str(TESTS / "sharded_process.py"), "loading", str(folder), str(rank)]
        paths = [str(Path(__file__).parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(p for p in paths if p)}
        environment["MALLOC_MMAP_THRESHOLD_"] = "65536"  # freed tensors are not kept by the allocator
        subprocess.run(command, env=environment, check=True)
        print(f"Weights: {size:.0f} MB in fp32. Memory in MB, peak / afterwards\n")
        print("| process | loaded and shared out | with the engine |\n| --- | --- | --- |")
        for number, role in enumerate(("main", "other")):
            found = json.loads((folder / f"{number}.json").read_text())
            print(f"| {role} | {found[0]:.0f} / {found[1]:.0f} | {found[2]:.0f} / {found[3]:.0f} |")


if __name__ == "__main__":
    if "RANK" in os.environ:
        load(Path(sys.argv[1]), int(sys.argv[2]))
    else:
        main(*map(int, sys.argv[1:]))
