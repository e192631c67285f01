"""`codev` (or a script of these tests) as one of several processes that share weights out, on CPUs.

Accelerate keeps FSDP2 and DeepSpeed for GPUs: on CPUs it would go on without them, and without a word. Both run there.
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
    elif os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true":
        import deepspeed

        state._shared_state["distributed_type"] = DistributedType.DEEPSPEED
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # it would be compiled: gloo does without
    module, *sys.argv[1:] = sys.argv[1:]
    sys.argv[0] = module
    runpy.run_module(module, run_name="__main__", alter_sys=True)
