"""Compares the memory estimate of `--dry-run` with the tensors of an update: `python benchmarks/memory.py [CASE …]`.

Small Qwen2.5-VL and Qwen3-VL models from random weights take two updates of four made-up trajectories in two forward
passes on this CPU. During the second, every storage that an operation of PyTorch returns is counted until it is freed.
At the peak the table has, for each kind of tensor, the estimate and the measurement in MB. A kind is known by shape and
type: "gradients" have the shape of a weight (sums of gradients and temporaries of the optimizer too), "copies" are
those in bf16, and "logits" end with the vocabulary. AdamW takes the code path of a GPU (`foreach`).

Not seen: memory that a kernel takes and frees by itself, fragmentation, and kernels of GPUs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import weakref
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType
from gpu_models import Ids, Size, make_config, make_model, make_samples, narrow_base
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from codev_agents.engines.options import LoraOptions
from codev_train.run import estimate, launch
from codev_train.run.health import HealthOptions
from codev_train.run.options import EstimateOptions, OptimizerOptions, TrainOptions

KINDS = ("weights", "optimizer", "gradients", "copies", "activations", "logits")
REAL, IDS = 151936, Ids(151643, 151655, 151652, 151653)
FEW, FEW_IDS = 1024, Ids(1000, 1001, 1002, 1003)
SMALL_TOWER = (64, 2, 2, 128)
ROWS = 4


class LiveTensors(TorchDispatchMode):
    """Counts the bytes of tensors while operations run.

    Attributes:
        peak: The bytes by kind when there were most in all.
    """

    def __init__(self, model: torch.nn.Module, moments: Iterable[torch.Tensor], vocab: int) -> None:
        super().__init__()
        self._vocab, self._now, self._known = vocab, Counter[str](), dict[int, tuple[str, int]]()
        weights = [_local(weight) for weight in model.parameters()]
        self._shapes = {tuple(sorted(weight.shape)) for weight in weights if weight.ndim > 1}
        self._row = max(weight.shape[-1] for weight in weights if weight.ndim > 1)
        self.peak: dict[str, int] = {}
        for kind, tensors in (("weights", weights), ("optimizer", moments)):
            for tensor in tensors:
                self._add(_local(tensor), kind)

    def __enter__(self) -> LiveTensors:
        self._resize = torch.UntypedStorage.resize_

        def resize(storage: torch.UntypedStorage, size: int) -> Any:  # how FSDP2 frees gathered weights
            result = self._resize(storage, size)
            if storage._cdata in self._known:
                self._count(storage._cdata, self._known[storage._cdata][0], storage.nbytes())
            return result

        torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign, assignment]
        super().__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        for value in torch.utils._pytree.tree_leaves(found):
            if isinstance(value, torch.Tensor):
                self._add(_local(value), self._kind(_local(value)))
        return found

    def _kind(self, tensor: torch.Tensor) -> str:
        flat = tensor.ndim == 1 and len(tensor) > self._row  # gathered weights, or gradients to be added up
        if flat or tuple(sorted(tensor.shape)) in self._shapes:
            return "copies" if tensor.dtype == torch.bfloat16 else "gradients"
        return "logits" if tensor.ndim and tensor.shape[-1] == self._vocab else "activations"

    def _add(self, tensor: torch.Tensor, kind: str) -> None:
        storage = tensor.untyped_storage()
        # To add up over processes, gloo makes a copy, of which the parts are seen first. NCCL makes none.
        is_copy = dist.is_initialized() and tensor.ndim == 1 and tensor.nbytes < storage.nbytes()
        if storage._cdata not in self._known and not is_copy:
            self._count(storage._cdata, kind, storage.nbytes())
            weakref.finalize(storage, self._free, storage._cdata)

    def _count(self, key: int, kind: str, size: int) -> None:
        self._now[kind] += size - self._known.get(key, (kind, 0))[1]
        self._known[key] = kind, size
        if self._now.total() > sum(self.peak.values()):
            self.peak = dict(self._now)

    def _free(self, key: int) -> None:
        kind, size = self._known.pop(key)
        self._now[kind] -= size


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a tensor that this process holds."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@dataclass(frozen=True)
class Case:
    """A model, the length of its trajectories, and how it is trained."""

    size: Size
    length: int
    options: TrainOptions
    qwen3: bool = False


def case(size: Size, length: int, qwen3: bool = False, **options: Any) -> Case:
    """Make a case of two forward passes, packed unless `micro_batch` is given."""
    common: dict[str, Any] = {"token_budget": 0 if "micro_batch" in options else ROWS // 2 * length}
    common |= {"prompts": ROWS // 2, "group": 2, "max_length": length, "max_tokens": 16}
    common |= {"estimate": EstimateOptions(trajectory=length), "health": HealthOptions(mismatch=1e9)}
    return Case(size, length, TrainOptions(**(common | options)), qwen3)


def sharded(size: Size, length: int, **options: Any) -> Case:
    """Make a case of two processes that share weights, gradients and moments out (FSDP2)."""
    assumed = EstimateOptions(trajectory=length, gpus=2, shards=2)
    return case(size, length, **options, sharding="fsdp2", prompts=ROWS, estimate=assumed)


def real(hidden: int, tied: bool) -> Size:
    """Few layers under a vocabulary of published models."""
    return Size(hidden, 2, 4, 2, 2 * hidden, REAL, tied, SMALL_TOWER, IDS, (8, 12))


LAYERS = Size(512, 6, 8, 2, 1536, FEW, False, SMALL_TOWER, FEW_IDS, (8, 12))
WIDE = Size(768, 4, 12, 2, 2304, FEW, False, SMALL_TOWER, FEW_IDS, (8, 12))
TOWER = Size(128, 3, 4, 2, 384, FEW, True, (256, 4, 4, 768), FEW_IDS, (8, 12))
BF16: dict[str, Any] = {"precision": "bf16"}
CASES = {
    "vocabulary": case(real(128, False), 128),
    "tied": case(real(256, True), 128, **BF16, optimizer=OptimizerOptions(name="muon")),
    "chunks": case(real(64, False), 2304, **BF16, gradient_checkpointing=True),
    "fp32": case(LAYERS, 512),
    "bf16": case(LAYERS, 512, **BF16),
    "padded": case(LAYERS, 512, **BF16, micro_batch=ROWS // 2),
    "checkpointing": case(LAYERS, 512, **BF16, gradient_checkpointing=True),
    "lora": case(LAYERS, 512, **BF16, lora=LoraOptions(rank=8)),
    "lora-checkpointing": case(LAYERS, 512, **BF16, lora=LoraOptions(rank=8), gradient_checkpointing=True),
    "wide": case(WIDE, 448, **BF16),
    "qwen3": case(LAYERS, 512, True, **BF16),
    "short": case(LAYERS, 64),
    "vision": case(TOWER, 512, **BF16),
    "vision-checkpointing": case(TOWER, 512, gradient_checkpointing=True),
    "vision-frozen": case(TOWER, 512, train_vision=False),
    "sharded-fp32": sharded(LAYERS, 512),
    "sharded": sharded(LAYERS, 512, **BF16),
    "sharded-checkpointing": sharded(LAYERS, 512, **BF16, gradient_checkpointing=True),
    "sharded-wide": sharded(WIDE, 448, **BF16),
    "sharded-tied": sharded(real(256, True), 128, **BF16),
    "sharded-lora": sharded(LAYERS, 512, **BF16, lora=LoraOptions(rank=8)),
    "sharded-vocabulary": sharded(real(128, False), 128, **BF16),
}


def make_qwen3(size: Size) -> Any:
    """Make a Qwen3-VL of the same widths."""
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    like, (width, depth, heads, intermediate) = make_config(size), size.vision
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    text = {name: getattr(like.text_config, name) for name in (*names, "num_key_value_heads", "rope_parameters")}
    text |= {"head_dim": size.hidden // size.heads, "pad_token_id": size.ids.pad_id}
    vision = {"depth": depth, "hidden_size": width, "num_heads": heads, "intermediate_size": intermediate}
    vision |= {"patch_size": 14, "out_hidden_size": size.hidden, "num_position_embeddings": 64}
    ids = {"image_token_id": size.ids.image_id, "vision_start_token_id": size.ids.vision_start_id}
    ids |= {"vision_end_token_id": size.ids.vision_end_id, "video_token_id": size.ids.vision_end_id + 3}
    vision |= {"deepstack_visual_indexes": [0]}
    config = Qwen3VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=size.tied, **ids)
    return Qwen3VLForConditionalGeneration(config)


def measure(case: Case) -> tuple[dict[str, float], dict[str, float]]:
    """Return the bytes at the peak of an update by kind, estimated and measured."""
    from codev_agents.engines.policy import Policy
    from codev_agents.engines.vision import speed_up
    from codev_train.learn.optimizer import make_optimizer, parts
    from codev_train.learn.scorer import TokenScorer
    from codev_train.learn.sharding import make_accelerator, prepare
    from codev_train.learn.update import Updater
    from codev_train.run.model_size import measure as size_of

    size, options = case.size, case.options
    policy = Policy(make_qwen3(size) if case.qwen3 else make_model(size, "cpu"), size.ids)
    memory = estimate.memory(size_of(policy.model, ""), options)
    speed_up(policy.model)
    narrow_base(policy.model, options)
    policy.restrict(options.train_vision, options.lora)
    if options.gradient_checkpointing:
        policy.checkpoint_gradients()
    scorer = TokenScorer(policy.model)
    AcceleratorState._reset_state(True)  # a process has one precision
    if options.sharding == "fsdp2":  # Accelerate keeps it for GPUs.
        PartialState(cpu=True)._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    accelerator = make_accelerator(options.precision)
    module = prepare(accelerator, scorer)
    optimizer = make_optimizer(scorer, options.optimizer)
    for group in optimizer.param_groups:
        if "foreach" in group:
            group["foreach"] = True
    updater = Updater(module, optimizer, size.ids, options, accelerator)
    # Where rows are padded, no two have the same length.
    shorter = 0 if options.token_budget else 40
    samples = [make_samples(size, case.length - shorter * row, 1)[0] for row in range(ROWS)]
    updater.update(samples, np.random.default_rng(0))
    states = [state for part in parts(optimizer) for state in part.state.values()]
    moments = [value for state in states for value in state.values() if isinstance(value, torch.Tensor)]
    with LiveTensors(scorer, moments, size.vocab) as live:
        updater.update(samples, np.random.default_rng(0))
    return at_peak(memory), {kind: float(live.peak.get(kind, 0)) for kind in KINDS}


def at_peak(memory: estimate.Memory) -> dict[str, float]:
    """Return what an estimate has at the peak of the update, by the kinds that are measured."""
    found = dict.fromkeys(KINDS, 0.0)
    found |= {"weights": memory.weights, "optimizer": memory.optimizer, "gradients": memory.gradients}
    within = memory.copies + memory.activations + max(memory.logits, memory.layer)
    if memory.step > within:
        return found | {"gradients": memory.gradients + memory.step}
    found |= {"copies": memory.copies, "activations": memory.activations}
    if memory.logits > memory.layer:
        return found | {"logits": memory.logits}
    return found | {"activations": memory.activations + memory.layer}


def measure_sharded(name: str) -> tuple[dict[str, float], dict[str, float]]:
    """Return the same of the first of two processes that share the weights of a case out."""
    config = Path(launch.__file__).with_name("fsdp2.yaml")
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(config), "--num_processes", "2"]
    done = subprocess.run(
        [*command, "--main_process_port", "0", __file__, "--process", name],
        env=os.environ | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(done.stderr)
    guess, found = json.loads(done.stdout.splitlines()[-1])
    return guess, found


def main() -> None:
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["--process"]:
        found = measure(CASES[sys.argv[2]])
        if PartialState().is_main_process:
            print(json.dumps(found))
        return
    names = sys.argv[1:] or list(CASES)
    if unknown := [name for name in names if name not in CASES]:
        sys.exit(f"unknown case {unknown[0]!r}; allowed: {', '.join(CASES)}")
    print(f"Estimated / measured, in MB\n\n| case | {' | '.join(KINDS)} | all | ratio |")
    print("| --- " * (len(KINDS) + 3) + "|")
    for name in names:
        shared = CASES[name].options.sharding != "none"
        guess, found = measure_sharded(name) if shared else measure(CASES[name])
        pairs = [(guess[kind], found[kind]) for kind in KINDS]
        pairs.append((sum(guess.values()), sum(found.values())))
        cells = [f"{a / 1e6:.0f} / {b / 1e6:.0f}" for a, b in pairs]
        print(f"| {name} | {' | '.join(cells)} | {pairs[-1][0] / pairs[-1][1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
