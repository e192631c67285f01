"""Calls of scorers, judges and dialects from elsewhere: most that is wrong shows when an environment is made."""

from __future__ import annotations

import copy
import functools
import inspect
import logging
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

import numpy as np
from PIL import Image

from codev_env.dialects import Dialect
from codev_env.errors import CodevError, ConfigError
from codev_env.judges import AsyncJudge, Judge, ServedJudge
from codev_env.scoring import Score, Scorer, ScorerError
from codev_env.types import Code, Execution, Region, Step, StepScore, Task, Turn

logger = logging.getLogger(__name__)

_ROUNDING = 1e-6  # of a mean or a quotient
_TURNS = "Code, Answer or Invalid of codev_env.types"
_OWN = ("codev_env.", "codev_agents.", "codev_train.", "codev_eval.")


def check_scorer(scorer: Scorer) -> None:
    """Raise `ConfigError` if a scorer from elsewhere takes, or for a made-up task returns, anything else than it must.

    It takes a task and a text, and returns a `Score`.
    """
    if _from_elsewhere(scorer):
        _takes(f"scorer {_name(scorer)}", scorer, "task", "answer")
        _try("scorer", _name(scorer), functools.partial(scorer, _task(), "A"), Score)


def check_judge(judge: Judge) -> None:
    """Raise `ConfigError` if a judge from elsewhere takes, or for a made-up call returns, anything else than it must.

    A copy is tried, so that the judge itself sees only real calls. Judges that ask a server or hold more than plain
    values, such as a model or a client, are not tried: `check_score` sees their results.
    """
    if not _from_elsewhere(judge):
        return
    _named("judge", judge)
    _takes(f"judge {judge.name!r}: its method score", judge.score, "task", "step", "history")
    if not isinstance(judge, AsyncJudge | ServedJudge) and _is_plain(vars(judge)):
        score = copy.deepcopy(judge).score
        _try("judge", repr(judge.name), functools.partial(score, _task(), _step(), ()), StepScore)


def check_dialect(dialect: Dialect) -> None:
    """Raise `ConfigError` if a dialect from elsewhere has no text as system prompt, or reads a text as no turn."""
    if not _from_elsewhere(dialect):
        return
    _named("dialect", dialect)
    name = f"dialect {type(dialect).__name__!r}"
    for method, arguments, expected, what in (
        (dialect.system_prompt, (), str, "a str"),
        (dialect.parse, ("x",), Turn, _TURNS),
        (dialect.first_message, (_task(),), str, "a str"),
    ):
        called = f"{name}: {method.__name__}({', '.join(_short(argument) for argument in arguments)})"
        try:
            found = method(*arguments)
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"{called} raised {error!r}; it must return {what}.") from error
        if not isinstance(found, expected):
            raise ConfigError(f"{called} returned a {type(found).__name__} ({found!r:.60}); it must return {what}.")


def check_score(judge: Judge, score: object) -> None:
    """Raise `ConfigError` unless a judge's result is a valid `StepScore`, or `None`: there was nothing to judge."""
    if score is not None:
        _check("judge", repr(judge.name), score, StepScore)


def verdict_on(scorer: Scorer, task: Task, answer: str) -> Score:
    """Return a scorer's verdict on an answer; raises `ScorerError` if it fails, `ConfigError` for no `Score`."""
    try:
        found = scorer(task, answer)
    except CodevError:
        raise
    except Exception as error:
        raise ScorerError(f"scorer {_name(scorer)} failed on {task.task_id!r}: {error!r}") from error
    _check("scorer", _name(scorer), found, Score)
    return found


def parsed_turn(dialect: Dialect, action: str) -> Turn:
    """Return the turn that a dialect reads in a model's text; raises `ConfigError` if it fails or reads none."""
    name = f"dialect {type(dialect).__name__!r}"
    try:
        found = dialect.parse(action)
    except CodevError:
        raise
    except Exception as error:
        raise ConfigError(f"{name}: parse raised {error!r} for {action[:200]!r}; it must return {_TURNS}.") from error
    if not isinstance(found, Turn):
        raise ConfigError(f"{name}: parse returned {found!r:.60} for {action[:200]!r}; it must return {_TURNS}.")
    return found


def _is_plain(value: object) -> bool:
    """Return whether a value holds nothing but numbers, texts, scores and collections of these."""
    if isinstance(value, Mapping):
        return all(_is_plain(entry) for pair in value.items() for entry in pair)
    if isinstance(value, list | tuple | set | frozenset):
        return all(_is_plain(entry) for entry in value)
    return value is None or isinstance(value, int | float | str | StepScore)


def _from_elsewhere(found: object) -> bool:
    inner = found.func if isinstance(found, functools.partial) else found
    module = getattr(inner, "__module__", None) or type(inner).__module__
    return not module.startswith(_OWN)


def _name(scorer: object) -> str:
    return repr(getattr(scorer, "__qualname__", type(scorer).__name__))


def _short(argument: object) -> str:
    return repr(argument) if isinstance(argument, str) else type(argument).__name__.lower()


def _named(kind: str, found: Judge | Dialect) -> None:
    """Raise `ConfigError` unless an object's name is a text: records say by it how they were made."""
    if not (isinstance(found.name, str) and found.name):
        raise ConfigError(f"{kind} {type(found).__name__} has the name {found.name!r}; its name must be a text.")


def _takes(label: str, call: Callable[..., object], *names: str) -> None:
    """Raise `ConfigError` if a function cannot be called with as many arguments as there are names."""
    try:
        inspect.signature(call).bind(*names)
    except TypeError as error:
        raise ConfigError(
            f"{label} cannot be called as ({', '.join(names)}): {error}. Give it these parameters."
        ) from error
    except ValueError:  # Some functions in C have no signature.
        return


def _try(kind: str, name: str, call: Callable[[], object], expected: type) -> None:
    try:
        found = call()
    except ConfigError:
        raise
    except Exception as error:  # It may need what only real tasks have.
        logger.debug("%s %s failed on a made-up task: %r", kind, name, error)
        return
    _check(kind, name, found, expected)


def _check(kind: str, name: str, found: Any, expected: type) -> None:
    if not isinstance(found, expected):
        example = "Score(correct=True)" if expected is Score else "StepScore(0.5, 'why')"
        raise ConfigError(
            f"{kind} {name} returned a {type(found).__name__} ({found!r:.60}); it must return a "
            f"{expected.__module__.split('.scorer')[0]}.{expected.__name__}, for example {example}."
        )
    _check_values(f"{kind} {name}", found)


def _check_values(label: str, found: Any) -> None:
    if isinstance(found, StepScore):
        if not (found.value is None or _is_within(found.value, -1)):
            raise ConfigError(
                f"{label} returned a StepScore of the value {found.value!r}; it must be a number from -1 to 1, "
                "or None if there was nothing to judge."
            )
    elif not isinstance(found.correct, bool | np.bool_):
        raise ConfigError(
            f"{label} returned a Score with correct={found.correct!r:.60}; it must be True or False. Parts of a "
            "point are its share, from 0 to 1."
        )
    elif not (found.share is None or _is_within(found.share, 0)):
        raise ConfigError(f"{label} returned a Score with share={found.share!r:.60}; it must be from 0 to 1.")


def _is_within(value: object, lowest: int) -> bool:
    return isinstance(value, Real) and lowest - _ROUNDING <= float(value) <= 1 + _ROUNDING


def _task() -> Task:
    image = Image.new("RGB", (64, 64), "grey")
    return Task("trial", (image,), "Which letter is it?", "A", choices=("A", "B"), targets=((16, 16, 48, 48),))


def _step() -> Step:
    code = "show(image)"
    region = Region(((0, 0), (64, 0), (64, 64), (0, 64)), (0, 0, 64, 64), 0, "rot0", 1.0, 1.0, "probe")
    image = Image.new("RGB", (64, 64), "grey")
    return Step(f"<code>{code}</code>", Code(code), Execution(images=(image,), names=("",)), (region,))
