"""Sequence parallelism (Ulysses, arXiv 2309.14509): processes that share the tokens of a packed row out.

Each process has a part of the row in every layer. For attention they exchange tokens for heads (`all_to_all`), so that
each attends over whole trajectories with its share of the heads. The vision tower runs whole in each process.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.nn.functional import pad


class SequenceGroup:
    """The processes that work on the same rows: neighbours by rank."""

    def __init__(self, accelerator: Accelerator, size: int) -> None:
        """Form the groups; all processes have to call this.

        Args:
            accelerator: Processes and devices.
            size: Processes per group; `checks.py` looks whether it fits processes and model.
        """
        self.size, self.rank = size, accelerator.process_index % size
        self.group = dist.new_subgroups(size)[0]

    def own(self, tokens: int) -> slice:
        """Return this process's part of a row whose length is a multiple of the size."""
        part = tokens // self.size
        return slice(self.rank * part, (self.rank + 1) * part)

    def attach(self, model: Any) -> None:
        """Make the language model run on this process's part of each packed row."""
        model.model.language_model.register_forward_pre_hook(self._cut, with_kwargs=True)

    def _cut(self, module: Any, args: tuple[Any, ...], inputs: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
        mask = inputs.get("attention_mask")
        lengths = next(iter(mask.values())) if isinstance(mask, dict) else mask
        if lengths is None or lengths.dtype != torch.int32:
            return None  # not a packed row: the model samples
        own = self.own(inputs["inputs_embeds"].shape[1])
        cut = {"inputs_embeds": inputs["inputs_embeds"][:, own], "position_ids": inputs["position_ids"][..., own]}
        if (seen := inputs.get("visual_pos_masks")) is not None:
            first = int(seen[:, : own.start].sum())
            images = slice(first, first + int(seen[:, own].sum()))
            cut["visual_pos_masks"] = seen[:, own]
            cut["deepstack_visual_embeds"] = [values[images] for values in inputs["deepstack_visual_embeds"]]
        return args, inputs | cut | {"sequence": self}

    def fill(self, inputs: dict[str, Any], chosen: torch.Tensor) -> tuple[dict[str, Any], torch.Tensor]:
        """Lengthen a packed row to a multiple of the size, by a trajectory of its own that is not scored."""
        more = -chosen.shape[1] % self.size
        if not more:
            return inputs, chosen
        mask, ids = inputs["attention_mask"], inputs["input_ids"]
        filled = {
            "input_ids": torch.cat([ids, ids[:, :1].expand(-1, more)], dim=1),
            "position_ids": pad(inputs["position_ids"], (0, more)),
            "attention_mask": {k: pad(v, (0, 1), value=more) for k, v in mask.items()}
            if isinstance(mask, dict)
            else pad(mask, (0, 1), value=more),
        }
        return inputs | filled, pad(chosen, (0, more))

    def to_heads(self, states: torch.Tensor) -> torch.Tensor:
        """Exchange `[1, heads, own tokens, width]` for `[1, own heads, tokens, width]`; few heads are repeated."""
        heads = states.repeat_interleave(self.size // math.gcd(self.size, states.shape[1]), dim=1)[0]
        parts = self._exchange(heads.unflatten(0, (self.size, -1)))
        return parts.transpose(0, 1).flatten(1, 2)[None]

    def to_tokens(self, states: torch.Tensor) -> torch.Tensor:
        """Exchange `[1, tokens, own heads, width]` for `[1, own tokens, heads, width]`."""
        parts = self._exchange(states[0].unflatten(0, (self.size, -1)))
        return parts.transpose(0, 1).flatten(1, 2)[None]

    def _exchange(self, parts: torch.Tensor) -> torch.Tensor:
        return all_to_all_single_autograd(parts.contiguous(), None, None, self.group)

    def gather(self, values: torch.Tensor, counts: list[int]) -> torch.Tensor:
        """Join the values of all processes; only this process's own have a gradient, so that gradients add up.

        Args:
            values: `[counts[rank]]`.
            counts: How many each process has.
        """
        padded = pad(values.detach(), (0, max(counts) - len(values)))
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded, group=self.group)
        joined = torch.cat([values if i == self.rank else parts[i][:n] for i, n in enumerate(counts)])
        # `cat` drops empty tensors from the graph; their backward pass takes part in the communication all the same.
        return joined + 0.0 * values.sum()


def make_sequence_group(accelerator: Accelerator, size: int) -> SequenceGroup | None:
    """Form groups of `size` processes for sequence parallelism; None for 1."""
    return SequenceGroup(accelerator, size) if size > 1 else None
