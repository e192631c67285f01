"""Environments for training: made from options, one per rollout, all sharing one sandbox."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from codev_env.app.named_values import columns_of, reader_of
from codev_env.dialects import Dialect, get_dialect
from codev_env.envs.tool_free import ToolFree
from codev_env.errors import BadRows, CodevError, ConfigError, TaskError
from codev_env.farm.options import FarmOptions, make_options
from codev_env.judges import for_view, get_judge
from codev_env.registration import why_not_made
from codev_env.types import TaskSet
from codev_train.run.env_options import EnvOptions
from codev_train.run.options import TrainOptions


def make_train_env(options: TrainOptions) -> gym.Env[Any, Any]:
    """Make an environment that a run trains in; raises as `make_env`."""
    return make_env(options.env, "train", options.reward, options.weights)


def make_eval_env(options: TrainOptions, contrast: bool = False, tool: bool = True) -> gym.Env[Any, Any]:
    """Make an environment that a run is evaluated in, its `contrast` scenes, or one without its tool.

    Raises as `make_env`.
    """
    env = held_out_env(options)
    if contrast:
        env = dataclasses.replace(env, scene={**env.scene, **options.eval.contrast})
    dialect = None if tool else ToolFree(get_dialect(env.dialect))
    named = "eval.id" if options.eval.id else "env.id"
    return make_env(env, options.eval.split, options.reward, options.weights, dialect=dialect, named=named)


def held_out_env(options: TrainOptions) -> EnvOptions:
    """Return the options of the environment that a run is evaluated in."""
    env = options.env
    if options.eval.id:
        env = dataclasses.replace(
            env, id=options.eval.id, data="synthetic", scenes="", scene={}, wrap=(), columns=(), reader=(), subset=""
        )
    if options.eval.scenes:
        env = dataclasses.replace(env, scenes=options.eval.scenes, scene={})
    return dataclasses.replace(env, data=options.eval.data or env.data, only=options.eval.only)


def shares_tasks(train: TaskSet, held_out: TaskSet) -> bool:
    """Whether the first, the middle and the last task of a set are also in the set that is trained on."""
    try:
        for index in {0, len(held_out) // 2, len(held_out) - 1}:
            task = held_out[index]
            other = train[train.index_of(task.task_id)]
            if (task.question, task.choices, task.answer) != (other.question, other.choices, other.answer):
                return False
            if task.image.size != other.image.size:
                return False
    except TaskError:  # there is none of this name, or it cannot be read
        return False
    return True


def with_view(options: EnvOptions, pixels: int) -> EnvOptions:
    """Put the size at which a policy sees large images for "auto".

    Args:
        options: The environment.
        pixels: Of the policy's image processor.

    Returns:
        The options, with no view for a judge that does not measure detail, or whose own options have one.

    Raises:
        ConfigError: There is no such judge.
    """
    if options.view_pixels != "auto":
        return options
    judge = get_judge(options.judge)
    if '"view_pixels"' in options.judge:
        return dataclasses.replace(options, view_pixels=0)
    try:
        for_view(judge, pixels)
    except ConfigError:  # it does not measure detail
        pixels = 0
    return dataclasses.replace(options, view_pixels=pixels)


def make_env(
    options: EnvOptions,
    split: str,
    reward: str = "tapo",
    weights: Mapping[str, float] | None = None,
    scene: Mapping[str, Any] | None = None,
    dialect: Dialect | None = None,
    named: str = "env.id",
) -> gym.Env[Any, Any]:
    """Make one environment.

    Args:
        options: Which one; a view of "auto" counts as none, see `with_view`.
        split: `"train"`, `"val"` or `"test"`.
        reward: Reward table.
        weights: Weights of terms that differ from the table's.
        scene: Options of the generated scenes, instead of those of `options`.
        dialect: Instead of that of `options`.
        named: The option that gives the id.

    Raises:
        ConfigError: The id is not registered, its module cannot be imported, or its environment takes other options.
        TaskError: The data have rows that cannot be used.
    """
    try:
        return gym.make(
            options.id,
            disable_env_checker=True,
            data=options.data,
            split=split,
            # A path describes its own tasks; only generated scenes take options.
            scenes=_scenes(options, scene) if options.data in ("synthetic", "auto") else None,
            **_given(options),
            dialect=dialect or options.dialect,
            reward=reward,
            reward_weights=dict(weights or {}),
            judge=options.judge,
            view_pixels=None if options.view_pixels == "auto" else options.view_pixels or None,
            max_turns=options.max_turns,
            farm=farm_of(options),
        )
    except BadRows as error:
        raise TaskError(error.advised("--env.on-error skip")) from error
    except (gym.error.Error, ModuleNotFoundError) as error:
        raise ConfigError(f"{named} {why_not_made(options.id, error)}") from error
    except TypeError as error:
        if isinstance(error, CodevError):
            raise
        what = str(error).partition(" was raised from the environment creator")[0]
        raise ConfigError(
            f"{named} {options.id!r} does not take the options of this package's environments ({what}): give the id of "
            "one, or let its entry point pass them on."
        ) from error


def _given(options: EnvOptions) -> dict[str, Any]:
    """Return the arguments that differ from the usual; other ids may not take them, or have values of their own."""
    given = {
        "columns": columns_of(options.columns),
        "reader": reader_of(options.reader),
        "subset": options.subset,
        "only": options.only,
        "wrap": options.wrap,
        "on_error": options.on_error if options.on_error != "raise" else "",
        "scorer": options.scorer if options.scorer != "rules" else "",
    }
    return {name: value for name, value in given.items() if value}


def farm_of(options: EnvOptions) -> FarmOptions | None:
    """Return the farm of an environment, of which each process of the run uses its share; `None` for this machine."""
    if not options.farm:
        return None
    rank, processes = (int(os.environ.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")))
    return make_options(options.farm, share=processes, part=rank)


def _scenes(options: EnvOptions, scene: Mapping[str, Any] | None) -> dict[str, Any] | None:
    own = options.scene if scene is None else scene
    scenes = {"preset": options.scenes, **own} if options.scenes else {**own}
    return scenes or None
