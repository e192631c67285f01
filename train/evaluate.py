"""Evaluation of the policy on held-out tasks, before and after training."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from tqdm import tqdm

from codev_agents.rollout.engine import Engine, Sampling
from codev_agents.rollout.runner import RolloutRunner
from codev_agents.rollout.selection import Selection
from codev_agents.rollout.tokens import ChatProcessor
from codev_env.errors import ConfigError
from codev_env.scoring.metrics import summarize
from codev_env.trajectory import write_trajectories
from codev_train.run.environments import make_eval_env
from codev_train.run.options import TrainOptions

TABLE = (
    ("accuracy", "accuracy"),
    ("faithful", "faithful-tool rate"),
    ("faithful_given_correct", "faithful given correct"),
    ("tool_calls", "tool calls per episode"),
)
"""Rows of the table before and after: metric and its label."""


def evaluate(
    engine: Engine, processor: ChatProcessor, options: TrainOptions, folder: Path, what: str
) -> dict[str, Any]:
    """Evaluate on the first held-out tasks and write the trajectories to `folder`.

    Args:
        engine: Samples from the policy.
        processor: The tokenizer side of the policy.
        options: The environment and the number of episodes.
        folder: Folder of the trajectories; its content is replaced.
        what: Label of the progress bar.

    Returns:
        The metrics of `codev_env.scoring.metrics.summarize`. Tasks whose first prompt is too long are named and left
        out.

    Raises:
        ConfigError: The first prompts of all tasks are too long.
    """
    make_env, sampling = lambda: make_eval_env(options), Sampling(options.eval.temperature, options.max_tokens)
    with RolloutRunner(make_env, processor, options.workers, options.engine_batch, options.max_length) as runner:
        indices = range(min(options.eval.episodes, runner.size()))
        with tqdm(total=len(indices), desc=what) as bar:
            found = Selection(indices, len(indices), len(indices))
            runner.select(engine, found, 1, sampling, lambda ended: bar.update(len(ended)))
    reasons = [task.reason(options.max_tokens, options.max_length) for task in found.skipped]
    for reason in reasons:
        print(reason, file=sys.stderr)
    if not found.rollouts:
        raise ConfigError(f"there is no task to evaluate on: {reasons[0]} Raise --max-length or lower --max-tokens.")
    trajectories = [rollout.trajectory for rollout in found.rollouts]
    shutil.rmtree(folder, ignore_errors=True)  # A resumed run evaluates again: no episode must be counted twice.
    write_trajectories(folder, trajectories)
    return summarize(trajectories, seed=options.seed)


def comparison(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Format the table before and after, with 95 % intervals."""
    rows = [f"{'':24}{'before':>26}{'after':>26}"]
    rows += [f"{label:24}{_cell(before, name):>26}{_cell(after, name):>26}" for name, label in TABLE]
    return "\n".join(rows)


def _cell(metrics: dict[str, Any], name: str) -> str:
    value, interval = metrics[name], metrics["ci95"].get(name)
    scale, unit = (1, "") if name == "tool_calls" else (100, " %")
    if value is None:
        return "–"
    digits = 2 if scale == 1 else 1
    text = f"{scale * value:.{digits}f}{unit}"
    if interval is None:  # too few episodes
        return text
    low, high = (f"{scale * x:.{digits}f}" for x in interval)
    return f"{text} [{low}, {high}]"
