"""Evaluation of the policy on held-out tasks: before and after training, and every `eval.every` updates."""

from __future__ import annotations

import functools
import math
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.utils import gather_object
from tqdm import tqdm

from codev_agents.rollout.engine import Engine, Sampling
from codev_agents.rollout.player import Group
from codev_agents.rollout.runner import Rollout, RolloutRunner
from codev_agents.rollout.selection import Selection
from codev_agents.rollout.tokens import ChatProcessor, TokenSequence
from codev_env.errors import ConfigError, TaskError
from codev_env.files import write_json
from codev_env.scoring.clusters import summarize_clusters
from codev_env.scoring.med import tool_effect
from codev_env.trajectory import Trajectory, read_trajectories, write_trajectories
from codev_train.learn import checkpoint
from codev_train.run.environments import make_eval_env
from codev_train.run.options import TrainOptions

AT_ONCE, CONTRAST = "right_at_once", "contrast_accuracy"
TABLE = (
    ("accuracy", "accuracy"),
    (CONTRAST, "accuracy, contrast"),
    ("faithful", "faithful-tool rate"),
    ("faithful_given_correct", "faithful given correct"),
    ("any_crop", "any crop, as in papers"),
    ("tool_calls", "tool calls per episode"),
)
"""Rows of the table before and after: metric and its label. A row that neither has is left out."""


def evaluate(
    engine: Engine, processor: ChatProcessor, options: TrainOptions, folder: Path, what: str, accelerator: Accelerator
) -> dict[str, Any]:
    """Evaluate on the first held-out tasks; the main process writes trajectories and `metrics.json` to `folder`.

    With `eval.contrast`, as many episodes on those scenes follow; their trajectories are in `contrast` below. With
    `eval.dual`, the same tasks follow without the tool, in `without-tool`, and the policy is made to answer at once.
    All processes take part: process p of P plays the tasks p, p + P, …, and the main process gets them in order.

    Args:
        engine: Samples from the policy.
        processor: The tokenizer side of the policy.
        options: The environment and the number of episodes.
        folder: Folder of the results; its content is replaced once all is written.
        what: Label of the progress bar.
        accelerator: The processes.

    Returns:
        The metrics of `codev_env.scoring.clusters.summarize_clusters`, `contrast_accuracy` on the scenes of
        `eval.contrast`, and with `eval.dual` those of `codev_env.scoring.med.tool_effect`, `accuracy_at_once` and
        `look_gain`, the accuracy minus that; empty in all but the main process. Tasks whose first prompt is too long
        are named and left out.

    Raises:
        ConfigError: The first prompts of all tasks are too long.
        TaskError: A task cannot be read.
    """
    contrasted: list[Trajectory] = []
    without: list[Trajectory] = []
    trajectories = _play(engine, processor, options, what, accelerator, at_once=options.eval.dual)
    if options.eval.contrast:
        contrasted = _play(engine, processor, options, f"{what}, contrast", accelerator, contrast=True)
    if options.eval.dual:
        without = _play(engine, processor, options, f"{what}, without the tool", accelerator, tool=False)
    if not accelerator.is_main_process:
        return {}
    with checkpoint.replace_folder(folder) as partial:
        trajectories = _written(partial, trajectories)
        metrics = summarize_clusters(trajectories, options.seed) | tool_effect(trajectories, without)
        if answers := [replace(t, is_correct=t.meta[AT_ONCE]) for t in trajectories if AT_ONCE in t.meta]:
            _add_accuracy(metrics, "accuracy_at_once", answers, options.seed)
            metrics["look_gain"] = metrics["accuracy"] - metrics["accuracy_at_once"]
        if without:
            found = summarize_clusters(_written(partial / "without-tool", without), options.seed)
            metrics["ci95"]["accuracy_without"] = found["ci95"]["accuracy"]
        if contrasted:
            _add_accuracy(metrics, CONTRAST, _written(partial / "contrast", contrasted), options.seed)
        write_json(partial / "metrics.json", metrics)
    return metrics


def _add_accuracy(metrics: dict[str, Any], name: str, episodes: Sequence[Trajectory], seed: int) -> None:
    found = summarize_clusters(episodes, seed)
    metrics[name], metrics["ci95"][name] = found["accuracy"], found["ci95"]["accuracy"]


def _written(folder: Path, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """Write trajectories and read them: images have the same name then if they are the same, see `clusters_of`."""
    write_trajectories(folder, trajectories)
    return read_trajectories(folder)


class _Records(Selection):
    """Keeps the records of its episodes alone: tokens and processed images of all may not fit."""

    def end(self, group: Group, rollouts: list[Rollout]) -> None:
        group.played.clear()
        super().end(group, [replace(rollout, tokens=TokenSequence()) for rollout in rollouts])


def _play(
    engine: Engine,
    processor: ChatProcessor,
    options: TrainOptions,
    what: str,
    accelerator: Accelerator,
    *,
    at_once: bool = False,
    **kind: bool,
) -> list[Trajectory]:
    """Play the held-out episodes of a kind; returns them in the order of tasks, in all but the main process none.

    With `at_once`, the metadata of each say whether the policy, made to answer before it looks, is right.
    """
    rank, processes = accelerator.process_index, accelerator.num_processes
    sampling = Sampling(options.eval.temperature, options.max_tokens)
    make_env = functools.partial(make_eval_env, options, **kind)
    engine.seed(options.seed + rank)  # An evaluation is a function of seed and weights, whatever was sampled before.
    with RolloutRunner(
        make_env,
        processor,
        options.workers,
        options.engine_batch,
        options.max_length,
        step_timeout=options.step_timeout,
        mask_stragglers=options.mask_stragglers,
    ) as runner:
        count = min(options.eval.episodes, runner.size())
        own = range(rank, count, processes)
        played = _Records(own, len(own), len(own))
        with tqdm(total=len(own), desc=what, disable=not accelerator.is_main_process) as bar:
            runner.select(engine, played, 1, sampling, lambda ended: bar.update(len(ended)), options.engine_batch)
        indices = [group.index for group in played.played if group.episodes]
        trajectories = [rollout.trajectory for rollout in played.rollouts]
        if at_once:
            right: list[bool] = []
            for start in range(0, len(indices), options.engine_batch):
                wave = indices[start : start + options.engine_batch]
                right += runner.guesses(engine, wave, options.max_tokens)
            marked = zip(trajectories, right, strict=True)
            trajectories = [replace(t, meta={**t.meta, AT_ONCE: one}) for t, one in marked]
    episodes = list(zip(indices, trajectories, strict=True))
    gathered: list[tuple[int, Trajectory]] = []
    any_played = False
    for turn in range(-(-count // processes)):  # One episode of each process at a time: images of all may not fit.
        found = gather_object(episodes[turn : turn + 1])
        gathered += found if accelerator.is_main_process else []
        any_played |= bool(found)
    skipped = gather_object(played.skipped)
    if unread := [task for task in skipped if task.error]:  # what is measured must not change with a disk
        raise TaskError(f"a task that is evaluated on cannot be read: {unread[0].error}")
    reasons = [task.reason(options.max_tokens, options.max_length) for task in skipped]
    for reason in reasons if accelerator.is_main_process else ():
        print(reason, file=sys.stderr)
    if not any_played:
        raise ConfigError(f"there is no task to evaluate on: {reasons[0]} Raise --max-length or lower --max-tokens.")
    return [trajectory for _, trajectory in sorted(gathered, key=lambda episode: episode[0])]


def evaluate_step(
    engine: Engine, processor: ChatProcessor, options: TrainOptions, run: Path, step: int, accelerator: Accelerator
) -> dict[str, float]:
    """Evaluate after `step` updates into `eval/step-…` of the run; returns what the history keeps of it."""
    started = time.perf_counter()
    folder = run / "eval" / f"step-{step:06d}"
    metrics = evaluate(engine, processor, options, folder, f"evaluation {step}", accelerator)
    return scores(metrics) | {"seconds/evaluation": time.perf_counter() - started}


def drop_evaluations(run: Path, done: int) -> None:
    """Remove evaluations of later updates than `done`: a resumed run makes these updates again."""
    for folder in (run / "eval").glob("step-*"):
        if int(folder.name.removeprefix("step-")) > done:
            shutil.rmtree(folder)


def scores(metrics: dict[str, Any]) -> dict[str, float]:
    """Return the metrics as `eval/NAME`, NaN where one is undefined."""
    names = [name for name in metrics if name not in ("n", "n_judged", "faithful_definition", "ci95")]
    return {f"eval/{name}": math.nan if metrics[name] is None else metrics[name] for name in names}


def comparison(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Format the table before and after, with 95 % intervals."""
    rows = [f"{'':24}{'before':>26}{'after':>26}"]
    rows += [
        f"{label:24}{_cell(before, name):>26}{_cell(after, name):>26}"
        for name, label in TABLE
        if name in before or name in after
    ]
    return "\n".join([*rows, *mastery(before, after)])


def mastery(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Say how much of the accuracy gained is the tool's, and what the tool harms; nothing without `eval.dual`."""

    def line(title: str, base: str, gain: str, whose: str) -> str:
        gained, share = (100 * (after[name] - before[name]) for name in ("accuracy", gain))
        first, last = (100 * metrics[base] for metrics in (before, after))
        percent = f" ({100 * share / gained:.0f} %)" if gained > 0 else ""
        return (
            f"{title}: {first:.1f} % right before, {last:.1f} % after. Of {gained:+.1f} points of accuracy, "
            f"{share:+.1f} are {whose}{percent}"
        )

    lines = []
    if "tool_gain" in before and "tool_gain" in after:
        harm = 100 * (after["call_harm"] + after["schema_harm"])
        told = line("Without the tool", "accuracy_without", "tool_gain", "the tool's")
        lines.append(f"{told}; it harms {harm:.1f} % of the episodes.")
    if "look_gain" in before and "look_gain" in after:
        told = line("Made to answer before it looks", "accuracy_at_once", "look_gain", "gained by looking")
        lines.append(f"{told}.")
    return lines


def _cell(metrics: dict[str, Any], name: str) -> str:
    value, interval = metrics.get(name), metrics["ci95"].get(name)
    scale, unit = (1, "") if name == "tool_calls" else (100, " %")
    if value is None:
        return "–"
    digits = 2 if scale == 1 else 1
    text = f"{scale * value:.{digits}f}{unit}"
    if interval is None:  # too few episodes
        return text
    low, high = (f"{scale * x:.{digits}f}" for x in interval)
    return f"{text} [{low}, {high}]"
