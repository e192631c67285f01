"""One step of the cold start by processes that have different numbers of examples; `test_train_sharding.py` starts it.

Arguments: a folder with `policy/` and `rollouts.pt`; the file of the result in it; how many of the rollouts each
process learns from, one in each pass; the precision, fp32 by default. The main process writes the gradient.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import torch
from micro_run import leave
from sharded_opening import begin

from codev_agents.engines.weights import is_sharded, whole
from codev_train.sft.cold_start import accumulate
from codev_train.sft.examples import Example


def main(folder: Path, out: Path, shares: list[int], precision: str = "fp32") -> None:
    accelerator, policy, module, rollouts = begin(folder)
    rank = accelerator.process_index
    tokens = [rollout.tokens for rollout in rollouts[sum(shares[:rank]) : sum(shares[: rank + 1])]]
    examples = [Example(t.ids, [float(turn >= 0) for turn in t.turns], t.images) for t in tokens]
    accumulate(module, policy.processor, examples, 1, accelerator, precision)
    gradient = {n: whole(p.grad) for n, p in policy.model.named_parameters() if p.grad is not None}
    if accelerator.is_main_process:
        torch.save((gradient, is_sharded(policy.model)), out)
    leave(accelerator)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[1]) / sys.argv[2], ast.literal_eval(sys.argv[3]), *sys.argv[4:])
