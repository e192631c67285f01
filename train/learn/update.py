"""One update of the policy: policy-gradient steps on samples, accumulated over forward passes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object

from codev_agents.engines.weights import is_sharded
from codev_agents.rollout.tokens import ChatProcessor
from codev_env.errors import CodevError
from codev_train.learn.balance import cost, exchange, idle, schedule, share_out
from codev_train.learn.inputs import Batch, make_batch
from codev_train.learn.join import joined
from codev_train.learn.loss import Clip, LossTokens, get_loss, importance_weights, kl_estimate
from codev_train.learn.sample import Sample
from codev_train.learn.sharding import reshard
from codev_train.learn.stats import UpdateStats
from codev_train.run.options import TrainOptions
from codev_train.run.ranks import summed


class EngineMismatch(CodevError, RuntimeError):
    """The engine samples from another distribution than the trainer computes."""


@dataclass(frozen=True, eq=False)
class _Outline:
    """A sample as every process knows it.

    Attributes:
        length: Its tokens.
        size: Those of the loss.
        has_gradient: Whether it has a gradient.
        is_counted: Whether it counts in means.
        scene: A number that it shares with the samples that begin with the same image, all of one process.
        view: Tokens of that image.
    """

    length: int
    size: int
    has_gradient: bool
    is_counted: bool
    scene: int
    view: int


@dataclass(frozen=True, eq=False)
class _Work:
    """The samples of an update, numbered over all processes, and where they are.

    Attributes:
        outlines: Of all samples.
        holders: The processes that have each sample: one, or all of a group that shares rows out.
        filler: A short sample for passes without any.
        samples: Those of this process, by number.
        old: Their log-probabilities under the policy before the update, on the CPU, from where they can be sent.
        reference: Their log-probabilities under the reference policy, likewise.
    """

    outlines: Sequence[_Outline]
    holders: list[range]
    filler: Sample
    samples: dict[int, Sample]
    old: dict[int, torch.Tensor] = field(default_factory=dict)
    reference: dict[int, torch.Tensor] = field(default_factory=dict)

    @property
    def lengths(self) -> list[int]:
        """Tokens of all samples."""
        return [outline.length for outline in self.outlines]


@dataclass(frozen=True, eq=False)
class Updater:
    """Takes optimizer steps on samples.

    Attributes:
        module: The `TokenScorer`, as `prepare` wraps it.
        optimizer: The optimizer of its weights.
        processor: The tokenizer side of the policy.
        options: The loss, epochs, minibatches, and how much goes into a forward pass.
        accelerator: Processes and devices.
        reference: Scores tokens under the reference policy, called as `module` is; see `make_reference`.
    """

    module: Any
    optimizer: Any
    processor: ChatProcessor
    options: TrainOptions
    accelerator: Accelerator
    reference: Any = None

    def __post_init__(self) -> None:
        if self.options.kl and self.reference is None:
            raise ValueError(f"kl is {self.options.kl}, but there is no reference policy to compare with")

    def update(self, samples: Sequence[Sample], rng: np.random.Generator, filler: Sample | None = None) -> UpdateStats:
        """Take `epochs * minibatches` optimizer steps.

        Args:
            samples: The samples since the last update.
            rng: Orders the samples.
            filler: A short sample for passes without any; by default the shortest one, if there may not be none.

        Raises:
            EngineMismatch: Sampler and trainer disagree on the log-probabilities of the same weights.
            CodevError: The gradient is not finite; that step is not made.
        """
        options, filler = self.options, filler or min(samples, key=len)
        work = self._number(joined(samples, self.processor.image_id, self._always), filler)
        rows = np.array([row for row, outline in enumerate(work.outlines) if outline.size], dtype=int)
        steps: list[list[float]] = []  # NaN where no token was trained on
        on_policy = True  # the weights are still those that sampled
        for epoch in range(options.epochs):
            # Minibatches are random parts of the samples of all processes, whoever sampled them.
            order = self._of_main(rows[rng.permutation(len(rows))])
            minibatches = [part.tolist() for part in np.array_split(order, options.minibatches)]
            self._balance(work, minibatches)
            if epoch == 0:
                self._score_before(work, rows.tolist())
            for part in minibatches:
                steps.append(self._step(work, part, on_policy))
                on_policy = on_policy and not any(work.outlines[row].has_gradient for row in part)
        means = [float(np.nanmean(c)) if np.isfinite(c).any() else math.nan for c in np.array(steps).T]
        count = len(means) - 2 * self._lags
        by_lag = list(zip(means[count::2], means[count + 1 :: 2], strict=True))
        return UpdateStats(*means[:count], by_lag=by_lag)

    @property
    def _lags(self) -> int:
        """How many lags are told apart: none where all tokens are of the policy that is trained."""
        return self.options.staleness + 1 if self.options.staleness else 0

    @property
    def _always(self) -> bool:
        """Whether samples have a gradient whatever their advantages."""
        return self.options.kl > 0 or self.options.entropy > 0

    def score(self, samples: Sequence[Sample], filler: Sample) -> np.ndarray:
        """Return the mean log-probability of the tokens of the loss of each sample, `[samples]`, without a gradient.

        All processes call this together.

        Args:
            samples: The samples of this process; there may be none.
            filler: A short sample with tokens of the loss, for passes without any.
        """
        work = self._number(samples, filler)
        own = [row for row, holder in enumerate(work.holders) if self.accelerator.process_index == holder.start]
        rows = list(range(len(work.outlines)))
        self._balance(work, [rows])
        found = {row: float(values.mean()) for row, values in self._score(self.module, work, rows).items()}
        if self.accelerator.num_processes > 1:
            found = {row: value for part in gather_object([found]) for row, value in part.items()}
        return np.array([found[row] for row in own])

    def _number(self, samples: Sequence[Sample], filler: Sample) -> _Work:
        """Number the samples of all processes, in the order of these."""
        scenes: dict[int, int] = {}
        own = [
            _Outline(
                length=len(s),
                size=s.size,
                has_gradient=bool(s.size) and (self._always or bool(s.advantages.any())),
                is_counted=not s.is_imitated,
                scene=scenes.setdefault(id(s.images[0]) if s.images else 0, len(scenes)),
                view=s.images[0].tokens if s.images else 0,
            )
            for s in samples
        ]
        shares = [own] if self.accelerator.num_processes == 1 else gather_object([own])
        holders = [range(process, process + 1) for process, share in enumerate(shares) for _ in share]
        mine = [row for row, holder in enumerate(holders) if self.accelerator.process_index in holder]
        count = len(shares)
        outlines = [replace(one, scene=one.scene * count + at) for at, share in enumerate(shares) for one in share]
        if self.options.sequence_parallel > 1:
            filler = broadcast_object_list([filler])[0]  # a group runs the same passes
        return _Work(outlines, holders, filler, dict(zip(mine, samples, strict=True)))

    def _balance(self, work: _Work, minibatches: Sequence[list[int]]) -> None:
        """Share each minibatch out over the groups of processes, and move the samples that change process."""
        accelerator, size = self.accelerator, self.options.sequence_parallel
        processes, rank = accelerator.num_processes, accelerator.process_index
        count = processes // size
        if processes == 1:
            return
        before, lengths = list(work.holders), work.lengths
        for part in minibatches:
            rows = [row for row in sorted(part) if work.outlines[row].has_gradient]
            costs = [cost(lengths[row]) for row in rows]
            # Padded passes hold a number of trajectories, packed ones a number of tokens.
            most = 0 if self.options.token_budget else -(-len(rows) // count)
            chosen = share_out(costs, [before[row].start // size for row in rows], count, most)
            for row, group in zip(rows, chosen, strict=True):
                work.holders[row] = range(group * size, (group + 1) * size)
        tables: tuple[dict[int, Any], ...] = (work.samples, work.old, work.reference)
        parcels: list[list[dict[int, Any]]] = []
        for process in range(processes):
            sent = [row for row in work.samples if process in work.holders[row] and process not in before[row]]
            sent = [row for row in sent if before[row].start == rank]
            parcels.append([{row: table[row] for row in sent if row in table} for table in tables])
        for row in [row for row in work.samples if rank not in work.holders[row]]:
            for table in tables:
                table.pop(row, None)
        for parcel in exchange(accelerator, parcels):
            for table, received in zip(tables, parcel, strict=True):
                table.update(received)

    def _score_before(self, work: _Work, rows: list[int]) -> None:
        """Compute the log-probabilities that stay fixed during the update."""
        options = self.options
        if options.correction != "ratio" and options.epochs * options.minibatches > 1:
            # Later steps compare with the weights that sampled, as the trainer computes them.
            work.old.update(self._score(self.module, work, rows))
        if self.reference is not None:
            work.reference.update(self._score(self.reference, work, rows))

    def _step(self, work: _Work, rows: list[int], on_policy: bool) -> list[float]:
        """Accumulate the gradient over forward passes and step; returns the values of `UpdateStats`."""
        options, accelerator = self.options, self.accelerator
        total = self._total(work, rows)
        table = self._passes(work, rows)
        passes = table[accelerator.process_index // options.sequence_parallel]
        self.module.train()
        sums, gap_max = np.zeros(9 + 2 * self._lags), 0.0
        for number, part in enumerate(passes):
            is_last = number + 1 == len(passes)
            # Sharded gradients are reduced in every pass: whole ones, kept until the last, would not fit.
            reduces = is_last or is_sharded(self.module)
            with contextlib.nullcontext() if reduces else accelerator.no_sync(self.module):
                loss, values, gap = self._loss(work, part)
                accelerator.backward(loss / total * accelerator.num_processes)
            sums += values
            gap_max = float(np.maximum(gap_max, gap))
        loss_sum, scored, *added = summed((sums / options.sequence_parallel).tolist(), accelerator)
        gap_max = self._max(gap_max)
        gap_sum, fresh, *lagging = added[3], *added[6:]
        entropy, kl, clip, _, truncated, reference = (value / scored if scored else math.nan for value in added[:6])
        gap = gap_sum / fresh if fresh else math.nan
        # Where the trainer has no numbers either, the norm below says so.
        if on_policy and fresh and not (gap <= options.health.mismatch or math.isnan(entropy)):
            rounds = options.precision == "bf16" or options.engine != "hf"
            raise EngineMismatch(
                f"sampler and trainer differ by {gap:.2g} nats per token on the same weights (mean of {fresh:.0f} "
                f"tokens, at most {gap_max:.2g}), more than "
                f"health.mismatch ({options.health.mismatch:g}; rounding makes 0.001 in fp32 at most, more in bf16): "
                "wrong weights in the engine, or temperature"
                + (", or the rounding of bf16: --health.mismatch 0.05, as in the presets." if rounds else ".")
            )
        # Without any pass there is no gradient: moments of earlier updates and weight decay must not move the weights.
        norm = self._move() if passes else 0.0
        if not on_policy or not fresh:
            gap = gap_max = math.nan
        by_lag: list[float] = []
        for tokens, divergence in zip(lagging[::2], lagging[1::2], strict=True):
            # Only before the first step the policy is the one that the divergence is meant from.
            by_lag += [
                tokens / scored if scored else math.nan,
                divergence / tokens if on_policy and tokens else math.nan,
            ]
        mean, waiting = loss_sum / total if total else 0.0, idle(work.lengths, table)
        return [mean, entropy, kl, clip, norm, gap, gap_max, truncated, reference, *waiting, *by_lag]

    def _total(self, work: _Work, rows: list[int]) -> float:
        """Return what the sum of the losses of a minibatch is divided by."""
        options, parts = self.options, 1
        counted = [outline for outline in (work.outlines[row] for row in rows) if outline.is_counted]
        if not counted:  # imitated samples alone: they weigh as much as in the mean minibatch
            counted = [outline for outline in work.outlines if outline.is_counted and outline.size]
            parts = options.minibatches if counted else 1
        sizes = [outline.size for outline in counted or (work.outlines[row] for row in rows)]
        longest = options.max_tokens * options.env.max_turns
        return get_loss(options.loss).average.total(float(sum(sizes)), float(len(sizes)), longest) / parts

    def _move(self) -> float:
        """Clip the gradient and step; returns the gradient's norm."""
        norm = float(self.accelerator.clip_grad_norm_(self.module.parameters(), self.options.optimizer.grad_clip))
        if not math.isfinite(norm):
            raise CodevError(
                f"the gradient norm is {norm}; lower optimizer.lr or check the rewards. The step was not made."
            )
        self.optimizer.step()
        self.optimizer.zero_grad()
        return norm

    def _loss(self, work: _Work, rows: list[int]) -> tuple[torch.Tensor, np.ndarray, float]:
        """Run one pass.

        Returns:
            The sum of the losses; sums over tokens for the statistics: loss, tokens, entropy, KL, clipped, gap to the
            sampler, truncated, KL to the reference, tokens of the policy that is trained, and for each lag its tokens
            and their KL from the sampler; and the greatest gap.
        """
        options, kind = self.options, get_loss(self.options.loss)
        batch = self._batch(work, rows)
        logprobs, entropy = self._run(self.module, batch, options.entropy > 0)
        if not rows:
            # Another process has more passes: take part in the communication and add nothing.
            return logprobs.sum() * 0.0, np.zeros(9 + 2 * self._lags), 0.0
        now, counted = logprobs.detach(), batch.counted
        old, sampler = now, torch.where(counted, batch.sampler, now)
        if options.correction == "ratio":
            old = sampler
        elif work.old:
            old = torch.where(counted, torch.cat([work.old[row] for row in rows]).to(now.device), now)
        tokens = LossTokens(logprobs, old, batch.advantages, batch.sequences)
        values, hit = kind.surrogate(tokens, Clip(options.clip_low, options.clip_high, options.dual_clip))
        truncated = reference = torch.zeros(())
        if options.correction != "ratio":
            cap = options.correction_cap
            weights = importance_weights(options.correction, old, sampler, batch.sequences, cap)
            whole = importance_weights(options.correction, old, sampler, batch.sequences, math.inf)
            values, truncated = values * weights, (whole > weights)[counted].sum()
        if self.reference is not None:
            other = torch.cat([work.reference[row] for row in rows]).to(now.device)
            # Not times 0: what is imitated may be so improbable that its estimate overflows, and 0 * inf is NaN.
            estimate = kl_estimate(torch.where(counted, logprobs, other), other)
            values, reference = values + options.kl * estimate, estimate.detach().sum()
        if options.entropy > 0:
            values = values - options.entropy * entropy * counted
        # Imitated tokens have no ratio, whatever the surrogate makes of one.
        loss = (torch.where(counted, values, 0.0) * kind.average.share(batch.sequences)).sum()
        if (copied := batch.imitated != 0).any():
            values = -batch.imitated[copied] * logprobs[copied]
            loss = loss + (values * kind.average.share(batch.sequences[copied])).sum()
        # Tokens of earlier weights may differ; only those of the same weights show that the engine is right.
        gap = (now - sampler).abs() * (batch.lags == 0)
        kl = kl_estimate(old, now).sum()
        sums = [loss.detach(), entropy.detach()[counted].sum(), kl, hit.sum(), gap.sum(), truncated, reference]
        sums.append((counted & (batch.lags == 0)).sum())
        divergence = kl_estimate(sampler, now)
        for lag in range(self._lags):
            of_lag = counted & (batch.lags == lag)
            sums += [of_lag.sum(), divergence[of_lag].sum()]
        loss_sum, *others = (value.item() for value in sums)
        return loss, np.array([loss_sum, int(counted.sum()), *others]), gap.max().item()

    @torch.no_grad()
    def _score(self, module: Any, work: _Work, rows: list[int]) -> dict[int, torch.Tensor]:
        """Compute the log-probabilities of the tokens of the loss, by sample."""
        known: dict[int, torch.Tensor] = {}
        for part in self._passes(work, rows)[self.accelerator.process_index // self.options.sequence_parallel]:
            batch = self._batch(work, part)
            logprobs, _ = self._run(module, batch)
            if part:
                known.update(zip(part, logprobs.cpu().split(batch.sequences.bincount().tolist()), strict=True))
        reshard(module)
        return known

    def _run(self, module: Any, batch: Batch, entropy_gradient: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        packed = self.options.token_budget > 0
        banned = tuple(self.processor.banned_ids)
        return module(batch.inputs, batch.chosen, self.options.temperature, banned, packed, entropy_gradient)

    def _passes(self, work: _Work, rows: list[int]) -> list[list[list[int]]]:
        """Distribute the samples that have a gradient over the forward passes of each group of processes."""
        rows = [row for row in rows if work.outlines[row].has_gradient]
        options = self.options
        size, count = options.sequence_parallel, self.accelerator.num_processes // options.sequence_parallel
        homes = [holder.start // size for holder in work.holders]
        scenes, views = [outline.scene for outline in work.outlines], [outline.view for outline in work.outlines]
        return schedule(rows, work.lengths, homes, count, options.token_budget, options.micro_batch, scenes, views)

    def _batch(self, work: _Work, rows: list[int]) -> Batch:
        """Collate samples. Without rows it is a filler: the shortest sample with all its sampled tokens."""
        filler = work.filler
        samples = [work.samples[row] for row in rows] or [replace(filler, mask=[turn >= 0 for turn in filler.turns])]
        return make_batch(samples, self.processor, self.accelerator.device)

    def _of_main(self, order: np.ndarray) -> np.ndarray:
        """Return the main process's order."""
        return order if self.accelerator.num_processes == 1 else broadcast_object_list([order])[0]

    def _max(self, value: float) -> float:
        """Return the greatest number of any process."""
        if self.accelerator.num_processes == 1:
            return value
        return float(self.accelerator.gather(torch.tensor([value], device=self.accelerator.device)).max())
