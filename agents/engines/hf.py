"""The `hf` engine: batched sampling with a key-value cache on the training model itself, no server, any device."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch

from codev_agents.engines.batch import collate, on_axes, rope_positions, to_device
from codev_agents.engines.prefix import Prefix, PrefixStore, join
from codev_agents.engines.vision import speed_up
from codev_agents.engines.weights import is_sharded, named_weights
from codev_agents.rollout.engine import Completion, Prompt, Sampling
from codev_agents.rollout.tokens import ChatProcessor, PixelBlock

_STOP_WINDOW = 24  # tokens decoded to look for a stop string


class HFEngine:
    """Samples with a `transformers` model.

    A prompt that occurs several times in a call (a group of rollouts) is prefilled once, and its cache is shared. One
    that continues a completion of the previous call prefills only its new tokens. Rows that have finished leave the
    batch.

    Args:
        model: A model of a family in `rollout/families.py`.
        processor: The tokenizer side.
        max_batch: Most rows decoded together.
        seed: Seed of the sampling.
        device: The device that samples: that of the model, unless its weights are sharded.
        apart: Sample from a copy of the weights, so that another thread may train the model meanwhile. The copy changes
            in `sync` only, between two calls of `generate`; completions say which version they are of.
        version: Number of updates that the weights have had.
    """

    def __init__(
        self,
        model: Any,
        processor: ChatProcessor,
        max_batch: int = 256,
        seed: int = 0,
        device: torch.device | str = "cpu",
        apart: bool = False,
        version: int = 0,
    ) -> None:
        self.model = model
        self.version = version - 1  # `sync` counts
        self._apart, self._lock = apart, threading.Lock()
        self.processor = processor
        self.max_batch = max_batch
        self.device = torch.device(device)
        self.generator = torch.Generator(device=device).manual_seed(seed)
        self._stop_ids = processor.end_ids
        self._prefixes = PrefixStore()
        self.sync(model)

    def seed(self, seed: int) -> None:
        """Make the next samples a function of `seed`."""
        with self._lock:
            self.generator.manual_seed(seed)

    def sleep(self) -> None:
        """Forget the caches of the last call."""
        with self._lock:
            self._prefixes = PrefixStore()

    def sync(self, model: Any) -> dict[str, float]:
        """Copy weights that are sharded over processes into a whole model; a model on one process is sampled directly.

        With a whole copy, each process samples any number of turns without waiting for the others.
        """
        with self._lock:
            self.version += 1
            self._prefixes = PrefixStore()
            if not (self._apart or is_sharded(model)):
                return {}
            if self.model is model:
                self.model = _empty_copy(model, self.device)
            own = dict(self.model.named_parameters())
            for name, weight in named_weights(model):
                own[name].copy_(weight)
        return {}

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Completion]:
        """Sample one completion per prompt, in order."""
        with self._lock:
            return self._generate(prompts, sampling)

    def _generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Completion]:
        # Similar lengths together: less padding. Equal prompts stay neighbours, else the order of the call decides.
        first: dict[int, int] = {}
        for i, prompt in enumerate(prompts):
            first.setdefault(id(prompt), i)
        order = sorted(range(len(prompts)), key=lambda i: (len(prompts[i].ids), first[id(prompts[i])]))
        known = {i: prefix for i in order if (prefix := self._prefixes.take(prompts[i]))}
        self._prefixes = PrefixStore()
        done: dict[int, Completion] = {}
        was_training = self.model.training
        self.model.eval()
        try:
            for part in ([i for i in order if i not in known], [i for i in order if i in known]):
                for start in range(0, len(part), self.max_batch):
                    rows = part[start : start + self.max_batch]
                    prefixes = [known.pop(i) for i in rows if i in known]
                    found = self._batch([prompts[i] for i in rows], prefixes, sampling)
                    done.update(zip(rows, found, strict=True))
        finally:
            self.model.train(was_training)
        return [done[i] for i in range(len(prompts))]

    @torch.inference_mode()
    def _batch(self, prompts: list[Prompt], prefixes: list[Prefix], sampling: Sampling) -> list[Completion]:
        device = self.device

        # 1. Prefill.
        logits, cache, mask, offset = self._extend(prompts, prefixes) if prefixes else self._prefill(prompts)

        # 2. Decode; `rows` are the indices of the prompts still running.
        rows = list(range(len(prompts)))
        ids: list[list[int]] = [[] for _ in prompts]
        logprobs: list[list[float]] = [[] for _ in prompts]
        stopped = [False] * len(prompts)
        for step in range(sampling.max_tokens):
            token, logprob = self._sample(logits, sampling.temperature)
            for row, t, lp in zip(rows, token.tolist(), logprob.tolist(), strict=True):
                ids[row].append(t)
                logprobs[row].append(lp)
                stopped[row] = t in self._stop_ids
            self._mark_stop_strings(rows, ids, stopped, sampling.stop)
            alive = [i for i, row in enumerate(rows) if not stopped[row]]
            last = step + 1 == sampling.max_tokens
            for i, row in enumerate(rows):
                if stopped[row] or last:
                    self._prefixes.keep(prompts[row], ids[row], cache, i, mask[i])
            if not alive or last:
                break
            if len(alive) < len(rows):
                keep = torch.tensor(alive, device=device)
                cache.reorder_cache(keep)
                mask, offset, token = mask[keep], offset[keep], token[keep]
                rows = [rows[i] for i in alive]
            mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=1)
            position = mask.sum(1, keepdim=True) - 1 + offset
            out = self.model(
                input_ids=token[:, None],
                attention_mask=mask,
                position_ids=on_axes(self.model, position),
                past_key_values=cache,
                use_cache=True,
            )
            logits = out.logits[:, -1]
        told = [self.version] if self._apart else []
        return [
            Completion(ids[i], logprobs[i], p.ids, "stop" if stopped[i] else "length", told * len(ids[i]))
            for i, p in enumerate(prompts)
        ]

    def _prefill(self, prompts: list[Prompt]) -> tuple[torch.Tensor, Any, torch.Tensor, torch.Tensor]:
        """Run each distinct prompt once and share its cache out to its copies.

        Returns:
            Logits after each prompt `[rows, vocabulary]`, the cache, which of its places are not padding
            `[rows, places]`, and the offset of positions, see `rope_positions`.
        """
        unique = list({id(p): p for p in prompts}.values())
        place = {id(p): i for i, p in enumerate(unique)}
        expand = torch.tensor([place[id(p)] for p in prompts], device=self.device)
        batch = self._collate([p.ids for p in unique], [p.images for p in unique])
        positions, offset = rope_positions(self.model, batch)
        out = self.model(**batch, position_ids=positions, use_cache=True, logits_to_keep=1)
        cache = out.past_key_values
        cache.reorder_cache(expand)
        return out.logits[:, -1][expand], cache, batch["attention_mask"][expand], offset[expand]

    def _extend(
        self, prompts: list[Prompt], prefixes: list[Prefix]
    ) -> tuple[torch.Tensor, Any, torch.Tensor, torch.Tensor]:
        """Run the new tokens of each prompt, after the cache of the tokens it continues; returns as `_prefill` does."""
        pairs = list(zip(prompts, prefixes, strict=True))
        new = self._collate([p.ids[len(k.ids) :] for p, k in pairs], [p.images[k.images :] for p, k in pairs])
        cache, known = join(prefixes)
        # Positions are those of the whole sequences; of images they only need the grids.
        whole = self._collate([p.ids for p in prompts], [[] for _ in prompts])
        if grids := [image.grid for p in prompts for image in p.images if image.grid]:
            whole["image_grid_thw"] = torch.tensor(grids, device=self.device)
        positions, offset = rope_positions(self.model, whole)
        width = new["input_ids"].shape[1]
        mask = torch.cat([known, new.pop("attention_mask")], dim=1)
        out = self.model(
            **new,
            attention_mask=mask,
            position_ids=positions[..., -width:],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return out.logits[:, -1], cache, mask, offset

    def _collate(self, ids: list[Sequence[int]], images: list[Sequence[PixelBlock]]) -> dict[str, torch.Tensor]:
        return to_device(collate(ids, images, self.processor.pad_id, self.processor.image_id, True), self.device)

    def _sample(self, logits: torch.Tensor, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw one token per row of `[rows, vocabulary]` logits; returns ids and log-probabilities, each `[rows]`."""
        logits = logits.float()
        logits[:, self.processor.banned_ids] = -torch.inf
        if temperature > 0:
            logprobs = torch.log_softmax(logits / temperature, dim=-1)
            token = torch.multinomial(logprobs.exp(), 1, generator=self.generator)
        else:
            logprobs = torch.log_softmax(logits, dim=-1)
            token = logprobs.argmax(-1, keepdim=True)
        return token[:, 0], logprobs.gather(1, token)[:, 0]

    def _mark_stop_strings(
        self, rows: list[int], ids: list[list[int]], stopped: list[bool], stop: tuple[str, ...]
    ) -> None:
        running = [row for row in rows if stop and not stopped[row]]
        if not running:
            return
        tails = self.processor.tokenizer.batch_decode([ids[row][-_STOP_WINDOW:] for row in running])
        for row, tail in zip(running, tails, strict=True):
            stopped[row] = any(s in tail for s in stop)


def _empty_copy(model: Any, device: torch.device) -> Any:
    """Make a model like one whose weights are sharded, in fp32, frozen and without values, on a device."""
    with torch.device("meta"):
        made = type(model)(model.config).float()  # where weights are in bf16, merged adapters would be rounded away
    made.to_empty(device=device)
    made.tie_weights()  # `to_empty` makes a weight of each use
    buffers = dict(model.named_buffers())
    for name, buffer in made.named_buffers():
        buffer.copy_(buffers[name])
    speed_up(made)
    return made.requires_grad_(False).eval()
