"""Processes that share weights out write checkpoints, one without room on its disk; `test_train_sharding.py` starts it.

Arguments: a folder with `policy/`, and the process that cannot write a second checkpoint. The run is `run/` in it; each
process writes what it was told to `told.RANK`.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import torch
from micro_run import leave

from codev_train.learn.checkpoint import CheckpointError, CheckpointWriter
from codev_train.learn.sharding import make_accelerator
from codev_train.learn.trained import load_trained
from codev_train.run.options import TrainOptions


def main(folder: Path, full: int) -> None:
    accelerator = make_accelerator()
    torch.set_num_threads(1)
    options = TrainOptions(model=str(folder / "policy"))
    trained = load_trained(options, options.model, None, accelerator)
    for parameter in trained.module.parameters():
        parameter.grad = torch.ones_like(parameter)
    trained.optimizer.step()
    told = []
    with CheckpointWriter(folder / "run", 2) as writer:
        for step in (1, 2, 3):
            accelerator.wait_for_everyone()
            room = 100 if step == 2 and accelerator.process_index == full else resource.RLIM_INFINITY
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
            writer.save(step, trained.policy, trained.optimizer)
            try:
                writer.wait()
                told.append("")
            except CheckpointError as error:
                told.append(str(error))
    (folder / f"told.{accelerator.process_index}").write_text("\n".join(told))
    leave(accelerator)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
