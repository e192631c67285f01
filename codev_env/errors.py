"""The errors that codev_env raises. Each message names what was seen and what to do about it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # sandbox workers, which hold nothing that is trusted, have these errors
    from codev_env.usage import EpisodeUsage


class CodevError(Exception):
    """Base of all errors of this project that a user can act on.

    Attributes:
        usage: What was taken before it: by the call of a judge or scorer that failed, or by the episode that it ended;
            `None` if nothing.
    """

    usage: EpisodeUsage | None = None


class ConfigError(CodevError, ValueError):
    """An option, name or value that cannot be used."""


class ArgumentError(ConfigError, TypeError):
    """A keyword argument that a function does not have."""

    def __init__(self, message: str) -> None:
        # Gymnasium raises it again with the values of all arguments behind it, a whole data set among them.
        super().__init__(message.partition(" was raised from the environment creator for ")[0])


class UsageError(ConfigError):
    """A command line without a command that exists; `codev` then exits with 2."""


class TaskError(CodevError, ValueError):
    """A data set, a row or an image that cannot be read or does not make sense."""


class BadRows(TaskError):
    """A data set with rows that cannot be used, where they were not to be left out.

    Attributes:
        reason: The file, the first such row and the number of the others, without advice.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.advised("on_error='skip'")

    def advised(self, option: str) -> str:
        """Return the message with the option that leaves such rows out, as its reader has it."""
        return f"{self.reason} Use {option} to leave them out."


class FormatError(TaskError):
    """Data without the files or columns of the format that was asked for."""


class AgentError(CodevError, RuntimeError):
    """An agent cannot act, for example because its server is gone."""


class ContextFull(AgentError):
    """The conversation no longer fits into the model's context: the episode cannot go on, however often it is tried."""


class SandboxError(CodevError, RuntimeError):
    """The sandbox itself cannot work (never: a model's program failed, which is an `Execution`)."""


class NoRoom(SandboxError):
    """A sandbox session has no memory left for what is to be put there."""


class ViewLost(SandboxError):
    """A program could not be run in a view, twice, through no fault of its own."""


class JudgeError(CodevError, RuntimeError):
    """A judge could not give a score. It is never turned into a score of 0."""


class FarmError(CodevError, RuntimeError):
    """A farm of nodes cannot work: none is left, or one failed in a way that trying again does not mend."""


class EpisodeLost(FarmError):
    """The node that ran an episode is gone, and the state of its programs with it: the episode has to start again."""


class TrajectoryError(CodevError, ValueError):
    """A trajectory file that cannot be read back."""


def unstopped(error: BaseException) -> str:
    """Return an error's text without a full stop at its end, for a sentence that goes on after it."""
    return str(error).rstrip().removesuffix(".")


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, at most 200 characters, without a full stop; or the error's type."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")[:200]


def nearest_name(name: str, known: Iterable[str], cutoff: float | None = None) -> str | None:
    """Return the known name that a misspelt one stands for, upper and lower case alike; `None` if none is near.

    Args:
        name: The name that was given.
        known: The names that exist.
        cutoff: Least similarity, from 0 to 1; by default 0.6, and 0.5 for the names of up to four characters.
    """
    folded = {other.casefold(): other for other in known}
    given = name.casefold()
    begun = [other for other in folded if len(given) > 2 and other.startswith(given)]
    if cutoff is None:
        cutoff = 0.5 if begun or len(given) <= 4 else 0.6
    near = difflib.get_close_matches(given, begun or folded, n=1, cutoff=cutoff)
    return folded[near[0]] if near else None


def unknown(kind: str, name: object, known: Iterable[str], error: type[ConfigError] = ConfigError) -> ConfigError:
    """Make the error for a name that is not in a registry.

    Args:
        kind: The kind of thing that is looked up, for example `"reward"`.
        name: The name that was asked for.
        known: The names that exist.
        error: The class of the error.

    Returns:
        An error that names the nearest known name and lists them all.
    """
    names = sorted(known)
    near = nearest_name(str(name), names)
    hint = f" Did you mean {near!r}?" if near else ""
    parts = re.split(r"[,;\s]+", str(name).strip())
    if len(parts) > 1 and set(parts) <= set(names):
        hint = f" Give each name as a word or an entry of its own: {' '.join(parts)}."
    return error(f"unknown {kind} {name!r}.{hint} Known: {', '.join(names) or 'none'}.")


def unexpected(word: str, flags: Iterable[str], prog: str) -> UsageError:
    """Make the error for a word of a command line that its command does not know.

    Args:
        word: The word, such as `--stesp=3`.
        flags: The options of the command.
        prog: The command as users type it, such as `codev train`.

    Returns:
        An error that names the nearest option: one of a group by its last name, too (`--lr` for `--optimizer.lr`).
    """
    if not word.startswith("--"):
        return UsageError(f"unexpected argument {word!r}; `{prog} --help` shows the options.")
    flag, known = word.partition("=")[0], list(flags)
    near = next((name for name in known if name.endswith(f".{flag[2:]}")), None) or nearest_name(flag, known)
    hint = f" Did you mean {near}?" if near else ""
    return UsageError(f"unknown option {flag}.{hint} `{prog} --help` shows all.")
