"""Declares two operators that a CUDA build of torchvision looks for when it is imported beside a CPU build of torch.

`make vllm` puts this file into the environment of vLLM, where Python runs it at every start, in every process.
"""

import sys


class _Declare:
    """Declares them just before torchvision is imported, and only then."""

    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch

            # Held here: a library that is collected takes its operators along.
            self.library = torch.library.Library("torchvision", "FRAGMENT")
            for operator in ("nms", "qnms"):
                self.library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            sys.modules[__name__].declared = self
        return None


sys.meta_path.insert(0, _Declare())
