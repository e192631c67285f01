"""Whether a run has tasks, others to be evaluated on, and in them what its reward needs."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator

from codev_env.app.check import Check
from codev_env.envs.image_tool import ImageToolEnv, unwrap
from codev_env.errors import TaskError
from codev_env.rewards.codevision import needed_operations
from codev_env.types import Task, TaskSet
from codev_train.run.environments import make_eval_env, make_train_env, shares_tasks
from codev_train.run.options import TrainOptions

_LOOKED_AT = 16
_OF_BOXES = ("auto", "ground_truth")


def task_checks(options: TrainOptions, dry: bool) -> Iterator[Check]:
    """Open the tasks of a run; what a `dry` one would list, a run says at once.

    Raises:
        CodevError: Tasks or environment cannot be used.
    """
    split = options.eval.split
    made = [("train", make_train_env), (split, make_eval_env)]
    if options.eval.contrast:
        made.append((f"{split} contrast", functools.partial(make_eval_env, contrast=True)))
    if options.eval.dual:
        made.append((f"{split} without the tool", functools.partial(make_eval_env, tool=False)))
    found: list[TaskSet] = []
    doubts: list[Check] = []
    for name, make in made:
        env = make(options)
        tasks = unwrap(env).tasks
        doubts += [] if found else reward_checks(unwrap(env))
        env.close()
        found.append(tasks)
        yield Check("environment", f"{name} tasks", "ok", f"{len(tasks)} of {tasks.name}, reward {options.reward}")
    if shares_tasks(found[0], found[1]):
        detail = f"tasks of the evaluation ({split}) are trained on: what is measured is not held out"
        advice = "give --eval.data, or a file for each split (docs/data.md)"
        doubts.append(Check("environment", "held out", "warn", detail, advice))
    for doubt in doubts:
        if not dry:
            warnings.warn(f"{doubt.detail}; {doubt.advice}.", UserWarning, stacklevel=2)
        yield doubt


def reward_checks(env: ImageToolEnv) -> Iterator[Check]:
    """Look at some tasks of an environment, over all of its set, for what its reward needs and none of them has."""
    tasks, needs, judge = list(_some(env.tasks)), env.reward.needs, env.judge.name
    if not tasks:
        return
    seen, boxed = f"{len(tasks)} tasks that were looked at", any(task.targets for task in tasks)
    if "judge" in needs and judge == "none":
        yield _unpaid(env, "--env.judge is none: no tool call gets a score", "give --env.judge, or --reward outcome")
    elif "judge" in needs and judge in _OF_BOXES and not boxed:
        advice = "give boxes (docs/data.md), a judge that sees (docs/judges.md), or --reward outcome"
        yield _unpaid(env, f"none of {seen} has target boxes, so --env.judge {judge} scores no tool call", advice)
    if "boxes" in needs and not boxed:
        yield _unpaid(env, f"none of {seen} has target boxes", "give boxes (docs/data.md), or another --reward")
    if "transform" in needs and not any(needed_operations(task) for task in tasks):
        advice = "give --env.wrap (docs/robustness.md), such as orientation or crop, or another --reward"
        yield _unpaid(env, f"none of {seen} says which operation it needs", advice)


def _unpaid(env: ImageToolEnv, why: str, advice: str) -> Check:
    detail = f"reward {env.reward.name} rewards tool calls, and {why}"
    return Check("environment", "reward", "warn", detail, advice)


def _some(tasks: TaskSet) -> Iterator[Task]:
    """Yield tasks from the first to the last that can be read."""
    count = len(tasks)
    for index in sorted({place * (count - 1) // max(1, _LOOKED_AT - 1) for place in range(_LOOKED_AT)}):
        try:
            yield tasks[index]
        except TaskError:
            continue
