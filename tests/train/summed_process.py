"""One of the processes that add numbers up: prints its parts of 20, 1 and 2, and the sums over all processes."""

import json

from accelerate import Accelerator

from codev_train.run.ranks import part_of, summed

accelerator = Accelerator(cpu=True)
rank = accelerator.process_index
row = {"rank": rank, "parts": [part_of(total, accelerator) for total in (20, 1, 2)]}
row["sums"] = summed([float(rank), 0.25], accelerator)
print(json.dumps(row), flush=True)
accelerator.end_training()
