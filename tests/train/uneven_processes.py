"""One update of a policy whose rollouts are shared out unevenly over processes; `test_train_processes.py` starts it.

Arguments: a folder with `policy/` and `rollouts.pt`, then how many of the rollouts each process gets, then options as
`name=value`. The main process writes the weights to `weights-N.pt` and the statistics to `stats-N.json`, N processes.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from micro_run import leave

from codev_agents.engines.policy import Policy
from codev_train.learn.sample import make_samples
from codev_train.learn.scorer import TokenScorer
from codev_train.learn.sequence import make_sequence_group
from codev_train.learn.update import Updater
from codev_train.run.options import OptimizerOptions, TrainOptions


def main(folder: Path, shares: list[int], changes: dict) -> None:
    accelerator = Accelerator(cpu=True)
    torch.set_num_threads(1)
    policy = Policy.load(str(folder / "policy"))
    rollouts, advantages = torch.load(folder / "rollouts.pt", weights_only=False)
    rank = accelerator.process_index
    own = slice(sum(shares[:rank]), sum(shares[: rank + 1]))
    scorer = TokenScorer(policy.model, make_sequence_group(accelerator, changes.get("sequence_parallel", 1)))
    # Moments of an earlier update, and weight decay, which must not move the weights where nothing is learned.
    optimizer = torch.optim.AdamW(scorer.parameters(), lr=1e-3, weight_decay=0.1)
    for parameter in scorer.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    before = torch.cat([p.detach().flatten().clone() for p in scorer.parameters()])
    module, optimizer = accelerator.prepare(scorer, optimizer)
    options = dataclasses.replace(
        TrainOptions(temperature=0.8, optimizer=OptimizerOptions(grad_clip=1e9)),
        health=dataclasses.replace(TrainOptions().health, mismatch=9.0),
        **changes,
    )
    updater = Updater(module, optimizer, policy.processor, options, accelerator)
    stats = updater.update(make_samples(rollouts[own], advantages[own]), np.random.default_rng(0))
    if accelerator.is_main_process:
        weights = torch.cat([p.detach().flatten() for p in scorer.parameters()])
        torch.save((before, weights), folder / f"weights-{len(shares)}.pt")
        (folder / f"stats-{len(shares)}.json").write_text(json.dumps(dataclasses.asdict(stats)))
    leave(accelerator)


if __name__ == "__main__":
    words = [word.split("=") for word in sys.argv[3:]]
    values = {name: value if value.isidentifier() else ast.literal_eval(value) for name, value in words}
    main(Path(sys.argv[1]), ast.literal_eval(sys.argv[2]), values)
