"""A few updates by one or more processes, in whatever way they share the weights; `test_train_scale.py` starts it.

Arguments: a folder with `policy/` and `rollouts.pt`; the name of the result in it; how many of the rollouts each
process gets; the name of a result to go on from, or `-`; then options as `name=value`. The result is a run with one
checkpoint, and `told.json` beside it: loss and gradient norm of each update, and what the engine samples afterwards.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import torch
from micro_run import leave

from codev_agents.engines.hf import HFEngine
from codev_agents.engines.options import LoraOptions
from codev_agents.engines.weights import is_sharded
from codev_agents.rollout.engine import Prompt, Sampling
from codev_train.learn import checkpoint
from codev_train.learn.reference import make_reference
from codev_train.learn.sample import make_samples
from codev_train.learn.sharding import make_accelerator
from codev_train.learn.trained import load_trained
from codev_train.learn.update import Updater
from codev_train.run.options import OptimizerOptions, TrainOptions

UPDATES = 2


def options_from(folder: Path, changes: dict) -> tuple[TrainOptions, str]:
    name = changes.pop("optimizer", "sgd")
    made = OptimizerOptions(name="adamw" if name == "sgd" else name, lr=1e-3, grad_clip=changes.pop("grad_clip", 1e9))
    health = dataclasses.replace(TrainOptions().health, mismatch=9.0)
    lora = LoraOptions(rank=changes.pop("rank", 0))
    made_from = TrainOptions(temperature=0.8, optimizer=made, health=health, lora=lora, model=str(folder / "policy"))
    return dataclasses.replace(made_from, **changes), name


def shards(model: torch.nn.Module) -> list[int]:
    """The mesh of the processes that share the weights out: copies and shards, or shards alone; empty without."""
    weight = next(model.parameters())
    return list(weight.device_mesh.shape) if is_sharded(model) else []


def offloads(module: torch.nn.Module) -> bool:
    """Whether a module's shards are copied to CPU memory between uses."""
    group = module._get_fsdp_state()._fsdp_param_group
    return bool(group) and all(parameter.offload_to_cpu for parameter in group.fsdp_params)


def gathered(module: torch.nn.Module) -> int:
    """The bytes of a module's sharded weights that this process has whole."""
    groups = [m._get_fsdp_state()._fsdp_param_group for m in module.modules() if hasattr(m, "_get_fsdp_state")]
    whole = [getattr(p, "_unsharded_param", None) for group in groups if group for p in group.fsdp_params]
    return sum(weight.untyped_storage().nbytes() for weight in whole if weight is not None)


def main(folder: Path, out: Path, shares: list[int], resume: Path | None, changes: dict) -> None:
    options, name = options_from(folder, changes)
    accelerator = make_accelerator(options.precision)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    trained = load_trained(options, options.model, resume, accelerator)
    policy, module, optimizer = trained.policy, trained.module, trained.optimizer
    if name == "sgd":
        scale = options.lora.alpha / options.lora.rank if options.lora.rank else 1.0  # of both A and B
        parameters = [p for p in module.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(parameters, lr=0.05 / scale**2, momentum=0.5)
    engine = HFEngine(policy.model, policy.processor)
    reference = make_reference(options, module, accelerator)
    done = checkpoint.load_optimizer(resume, policy.model, optimizer) if resume else 0
    updater = Updater(module, optimizer, policy.processor, options, accelerator, reference)

    rollouts, advantages = torch.load(folder / "rollouts.pt", weights_only=False)
    rank = accelerator.process_index
    own = slice(sum(shares[:rank]), sum(shares[: rank + 1]))
    told, left = [], 0
    for step in range(done, done + UPDATES):
        stats = updater.update(make_samples(rollouts[own], advantages[own]), np.random.default_rng(step))
        left += sum(gathered(one) for one in (module, reference) if one is not None)
        told.append({"loss": stats.loss, "norm": stats.grad_norm, "kl": stats.kl_reference})
    engine.sync(policy.model)
    with checkpoint.CheckpointWriter(out, 1) as writer:
        writer.save(done + UPDATES, policy, optimizer)
    if accelerator.is_main_process:  # alone, whatever the others do
        tokens = rollouts[0].tokens
        prompt = Prompt(tokens.ids[: tokens.turns.index(0)], tokens.images[:1])
        sampled = engine.generate([prompt], Sampling(0.0, 8))[0].ids
        content = {"updates": told, "sampled": sampled, "sharded": shards(policy.model), "gathered": left}
        content["offloaded"] = any(getattr(m, "_get_fsdp_state", None) and offloads(m) for m in module.modules())
        (out / "told.json").write_text(json.dumps(content))
    leave(accelerator)


if __name__ == "__main__":
    words = [word.split("=") for word in sys.argv[5:]]
    values = {name: value if value.isidentifier() else ast.literal_eval(value) for name, value in words}
    place = Path(sys.argv[1])
    before = None if sys.argv[4] == "-" else checkpoint.last(place / sys.argv[4])
    main(place, place / sys.argv[2], ast.literal_eval(sys.argv[3]), before, values)
