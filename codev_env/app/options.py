"""Option classes: frozen dataclasses whose fields have a range and a docstring, checked by pydantic.

Modules with option classes import `Field` and the validators from here: without pydantic they are those of `plain`.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
)

from codev_env.errors import ConfigError

if TYPE_CHECKING or find_spec("pydantic") is not None:
    import pydantic.dataclasses
    from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator
    from pydantic.fields import FieldInfo

    _CHECKED = pydantic.dataclasses.dataclass(
        frozen=True,
        kw_only=True,
        config=pydantic.ConfigDict(
            extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False, coerce_numbers_to_str=True
        ),
    )
else:
    from codev_env.app.plain import (
        AfterValidator,
        Field,
        FieldInfo,
        ValidationError,
        field_validator,
        model_validator,
    )
    from codev_env.app.plain import dataclass as _CHECKED

__all__ = [
    "Field",
    "Option",
    "OptionError",
    "POSITIONAL",
    "Problem",
    "ValueRefused",
    "ZeroOrAboveOne",
    "build",
    "field_validator",
    "model_validator",
    "option_class",
    "options_of",
    "words_of",
]

Kind = TypeVar("Kind")
POSITIONAL = "positional"
"""Marks a field that is a positional argument: `Annotated[Path, POSITIONAL]`."""
_LIMITS = ("greater_than", "greater_than_equal", "less_than", "less_than_equal")
_OUT_OF_RANGE = (*_LIMITS, "finite_number", "too_short", "value_error")
_TYPES = {
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "bool_parsing": "True or False",
}
_WRONG_COUNT = ("missing", "too_long", "tuple_type")
_NUMBERS = {2: "two", 3: "three", 4: "four"}
_METAVARS = {bool: "True|False", int: "INT", float: "FLOAT", Path: "PATH"}


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
    made: Any = _CHECKED(kind)
    for base in made.__mro__[1:]:  # pydantic reads the docstrings of the class itself alone
        for name, field in getattr(base, "__pydantic_fields__", {}).items():
            own = made.__pydantic_fields__[name]
            own.description = own.description or field.description
    return cast(type[Kind], made)


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
        """As it is typed, for example `--env.max-turns`; a positional argument in capitals.

        A word of Python gets an underscore as a field (`as_`), and none here (`--as`).
        """
        return self.name.upper() if self.positional else f"--{self.name.rstrip('_').replace('_', '-')}"

    @property
    def about(self) -> str:
        """Its docstring, in one line."""
        return " ".join((self.field.description or "").split())

    @property
    def kind(self) -> Any:
        """Its type; without `None` for an option that may be left out."""
        if get_origin(self.field.annotation) not in (Union, types.UnionType):
            return self.field.annotation
        first = next(kind for kind in get_args(self.field.annotation) if kind is not types.NoneType)
        return get_args(first)[0] if get_origin(first) is Annotated else first

    @property
    def words(self) -> tuple[str, ...]:
        """Words that it takes beside values of a plain type, for example `auto` beside a number."""
        kinds = get_args(self.field.annotation) if self.kind in _METAVARS else ()
        return tuple(str(word) for kind in kinds if get_origin(kind) is Literal for word in get_args(kind))

    @property
    def many(self) -> bool:
        """Whether it takes several words."""
        return get_origin(self.kind) in (tuple, dict)

    @property
    def fixed(self) -> tuple[Any, ...]:
        """The type of each value, if it takes a fixed number of several; else empty."""
        kinds = get_args(self.kind) if get_origin(self.kind) is tuple else ()
        return () if Ellipsis in kinds else kinds

    @property
    def metavar(self) -> str:
        """Its values in a usage text, for example `INT`."""
        if get_origin(self.kind) is dict:
            return "NAME VALUE"
        inner = [kind for kind in get_args(self.kind) if kind is not Ellipsis] if self.many else [self.kind]
        return "|".join([" ".join(map(_metavar, inner)), *self.words])

    @property
    def range(self) -> str:
        """Limits of its value, for example `"at least 0 and at most 1"`; empty if it has none."""
        words = {"Ge": "at least {0.ge}", "Gt": "above {0.gt}", "Le": "at most {0.le}", "Lt": "below {0.lt}"}
        limits = {type(limit).__name__: limit for limit in self.field.metadata}
        return " and ".join(text.format(limits[name]) for name, text in words.items() if name in limits)

    @property
    def default(self) -> str:
        """Its default as it would be typed; empty if it is required or its default is empty."""
        if self.field.is_required():
            return ""
        value = self.field.get_default(call_default_factory=True, validated_data={})
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


def build(kind: type[Kind], values: Mapping[str, Any]) -> Kind:
    """Make the options of a class from values by dotted name; raises `OptionError` for all bad values."""
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
        found = error.errors(include_url=False)
        seen = {one["loc"] for one in found}
        # A value that is neither of "int" and "float" gives an error for each: the one that allows more is reported.
        found = [one for one in found if one["loc"][-1:] != ("int",) or (*one["loc"][:-1], "float") not in seen]
        problems = [_problem(one, options) for one in found]
        raise OptionError(list({problem.name: problem for problem in reversed(problems)}.values())[::-1]) from None


def words_of(value: Any) -> str:
    """Write a value as it would be typed."""
    if isinstance(value, Mapping):
        return " ".join(f"{name} {each}" for name, each in value.items())
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _problem(error: Any, options: Mapping[str, Option]) -> Problem:
    place, value, reason = [str(part) for part in error["loc"]], error["input"], error.get("ctx", {}).get("error")
    if isinstance(reason, ValueRefused):
        place, value = [*place, *reason.option.split(".")], reason.value
    name = next((n for end in range(len(place), 0, -1) if (n := ".".join(place[:end])) in options), "")
    is_usage = error["type"] not in _OUT_OF_RANGE
    allowed = str(reason) if reason else _TYPES.get(error["type"]) or error["msg"].removeprefix("Input should be ")
    if error["type"] == "literal_error":  # an empty choice is the default, which nobody types
        allowed = allowed.removeprefix("'', ").removeprefix("'' or ")
    if not name:
        return Problem(".".join(place), allowed, is_usage)
    if error["type"] == "missing" and name == ".".join(place):
        return Problem(name, f"{options[name].flag} is missing.", is_usage)
    if error["type"] in _WRONG_COUNT and (kinds := options[name].fixed):
        # Pydantic names the place that is missing; without it "Field required" would be said of one value.
        allowed = f"{_NUMBERS.get(len(kinds), len(kinds))} values: {options[name].metavar}"
    if error["type"] in _LIMITS:
        allowed = options[name].range or allowed
    if error["type"] == "too_short":
        allowed = "at least one value"
    allowed = " or ".join([allowed, *options[name].words])
    return Problem(name, f"{options[name].flag} is {words_of(value) or 'empty'}; it must be {allowed}.", is_usage)


def _metavar(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "{" + ",".join(str(word) for word in get_args(kind) if word != "") + "}"
    return _METAVARS.get(kind, "TEXT")
