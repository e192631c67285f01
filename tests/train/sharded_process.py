"""`codev` (or a script of these tests) as one of several processes that share weights out, on CPUs.

Accelerate keeps FSDP2 for GPUs: on CPUs it would go on without it, and without a word. It runs there.
"""

from __future__ import annotations

import os
import runpy
import sys

from accelerate import PartialState
from accelerate.utils import DistributedType

if __name__ == "__main__":
    state = PartialState(cpu=True)
    if os.environ.get("ACCELERATE_USE_FSDP") == "true":
        state._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    module, *sys.argv[1:] = sys.argv[1:]
    sys.argv[0] = module
    runpy.run_module(module, run_name="__main__", alter_sys=True)
