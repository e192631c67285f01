"""Checks of a run before anything is started or written that need more than its values: names, folders, judges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from codev_env.app.options import OptionError, Problem
from codev_env.errors import CodevError
from codev_env.judges import ServedJudge, get_judge
from codev_train.learn.credit import get_credit
from codev_train.learn.curriculum import get_curriculum
from codev_train.learn.loss import check_loss
from codev_train.run.environments import make_env, make_eval_env, make_train_env
from codev_train.run.model_size import is_here
from codev_train.run.options import SFTOptions, TrainOptions


def check(options: TrainOptions, processes: int = 1) -> None:
    """Check names and folders, and that the environments can be made.

    Args:
        options: The options of `codev train`.
        processes: How many processes share each update.

    Raises:
        ConfigError: Options that cannot be used; the message names each, its value and what is allowed.
        TaskError: Data that cannot be read.
    """
    _raise(list(find_problems(options, processes)))
    for make in (make_train_env, make_eval_env):
        make(options).close()


def check_judge(options: TrainOptions) -> None:
    """Ask the judge's server, if the judge has one, whether it is there; raises `JudgeError` if it is not."""
    judge = get_judge(options.env.judge)
    if isinstance(judge, ServedJudge):
        judge.ping()


def check_sft(options: SFTOptions) -> None:
    """Check the options of `codev sft` likewise; raises `ConfigError` and `TaskError`."""
    problems = list(_model_problems(options.model))
    if options.trajectories and not Path(options.trajectories).is_dir():
        problems.append(_problem("trajectories", options.trajectories, "a folder that exists"))
    _raise(problems)
    make_env(options.env, "train").close()


def find_problems(options: TrainOptions, processes: int = 1) -> Iterator[Problem]:
    """Yield what is wrong with names, folders and the number of processes."""
    yield from _model_problems(options.model)
    rollouts = options.prompts // processes * options.group
    if options.prompts % processes:
        yield _problem("prompts", options.prompts, f"a multiple of the {processes} processes")
    if options.minibatches > rollouts:
        yield _problem("minibatches", options.minibatches, f"at most the {rollouts} rollouts")
    if options.engine == "vllm-server" and options.vllm.folder and not Path(options.vllm.folder).is_dir():
        yield _problem("vllm.folder", options.vllm.folder, "a folder that exists")
    for find, option in ((get_curriculum, "curriculum"), (get_credit, "credit"), (check_loss, "loss")):
        try:
            find(getattr(options, option))
        except CodevError as error:
            yield Problem(option, f"--{option}: {error}")


def _model_problems(model: str) -> Iterator[Problem]:
    """Report a missing folder before a hub is asked for its name."""
    path = Path(model)
    if not model or path.exists():
        return
    if path.is_absolute() or model.startswith((".", "~")):
        yield Problem("model", f"--model {model}: there is no such folder.")
    elif len(path.parts) > 1 and Path(path.parts[0]).is_dir() and not is_here(model):
        inside = Path(*path.parts[1:])
        text = (
            f"--model {model}: the folder {path.parts[0]} holds no {inside}. If a model of the hub is meant, start it "
            "from another folder."
        )
        yield Problem("model", text)


def _problem(name: str, value: object, allowed: str) -> Problem:
    return Problem(name, f"--{name} is {value}; it must be {allowed}.")


def _raise(problems: Sequence[Problem]) -> None:
    if problems:
        raise OptionError(problems)
