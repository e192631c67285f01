"""TAPO (CodeV, arXiv 2511.19661): GRPO whose reward includes a dense score of what each tool call showed."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object
from tqdm import tqdm

from codev_agents.engines.policy import Policy
from codev_agents.rollout.engine import Engine, Sampling
from codev_agents.rollout.groups import TakenGroups
from codev_agents.rollout.player import STRAGGLER
from codev_agents.rollout.runner import Rollout, RolloutRunner
from codev_agents.rollout.selection import PlayedGroup, Selection
from codev_agents.rollout.unplayable import SkippedTask
from codev_env.errors import ConfigError
from codev_env.rewards import Reward
from codev_env.scoring.metrics import judged_episodes
from codev_env.trajectory import Trajectory
from codev_train.evaluate import evaluate_step
from codev_train.learn import checkpoint
from codev_train.learn.ahead import Ahead
from codev_train.learn.blind import least_guessable
from codev_train.learn.credit import channel_factors, combine, differ, get_credit
from codev_train.learn.curriculum import TaskChooser
from codev_train.learn.imitation import Imitation
from codev_train.learn.optimizer import learning_rate, set_learning_rate
from codev_train.learn.progress import drop_saved
from codev_train.learn.reference import make_reference
from codev_train.learn.resample import draw_groups, most_varied, with_signal
from codev_train.learn.sample import is_masked, make_samples
from codev_train.learn.trained import TrainedPolicy
from codev_train.learn.update import Updater
from codev_train.run.environments import make_train_env
from codev_train.run.health import Health, Unhealthy
from codev_train.run.interrupt import Interrupt
from codev_train.run.monitor import Monitor
from codev_train.run.options import TrainOptions
from codev_train.run.ranks import begin_peak, part_of, peak_memory, spread, summed


def tapo(
    options: TrainOptions,
    trained: TrainedPolicy,
    engine: Engine,
    run: Path,
    monitor: Monitor,
    accelerator: Accelerator,
    done: int = 0,
) -> bool:
    """Train a policy; returns whether it finished (false: interrupted, with a checkpoint to resume from).

    `done` updates of the run are made already, and the optimizer has their moments.

    Raises:
        Unhealthy: The numbers of the run show that it no longer learns; it is saved.
    """
    policy, module, optimizer = trained.policy, trained.module, trained.optimizer
    reference = make_reference(options, module, accelerator)
    updater = Updater(module, optimizer, policy.processor, options, accelerator, reference)
    health = Health(options.health)
    for row in broadcast_object_list([monitor.history()])[0]:
        health.look(row)  # Restores its memory of earlier updates.
    runner = RolloutRunner(
        lambda: make_train_env(options),
        policy.processor,
        options.workers,
        options.engine_batch,
        options.max_length,
        step_timeout=options.step_timeout,
        mask_stragglers=options.mask_stragglers,
    )
    chooser = TaskChooser(options.curriculum, runner.size(), run, done, accelerator.is_main_process)
    imitation = Imitation(options.imitation, updater, policy.processor, runner.dialect())
    learner = _Learner(options, policy, engine, runner, chooser, updater, imitation, accelerator)
    if accelerator.is_main_process and not options.staleness:
        drop_saved(run)
    bar = tqdm(total=options.steps, initial=done, desc="TAPO", disable=not accelerator.is_main_process)
    try:
        with (
            Interrupt(accelerator.is_main_process) as interrupt,
            # Ends after the last checkpoint is written: until then its groups stay saved.
            learner.ahead(run, done) if options.staleness else contextlib.nullcontext() as ahead,
            checkpoint.CheckpointWriter(run, options.keep) as writer,
        ):
            for step in range(done, options.steps):
                rollouts, row = learner.update(step, ahead)
                numbers = bar_numbers(row, [r.trajectory for r in rollouts])
                shown = [r.trajectory for r in rollouts[:: options.group][:4]]
                del rollouts  # The images of two updates, or of one and an evaluation, may not fit into memory.
                last = step + 1 == options.steps
                if options.eval.every and (step + 1) % options.eval.every == 0 and not last:
                    if ahead:
                        ahead.settle()
                    with interrupt.at_once():
                        row |= evaluate_step(engine, policy.processor, options, run, step + 1, accelerator)
                    if ahead:
                        learner.seed(step + 1)  # An evaluation has seeded the engine, each one with the same seed.
                monitor.update(row, step + 1)
                if step % options.show_every == 0:
                    monitor.episodes(shown, step + 1)
                bar.update()
                bar.set_postfix(numbers)
                findings = broadcast_object_list([health.look(row)])[0]  # of the main process: all stop, or none
                for finding in findings if accelerator.is_main_process else ():
                    bar.write(f"update {step + 1}: {finding.reason}", file=sys.stderr)
                fatal = next((finding.reason for finding in findings if finding.stop), "")
                # Processes stop together, whichever of them was interrupted or could not write.
                asked = torch.tensor(float(interrupt.asked or writer.failed), device=accelerator.device)
                stop = float(accelerator.reduce(asked)) > 0
                if stop or fatal or last or (step + 1) % options.save_every == 0:
                    writer.save(step + 1, policy, optimizer)
                if fatal:
                    writer.wait()
                    reason = f"stopped after update {step + 1}: {fatal}"
                    raise Unhealthy(f"{reason}. Continue with: codev train --resume {shlex.quote(str(run))}")
                if stop and not last:
                    return False
        return True
    finally:
        bar.close()
        runner.close()


@dataclass(frozen=True)
class _Learner:
    """State shared by the updates of a run."""

    options: TrainOptions
    policy: Policy
    engine: Engine
    runner: RolloutRunner
    chooser: TaskChooser
    updater: Updater
    imitation: Imitation
    accelerator: Accelerator
    named: set[int] = field(default_factory=set)  # skipped tasks, by index
    guessed: list[bool] = field(default_factory=list)  # whether each guess since the last update was right

    def update(self, step: int, ahead: Ahead | None = None) -> tuple[list[Rollout], dict[str, float]]:
        """Make an update: rollouts, credit, gradient steps; returns the rollouts and the row of the history.

        With `ahead` the rollouts are those that are played while the policy is updated.
        """
        options = self.options
        # Tasks and sampling depend on seed and update only: a resumed run continues as if never stopped.
        rng = np.random.default_rng((options.seed, step, self.accelerator.process_index))
        seed = int(rng.integers(2**62))
        if not ahead:
            self.engine.seed(seed)

        # 1. Rollouts: a group of episodes for every task.
        begin_peak(self.accelerator.device)
        started, idle = time.perf_counter(), self.runner.idle_s
        batch = ahead.take(step) if ahead else self._play(rng)
        rollouts = batch.rollouts
        if not ahead:
            self.engine.sleep()
        played = time.perf_counter()
        outcomes = self._share_outcomes(batch, step)  # waits for the process whose rollouts take longest
        gathered = time.perf_counter()
        del batch  # The images of groups that are not learned from may not fit beside the update.

        # 2. Rewards become group-relative advantages.
        reward = self.runner.reward()
        rewards, turns, groups = reward_table(rollouts)
        channels, kept = channel_table(rollouts, rewards, reward)
        if options.resample:
            kept &= with_signal(rollouts)
        told = torch.ones(len(rollouts), dtype=torch.bool)
        learned_from = torch.tensor([not is_masked(r, options.mask_overlong, options.mask_overturn) for r in rollouts])
        if options.down_sample:
            told = most_varied(rewards.sum(1), groups, kept.any(0) & learned_from, options.down_sample)
            kept &= told
        factors = channel_factors(options.credit, reward.channel_weights)
        credit, gate = get_credit(options.credit), reward.gate_channels
        advantages = combine(credit, channels, turns, groups, factors, kept, gate)

        # 3. Advantages become samples; clipped policy-gradient steps on their tokens.
        rate = learning_rate(options.optimizer, step, options.steps)
        set_learning_rate(self.updater.optimizer, rate)
        samples = make_samples(rollouts, advantages, step, options.mask_overlong, options.mask_overturn)
        imitated, seen = self.imitation.samples(rollouts, rng.spawn(1)[0])
        chosen = [*itertools.compress(samples, told), *imitated]
        stats = self.updater.update(chosen, rng, filler=min(chosen or samples, key=len))
        learned = time.perf_counter()
        memory: dict[str, float] = {}
        if ahead:
            ahead.push(self.policy.model)
        else:
            memory = self.engine.sync(self.policy.model)
        updated = time.perf_counter()

        row = describe(rollouts, rewards, turns, groups, self.accelerator, advantages * learned_from[:, None])
        self.chooser.note(step + 1, outcomes)
        played_groups = sum(group.episodes > 0 for group in outcomes)
        row["tasks_skipped"] = len(outcomes) - played_groups
        if options.resample:
            row["groups_played"] = played_groups
        if options.candidates > 1:
            guessed = [self.guessed.pop() for _ in range(len(self.guessed))]
            right, count = summed([sum(guessed), len(guessed)], self.accelerator)
            row["share/guessed"] = right / count if count else math.nan
        times = {"rollouts": played - started, "waiting": gathered - played, "update": updated - gathered}
        times["push"] = updated - learned  # part of the update
        row |= spread(times, self.accelerator) | peak_memory(self.accelerator)
        row |= ahead.row(step) if ahead else {}
        (sampled,) = summed([sum(r.tokens.sampled for r in rollouts)], self.accelerator)
        row |= stats.row() | {
            "update/learning_rate": rate,
            **seen,
            "seconds/engine_idle": self.runner.idle_s - idle,
            "tokens_per_second/rollouts": sampled / (ahead.seconds if ahead else played - started),
            "tokens_per_second/update": sampled / (updated - gathered),
        }
        row |= {f"seconds/{name}": value for name, value in times.items()}
        return rollouts, row | (ahead.told() if ahead else memory)

    def ahead(self, run: Path, done: int) -> Ahead:
        """Play the rollouts of later updates while the policy is updated, in the order of the batches of tasks."""
        options, prompts = self.options, self.options.prompts // self.accelerator.num_processes
        # Before it samples, and not before each update: that would wait for a round under way, and repeat nothing.
        self.seed(done)

        def tasks(batch: int) -> Sequence[int]:
            rng = np.random.default_rng((options.seed, batch, self.accelerator.process_index)).spawn(1)[0]
            return self._choose(rng)(prompts)

        return Ahead(options, self.runner, self.engine, tasks, run, done, self.accelerator)

    def seed(self, done: int) -> None:
        """Seed the engine for the rollouts that follow so many updates."""
        rng = np.random.default_rng((self.options.seed, done, self.accelerator.process_index))
        self.engine.seed(int(rng.integers(2**62)))

    def _play(self, rng: np.random.Generator) -> Selection:
        options, prompts = self.options, self.options.prompts // self.accelerator.num_processes
        choose = self._choose(rng)
        # A generator of its own: the number of tasks that are skipped changes nothing else.
        spare = functools.partial(self.chooser.choose, rng.spawn(1)[0])
        selection = draw_groups(choose, spare, prompts, options.resample)
        sampling = Sampling(options.temperature, options.max_tokens)
        self.runner.select(self.engine, selection, options.group, sampling)
        return selection

    def _choose(self, rng: np.random.Generator) -> Callable[[int], Sequence[int]]:
        options = self.options
        choose = functools.partial(self.chooser.choose, rng)
        if options.candidates == 1:
            return choose

        def guesses(tasks: Sequence[int]) -> list[bool]:
            right = self.runner.guesses(self.engine, tasks, options.max_tokens)
            self.guessed.extend(right)
            return right

        wanted = part_of(round(options.candidates_share * options.prompts), self.accelerator)
        share = wanted * self.accelerator.num_processes / options.prompts
        return functools.partial(least_guessable, choose, guesses, options.candidates, share)

    def _share_outcomes(self, batch: Selection | TakenGroups, step: int) -> list[PlayedGroup]:
        """Return the outcomes of all processes, and name skipped tasks once; all processes raise the same error."""
        options, found = self.options, gather_object([(len(batch.rollouts), batch.played, batch.skipped)])
        skipped = {task.index: task for _, _, tasks in found for task in tasks}
        for index in sorted(skipped.keys() - self.named):
            if self.accelerator.is_main_process:
                tqdm.write(skipped[index].reason(options.max_tokens, options.max_length), file=sys.stderr)
            self.named.add(index)
        if not all(count for count, _, _ in found):
            raise ConfigError(f"update {step + 1} has no task to play: {_why_none(list(skipped.values()), options)}")
        return [group for _, played, _ in found for group in played]


def _why_none(skipped: Sequence[SkippedTask], options: TrainOptions) -> str:
    """Say why none of the tasks that were drawn can be played, and what to do."""
    if not (tokens := [task.tokens for task in skipped if not task.error]):
        return f"the tasks that were drawn cannot be read, the first of them because: {skipped[0].error}"
    return (
        f"the first prompts of the tasks that were drawn have {min(tokens)} tokens or more, which leaves no room for a "
        f"turn of --max-tokens {options.max_tokens} within --max-length {options.max_length}. Raise --max-length, "
        "lower --max-tokens, or save the model with a smaller limit on the pixels of an image."
    )


def reward_table(rollouts: Sequence[Rollout]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return rewards `[trajectories, turns]`, numbers of turns and group numbers, each `[trajectories]`."""
    turns = torch.tensor([len(r.rewards) for r in rollouts])
    rewards = torch.zeros(len(rollouts), int(turns.max()), dtype=torch.float64)
    for row, rollout in enumerate(rollouts):
        rewards[row, : len(rollout.rewards)] = torch.tensor(rollout.rewards, dtype=torch.float64)
    return rewards, turns, torch.tensor([r.group for r in rollouts])


def channel_table(
    rollouts: Sequence[Rollout], rewards: torch.Tensor, reward: Reward
) -> tuple[torch.Tensor, torch.Tensor]:
    """Split the rewards into the channels whose advantages are added.

    Args:
        rollouts: The rollouts.
        rewards: `[trajectories, turns]`, from `reward_table`.
        reward: The reward of the environment.

    Returns:
        Rewards `[channels, trajectories, turns]`, and which rollouts each channel is normalised over
        `[channels, trajectories]`, bool: all whose tool calls could be judged, or the correct ones of them.
    """
    judged = torch.tensor([not r.judge_failed for r in rollouts])
    correct = torch.tensor([r.trajectory.is_correct for r in rollouts])
    kept = torch.stack([judged & correct if channel.only_correct else judged for channel in reward.channels])
    if len(reward.channels) == 1:
        return rewards[None], kept
    channels = torch.zeros(len(reward.channels), *rewards.shape, dtype=rewards.dtype)
    for number, channel in enumerate(reward.channels):
        names = [term.name for term in reward.all_terms if term.channel == channel]
        for row, rollout in enumerate(rollouts):
            for turn, record in enumerate(rollout.trajectory.turns):
                channels[number, row, turn] = sum(record.reward_terms[name] for name in names)
    return channels, kept


def bar_numbers(row: Mapping[str, float], played: Iterable[Trajectory]) -> dict[str, str]:
    """Return what the progress bar shows of an update; no faithful-tool rate where no tool call was judged."""
    judged = any(turn.score_value is not None for t in played for turn in t.turns) and not math.isnan(row["faithful"])
    names = ("reward", "accuracy", *(["faithful"] if judged else []))
    return {name: f"{row[name]:.2f}" for name in names}


def describe(
    rollouts: Sequence[Rollout],
    rewards: torch.Tensor,
    turns: torch.Tensor,
    groups: torch.Tensor,
    accelerator: Accelerator,
    advantages: torch.Tensor | None = None,
) -> dict[str, float]:
    """Return statistics of the rollouts of one update, as means over the episodes, turns or groups of all processes.

    `faithful` is the share among the episodes of `judged_episodes`, NaN where there are none. Rewards are means over
    the episodes whose judge did not fail, or over all where it failed for each. A group has no signal if all its
    `advantages` are 0; without them, if its judged rewards are equal.
    """
    trajectories = [r.trajectory for r in rollouts]
    records = [turn for t in trajectories for turn in t.turns]
    count, known = len(trajectories), judged_episodes(trajectories)
    judged = [r for r in rollouts if not r.judge_failed]
    paid = judged if summed([len(judged)], accelerator)[0] else rollouts
    if advantages is None:
        totals, rows = rewards.sum(1), torch.tensor([not r.judge_failed for r in rollouts])
        silent = sum(not differ(totals[(groups == g) & rows]) for g in groups.unique())
    else:
        silent = sum(not advantages[groups == g].any() for g in groups.unique())
    shares: dict[str, tuple[float, float]] = {
        "reward": (sum(sum(r.rewards) for r in paid), len(paid)),
        "accuracy": (sum(t.is_correct for t in trajectories), count),
        "faithful": (sum(t.is_faithful for t in known), len(known)),
        "tool_calls": (sum(r.kind == "code" for r in records), count),
        "turns": (int(turns.sum()), count),
        "response_tokens": (sum(r.tokens.sampled for r in rollouts), count),
        "trajectory_tokens": (sum(len(r.tokens) for r in rollouts), count),
        "share/truncated_turns": (sum(r.truncated_turns for r in rollouts), len(records)),
        "share/invalid_turns": (sum(r.kind == "invalid" for r in records), len(records)),
        "share/errors": (sum(r.error is not None for r in records), len(records)),
        "share/cut": (sum(r.cut for r in rollouts), count),
        "share/stragglers": (sum(t.stop_reason == STRAGGLER for t in trajectories), count),
        "share/judge_failed": (count - len(judged), count),
        "share/groups_without_signal": (silent, len(groups.unique())),
    }
    for name in records[0].reward_terms:
        total = sum(turn.reward_terms[name] for r in paid for turn in r.trajectory.turns)
        shares[f"reward/{name}"] = total, len(paid)
    added = summed([number for share in shares.values() for number in share], accelerator)
    return {
        name: above / below if below else math.nan
        for name, above, below in zip(shares, added[::2], added[1::2], strict=True)
    }
