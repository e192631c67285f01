"""Key-value caches that outlive a turn: a prompt that continues an earlier completion prefills only its new tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from codev_agents.rollout.engine import Prompt

Layers = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of each layer, each `[heads, tokens, width]`."""


@dataclass(eq=False)
class Prefix:
    """The cache of a sequence without padding.

    Attributes:
        ids: Its tokens.
        images: How many images they hold.
        layers: Keys and values.
    """

    ids: list[int]
    images: int
    layers: Layers


class PrefixStore:
    """Caches of the sequences of one call, until the next."""

    def __init__(self) -> None:
        # Keyed by the images themselves, since equal ids do not mean equal pixels; the key keeps them alive.
        self._kept: dict[tuple[int, ...], list[tuple[Prompt, Prefix]]] = {}

    def keep(self, prompt: Prompt, ids: Sequence[int], cache: Any, row: int, mask: torch.Tensor) -> None:
        """Keep one row of a cache.

        Args:
            prompt: The prompt of the row.
            ids: The ids sampled after it; the last token is not in the cache yet.
            cache: The cache of the batch.
            row: Number of the row in it.
            mask: Which places of the row are not padding, `[places]`.
        """
        if not all(type(layer) is DynamicLayer for layer in cache.layers):
            return  # A sliding-window or quantised cache cannot be split like this.
        places = mask.bool()
        layers = [(layer.keys[row][:, places], layer.values[row][:, places]) for layer in cache.layers]
        prefix = Prefix([*prompt.ids, *ids[:-1]], len(prompt.images), layers)
        self._kept.setdefault(_key(prompt.images), []).append((prompt, prefix))

    def take(self, prompt: Prompt) -> Prefix | None:
        """Remove and return the longest cache that a prompt continues."""
        for count in range(len(prompt.images), -1, -1):
            kept = self._kept.get(_key(prompt.images[:count]), [])
            fitting = [entry for entry in kept if _starts(prompt.ids, entry[1].ids)]
            if fitting:
                longest = max(fitting, key=lambda entry: len(entry[1].ids))
                kept.remove(longest)
                return longest[1]
        return None


def join(prefixes: Sequence[Prefix]) -> tuple[DynamicCache, torch.Tensor]:
    """Put caches into one batch, padded on the left; they are emptied meanwhile, so that none is in memory twice.

    Returns:
        The cache, and which of its places are not padding, `[rows, places]`.
    """
    lengths = [len(prefix.ids) for prefix in prefixes]
    width = max(lengths)
    cache = DynamicCache()
    for number in range(len(prefixes[0].layers)):
        first = prefixes[0].layers[0][0]
        keys, values = (first.new_zeros(len(prefixes), first.shape[0], width, first.shape[2]) for _ in range(2))
        for row, prefix in enumerate(prefixes):
            keys[row, :, width - lengths[row] :], values[row, :, width - lengths[row] :] = prefix.layers.pop(0)
        cache.update(keys, values, number)
    places = torch.arange(width, device=cache.layers[0].keys.device)
    return cache, (places >= torch.tensor([[width - n] for n in lengths], device=places.device)).long()


def _key(images: Sequence[Any]) -> tuple[int, ...]:
    return tuple(id(image) for image in images)


def _starts(ids: Sequence[int], prefix: Sequence[int]) -> bool:
    return len(ids) > len(prefix) and list(ids[: len(prefix)]) == prefix
