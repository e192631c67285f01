"""One of the processes that describe an update; `test_train_processes.py` starts it.

Arguments: the file of rollouts of unequal lengths, and how many of them each process gets. Each prints what it found.
"""

import ast
import json
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from micro_run import leave

from codev_train.tapo import describe, reward_table

accelerator = Accelerator(cpu=True)
shares = ast.literal_eval(sys.argv[2])
first = sum(shares[: accelerator.process_index])
rollouts = torch.load(Path(sys.argv[1]), weights_only=False)[first:][: shares[accelerator.process_index]]
print(json.dumps(describe(rollouts, *reward_table(rollouts), accelerator)), flush=True)
leave(accelerator)
