"""Options of the commands as rows of a table, read from their option classes."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from codev_env.app import options
from codev_env.app.cli import load


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        flag: As it is typed, for example `--env.max-turns`; a positional argument in capitals.
        type: Its type and range.
        default: In Python; empty if the option is required.
        typed: The default as it is typed, in backticks; *empty* for none, `required` for an option without a default.
        about: Its docstring, in one line.
    """

    flag: str
    type: str
    default: str
    about: str
    typed: str


def options_of(target: str) -> list[Option]:
    """Return the options of an option class, `"module:Class"`: nested ones under dotted names, those of bases first."""
    return [_row(option) for option in options.options_of(load(target))]


def about_class(target: str) -> str:
    """Return the docstring of a class, `"module:Class"`."""
    return inspect.cleandoc(load(target).__doc__ or "")


def _row(option: options.Option) -> Option:
    field = option.field
    if field.is_required():
        default, typed = "", "required"
    else:
        default = repr(field.get_default(call_default_factory=True, validated_data={}))
        typed = f"`{option.default}`" if option.default else "*empty*"
    kind = ", ".join(filter(None, (option.metavar, option.range)))
    return Option(option.flag, kind, default, option.about, typed)
