"""Command lines made from option classes: argparse splits the words, pydantic converts and checks the values."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import shutil
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar, Union, dataclass_transform, get_args, get_origin

import annotated_types
import pydantic.dataclasses
from pydantic import AfterValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from codev_env.errors import ConfigError

Kind = TypeVar("Kind")
POSITIONAL = "positional"
"""Marks a field that is a positional argument: `Annotated[Path, POSITIONAL]`."""
_CONFIG = ConfigDict(
    extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False, coerce_numbers_to_str=True, strict=False
)
_OUT_OF_RANGE = ("finite_number", "greater_than", "greater_than_equal", "less_than", "less_than_equal", "value_error")
_NOUNS: dict[Any, tuple[str, str]] = {
    bool: ("True|False", "True or False"),
    int: ("INT", "an integer"),
    float: ("FLOAT", "a number"),
    Path: ("PATH", "a path"),
    str: ("TEXT", "text"),
}


class ValueRefused(ValueError):
    """Raised by a validator of a whole option class: the option's name in it, its value, and the values allowed."""

    def __init__(self, option: str, value: object, allowed: str) -> None:
        super().__init__(allowed)
        self.option, self.value = option, value


def _is_zero_or_above_one(value: float) -> float:
    if value != 0 and value <= 1:
        raise ValueError("above 1, or 0 for none")
    return value


ZeroOrAboveOne = Annotated[float, AfterValidator(_is_zero_or_above_one)]


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(Field, dataclasses.field))
def option_class(kind: type[Kind]) -> type[Kind]:
    """Make a class of options: a frozen dataclass that checks its values, each field with a docstring as its help."""
    made = pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=_CONFIG)(kind)
    for base in made.__mro__[1:]:  # pydantic reads the docstrings of the class itself alone
        for name, field in getattr(base, "__pydantic_fields__", {}).items():
            made.__pydantic_fields__[name].description = made.__pydantic_fields__[name].description or field.description
    return made


@dataclasses.dataclass(frozen=True)
class Option:
    """One option of a command.

    Attributes:
        name: Its field, with dots where option classes are nested, for example `"env.max_turns"`.
        field: What pydantic knows of it.
    """

    name: str
    field: FieldInfo

    @property
    def positional(self) -> bool:
        """Whether it is given by place instead of by name."""
        return POSITIONAL in self.field.metadata

    @property
    def flag(self) -> str:
        """As it is typed, for example `--env.max-turns`; a positional argument in capitals."""
        return self.name.upper() if self.positional else f"--{self.name.replace('_', '-')}"

    @property
    def about(self) -> str:
        """Its docstring, in one line."""
        return " ".join((self.field.description or "").split())

    @property
    def kind(self) -> Any:
        """Its type; without `None` for an option that may be left out."""
        rest = [kind for kind in get_args(self.field.annotation) if kind is not types.NoneType]
        return rest[0] if get_origin(self.field.annotation) in (Union, types.UnionType) else self.field.annotation

    @property
    def many(self) -> bool:
        """Whether it takes several words."""
        return get_origin(self.kind) in (tuple, dict)

    @property
    def metavar(self) -> str:
        """Its values in a usage text, for example `INT`."""
        if get_origin(self.kind) is dict:
            return "NAME VALUE"
        inner = [kind for kind in get_args(self.kind) if kind is not Ellipsis] if self.many else [self.kind]
        return " ".join(map(_metavar, inner))

    @property
    def range(self) -> str:
        """Limits of its value, for example `"from 0 to 1"`; empty where there are none."""
        limits = {
            type(limit): limit for limit in self.field.metadata if isinstance(limit, annotated_types.BaseMetadata)
        }
        words = {annotated_types.Ge: "at least {}", annotated_types.Gt: "above {}"}
        words |= {annotated_types.Le: "at most {}", annotated_types.Lt: "below {}"}
        return " and ".join(
            text.format(getattr(limits[kind], kind.__name__.lower())) for kind, text in words.items() if kind in limits
        )

    @property
    def allowed(self) -> str:
        """Which values it takes, for an error message."""
        if get_origin(self.kind) is Literal:
            return "one of " + ", ".join(map(str, get_args(self.kind)))
        kind = "names with values" if get_origin(self.kind) is dict else _NOUNS.get(self.kind, ("", self.metavar))[1]
        return f"{kind}, {self.range}" if self.range else kind

    @property
    def default(self) -> str:
        """Its default as it would be typed; empty where it must be given or is empty."""
        value = None if self.field.is_required() else self.field.get_default(call_default_factory=True)  # type: ignore[call-arg]
        return words_of(value) if value not in (None, "", (), {}) else ""


@dataclasses.dataclass(frozen=True)
class Problem:
    """A value that cannot be used: the option's name, a sentence, and whether the value is not even of its type."""

    name: str
    text: str
    is_usage: bool = False


class OptionError(ConfigError):
    """Options that cannot be used; the message names each, its value and the values allowed."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(" ".join(problem.text for problem in problems))


def options_of(kind: Any, prefix: str = "") -> Iterator[Option]:
    """Yield the options of an option class, those of nested ones under dotted names."""
    for name, field in kind.__pydantic_fields__.items():
        if dataclasses.is_dataclass(field.annotation):
            yield from options_of(field.annotation, f"{prefix}{name}.")
        elif field.init is not False:
            yield Option(f"{prefix}{name}", field)


def parse(kind: type[Kind], argv: Sequence[str], prog: str) -> Kind:
    """Return the options that a command line asks for.

    Raises:
        ConfigError: Values out of range.
        SystemExit: After `--help` (code 0), or for a command line that is not one of this command (code 2).
    """
    parser = Parser(kind, prog)
    return parser.make(parser.read(argv))


class Parser(argparse.ArgumentParser):
    """The command line of an option class.

    Args:
        kind: The option class.
        prog: The command, for example `"codev eval"`.
        about: Text of the help; the docstring of the class without.
    """

    def __init__(self, kind: type[Any], prog: str, about: str = "") -> None:
        self.kind, self.options = kind, {option.name: option for option in options_of(kind)}
        places = [option.flag for option in self.options.values() if option.positional]
        width = min(shutil.get_terminal_size((120, 24)).columns, 140) - 2
        super().__init__(
            prog=prog,
            usage=" ".join([prog, *places, "[options]"]),
            description=about or kind.__doc__,
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, 2, 34, width),
            argument_default=argparse.SUPPRESS,
            allow_abbrev=False,
        )
        groups: dict[str, Any] = {"": self}
        for option in self.options.values():
            place = option.name.rpartition(".")[0]
            if place not in groups:
                groups[place] = self.add_argument_group(f"{place} options")
            self._add(groups[place], option, flags_alone=bool(places))

    def read(self, argv: Sequence[str]) -> dict[str, Any]:
        """Return the words given for each option by its name: one, a list, or a mapping; exits as `parse` does."""
        words = [_hyphened(word) if word.startswith("--") else word for word in argv]
        found, rest = self.parse_known_args(words)
        if rest:
            self._refuse(rest[0])
        values = vars(found)
        for name in values:
            if get_origin(self.options[name].kind) is dict:
                values[name] = self._pairs(self.options[name], values[name])
        return values

    def make(self, values: Mapping[str, Any]) -> Any:
        """Return the options with these values by name, converted and checked; raises as `parse` does."""
        try:
            return build(self.kind, values)
        except OptionError as error:
            self._leave_if_usage(error)
            raise

    def examine(self, values: Mapping[str, Any]) -> tuple[Any, Sequence[Problem]]:
        """Return the options, defaults in place of values out of range, and what is wrong with these values."""
        try:
            return build(self.kind, values), ()
        except OptionError as error:
            self._leave_if_usage(error)
            bad = {problem.name for problem in error.problems}
            if not bad & values.keys():
                raise
            options, _ = self.examine({name: value for name, value in values.items() if name not in bad})
            return options, error.problems

    def error(self, message: str) -> NoReturn:
        """Print one line and leave with the exit code of a wrong command line."""
        self.exit(2, f"{self.prog}: {message}\n")

    def _leave_if_usage(self, error: OptionError) -> None:
        if any(problem.is_usage for problem in error.problems):
            self.error(str(error))

    def _add(self, group: Any, option: Option, flags_alone: bool) -> None:
        details = [f"default: {option.default}"] if option.default else []
        details += ["required"] if option.field.is_required() else []
        details += [option.range] if option.range else []
        about = option.about + (f" ({'; '.join(details)})" if details else "")
        given: dict[str, Any] = {"help": about.replace("%", "%%"), "metavar": option.metavar}
        if option.positional:
            group.add_argument(option.name, nargs="?", help=given["help"], metavar=option.flag)
        elif option.kind is bool:
            # Where arguments go by place, a word after a flag is one of them, never its value.
            value = {"action": "store_const"} if flags_alone else {"nargs": "?", "metavar": option.metavar}
            group.add_argument(option.flag, dest=option.name, const="True", help=given["help"], **value)
            no = f"--no-{option.flag[2:]}"
            group.add_argument(no, dest=option.name, action="store_const", const="False", help=argparse.SUPPRESS)
        else:
            group.add_argument(option.flag, dest=option.name, nargs="*" if option.many else None, **given)

    def _pairs(self, option: Option, words: list[str]) -> dict[str, Any]:
        if len(words) % 2:
            self.error(f"{option.flag} is {' '.join(words)}; it must be names with values.")
        return {name: _number(value) for name, value in zip(words[::2], words[1::2], strict=True)}

    def _refuse(self, word: str) -> NoReturn:
        if not word.startswith("--"):
            self.error(f"unexpected argument {word!r}; `{self.prog} --help` shows the options.")
        flag = word.partition("=")[0]
        near = difflib.get_close_matches(flag, [option.flag for option in self.options.values()], n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        self.error(f"unknown option {flag}.{hint} `{self.prog} --help` shows all.")


def build(kind: type[Kind], values: Mapping[str, Any]) -> Kind:
    """Make the options of a class from values by dotted name; raises `OptionError` that tells of all bad values."""
    nested: dict[str, Any] = {}
    for name, value in values.items():
        *places, last = name.split(".")
        inner = nested
        for place in places:
            inner = inner.setdefault(place, {})
        inner[last] = value
    try:
        return kind(**nested)
    except ValidationError as error:
        options = {option.name: option for option in options_of(kind)}
        problems = [_problem(one, options) for one in error.errors(include_url=False)]
        raise OptionError(list({problem.name: problem for problem in reversed(problems)}.values())[::-1]) from None


def words_of(value: Any) -> str:
    """Write a value as it would be typed."""
    if isinstance(value, Mapping):
        return " ".join(f"{name} {each}" for name, each in value.items())
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _problem(error: Any, options: Mapping[str, Option]) -> Problem:
    place, value = [str(part) for part in error["loc"]], error["input"]
    reason = error.get("ctx", {}).get("error")
    if isinstance(reason, ValueRefused):
        place, value = [*place, *reason.option.split(".")], reason.value
    name = next((n for end in range(len(place), 0, -1) if (n := ".".join(place[:end])) in options), "")
    if error["type"] == "missing" and name == ".".join(place):
        return Problem(name, f"{options[name].flag} is missing.", True)
    if not name:
        return Problem(".".join(place), error["msg"].removeprefix("Value error, "), error["type"] != "value_error")
    option, usage = options[name], error["type"] not in _OUT_OF_RANGE
    if error["type"] == "value_error":
        allowed = str(reason)
    else:
        allowed = "a finite number" if error["type"] == "finite_number" else option.allowed if usage else option.range
    return Problem(name, f"{option.flag} is {words_of(value)}; it must be {allowed}.", usage)


def _metavar(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "{" + ",".join(map(str, get_args(kind))) + "}"
    return _NOUNS.get(kind, ("TEXT", ""))[0]


def _hyphened(word: str) -> str:
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
