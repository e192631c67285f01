"""One pass of each process over samples of its own, and its gradient; `test_train_sharding.py` starts it.

Arguments: a folder with `policy/` and `rollouts.pt`; the file of the result in it; the precision; for each sample
`image`, `text`, which leaves the image tokens out, or `packed`, one row of it and the next sample. Processes take one
kind each; a single one takes all.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from sharded_opening import begin

from codev_agents.engines.batch import collate
from codev_agents.engines.weights import is_sharded, whole


def main(folder: Path, out: Path, precision: str, kinds: list[str]) -> None:
    accelerator, policy, module, rollouts = begin(folder, precision)
    processor = policy.processor
    found = []
    for number, kind in enumerate(kinds):
        if number % accelerator.num_processes != accelerator.process_index:
            continue
        taken = [rollout.tokens for rollout in rollouts[number : number + 1 + (kind == "packed")]]
        ids = [[i for i in t.ids if kind != "text" or i not in processor.banned_ids] for t in taken]
        images = [t.images if kind != "text" else [] for t in taken]
        batch = collate(ids, images, processor.pad_id, processor.image_id)
        chosen = batch["attention_mask"].bool()
        chosen[:, 0] = False
        logprobs, _ = module(batch, chosen, banned=(), packed=kind == "packed")
        accelerator.backward(logprobs.mean() * accelerator.num_processes)
        found.append(logprobs.detach())
    gradients = {n: whole(p.grad) for n, p in policy.model.named_parameters() if p.grad is not None}
    torch.save((found, gradients, is_sharded(policy.model)), out.with_suffix(f".{accelerator.process_index}"))
    accelerator.wait_for_everyone()
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[1]) / sys.argv[2], sys.argv[3], sys.argv[4:])
