"""Option classes without pydantic, for commands that work in a core install: the part of pydantic that they need.

It knows values of the types `str`, `int`, `float`, `bool` and `Path`, `Literal`, `| None`, tuples and mappings of
these, and ranges. A class with validators of its own needs pydantic: making one says so.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

Kind = TypeVar("Kind")
_REQUIRED = object()
_BOOLS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class ValidationError(ValueError):
    """Values that cannot be used."""

    def __init__(self, found: list[dict[str, Any]]) -> None:
        super().__init__(str(found))
        self._found = found

    def errors(self, include_url: bool = False) -> list[dict[str, Any]]:
        """Return place, value, type and message of each."""
        return self._found


class _Refused(Exception):
    def __init__(self, kind: str, message: str) -> None:
        self.kind, self.message = kind, message


@dataclasses.dataclass(frozen=True)
class _Ge:
    ge: float


@dataclasses.dataclass(frozen=True)
class _Gt:
    gt: float


@dataclasses.dataclass(frozen=True)
class _Le:
    le: float


@dataclasses.dataclass(frozen=True)
class _Lt:
    lt: float


# The options show limits by the names of these classes.
_LIMITS: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], bool], str, str]] = {
    "ge": (_Ge, lambda value, limit: value >= limit, "greater_than_equal", "greater than or equal to"),
    "gt": (_Gt, lambda value, limit: value > limit, "greater_than", "greater than"),
    "le": (_Le, lambda value, limit: value <= limit, "less_than_equal", "less than or equal to"),
    "lt": (_Lt, lambda value, limit: value < limit, "less_than", "less than"),
}
for _name, (_limit, *_) in _LIMITS.items():
    typing.cast(type, _limit).__name__ = _name.capitalize()


@dataclasses.dataclass
class FieldInfo:
    """A field: its type, its limits and other marks, its default and its docstring."""

    annotation: Any = None
    metadata: list[Any] = dataclasses.field(default_factory=list)
    default: Any = _REQUIRED
    default_factory: Callable[[], Any] | None = None
    description: str | None = None
    init: bool | None = None

    def is_required(self) -> bool:
        """Whether it has no default."""
        return self.default is _REQUIRED and self.default_factory is None

    def get_default(self, **_: Any) -> Any:
        """Return the default."""
        return self.default_factory() if self.default_factory is not None else self.default


@dataclasses.dataclass(frozen=True)
class AfterValidator:
    """A check of one value, as in pydantic."""

    func: Callable[[Any], Any]


def Field(  # noqa: N802 - pydantic's name
    default: Any = _REQUIRED,
    *,
    default_factory: Callable[[], Any] | None = None,
    init: bool | None = None,
    **limits: Any,
) -> Any:
    """Return a field with a default and limits, as in pydantic; limits that are not known here need pydantic."""
    if limits.keys() - _LIMITS.keys():
        return FieldInfo(metadata=[_NEEDS])
    return FieldInfo(
        None, [_LIMITS[name][0](value) for name, value in limits.items()], default, default_factory, None, init
    )


def _validator(*_: Any, **__: Any) -> Callable[[Any], Any]:
    def mark(function: Any) -> Any:
        getattr(function, "__func__", function).needs_pydantic = True
        return function

    return mark


field_validator = model_validator = _validator
_NEEDS = object()


def dataclass(kind: type[Kind]) -> type[Kind]:
    """Make a frozen dataclass of keyword arguments that converts and checks its values."""
    hints = typing.get_type_hints(kind, include_extras=True)
    texts = dict(text for base in reversed(kind.__mro__) for text in _docstrings(base))
    fields = {name: _field(hint, vars_of(kind, name), texts.get(name)) for name, hint in hints.items()}
    for name, field in fields.items():
        if name in vars(kind).get("__annotations__", {}):
            value: Any = dataclasses.field(default=None, init=field.init is not False)
            setattr(kind, name, value)
    made = dataclasses.dataclass(frozen=True, kw_only=True)(kind)
    attributes = [vars(base)[name] for base in made.__mro__ for name in vars(base)]
    whole = not any(getattr(getattr(one, "__func__", one), "needs_pydantic", False) for one in attributes)
    whole = whole and not any(_NEEDS in field.metadata for field in fields.values())

    def make(self: Any, **given: Any) -> None:
        if not whole:
            raise ModuleNotFoundError("No module named 'pydantic'", name="pydantic")
        found: list[dict[str, Any]] = [
            _error((name,), value, _UNKNOWN) for name, value in given.items() if name not in fields
        ]
        for name, field in fields.items():
            try:
                if name not in given and field.is_required():
                    raise _Refused("missing", "Field required")
                value = _checked(field, given[name]) if name in given else field.get_default()
                object.__setattr__(self, name, value)
            except _Refused as refused:
                found.append(_error((name,), given.get(name), refused))
        if found:
            raise ValidationError(found)

    typing.cast(Any, made).__init__ = make
    typing.cast(Any, made).__pydantic_fields__ = fields
    return made


_UNKNOWN = _Refused("unexpected_keyword_argument", "Unexpected keyword argument")


def vars_of(kind: type, name: str) -> Any:
    """Return the default of a field as its class, or a class below it, states it."""
    for base in kind.__mro__:
        if name in getattr(base, "__pydantic_fields__", {}) and base is not kind:
            return vars(base)["__pydantic_fields__"][name]
        if name in vars(base):
            return vars(base)[name]
    return _REQUIRED


def _field(hint: Any, default: Any, text: str | None) -> FieldInfo:
    marks: list[Any] = []
    while get_origin(hint) is Annotated:
        hint, *more = get_args(hint)
        marks += [each for mark in more for each in (mark.metadata if isinstance(mark, FieldInfo) else [mark])]
    if isinstance(default, FieldInfo):
        marks += [mark for mark in default.metadata if mark not in marks]
        return dataclasses.replace(default, annotation=hint, metadata=marks, description=text)
    return FieldInfo(hint, marks, default, None, text)


def _docstrings(kind: type) -> Iterator[tuple[str, str]]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError):
        return
    body = typing.cast(ast.ClassDef, tree.body[0]).body
    for before, after in zip(body, body[1:], strict=False):
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name) and isinstance(after, ast.Expr):
            if isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
                yield before.target.id, inspect.cleandoc(after.value.value)


def _error(place: tuple[str, ...], value: Any, refused: _Refused) -> dict[str, Any]:
    return {"loc": place, "input": value, "type": refused.kind, "msg": f"Input should be {refused.message}", "ctx": {}}


def _checked(field: FieldInfo, value: Any) -> Any:
    made = _converted(field.annotation, value)
    _in_range(field.metadata, made)
    return made


def _in_range(marks: list[Any], value: Any) -> None:
    for name, (_, fits, kind, words) in _LIMITS.items():
        for limit in (getattr(mark, name) for mark in marks if hasattr(mark, name)):
            if value is not None and not fits(value, limit):
                raise _Refused(kind, f"{words} {limit}")


def _converted(kind: Any, value: Any) -> Any:
    """Return a value of a type, from what a command line or a caller gives for it."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        field = _field(kind, _REQUIRED, None)
        return _checked(field, value)
    if origin in (Union, types.UnionType):
        return _one_of(inner, value)
    if origin is Literal:
        for allowed in inner:
            if str(allowed) == str(value):
                return allowed
        *first, last = map(repr, inner)
        raise _Refused("literal_error", " or ".join(filter(None, [", ".join(first), last])))
    if origin is tuple:
        given = list(value) if isinstance(value, list | tuple) else [value]
        kinds = inner[:1] * len(given) if inner[-1:] == (Ellipsis,) else inner
        if len(kinds) != len(given):
            raise _Refused("tuple_type", f"{len(kinds)} values")
        return tuple(_converted(each, one) for each, one in zip(kinds, given, strict=True))
    if origin is dict and isinstance(value, Mapping):
        return {_converted(inner[0], name): _converted(inner[1], each) for name, each in value.items()}
    return _plain(kind, value)


def _one_of(kinds: tuple[Any, ...], value: Any) -> Any:
    if value is None and types.NoneType in kinds:
        return None
    refused = None
    for kind in (each for each in kinds if each is not types.NoneType):
        try:
            return _converted(kind, value)
        except _Refused as error:
            refused = refused or error
    assert refused is not None
    raise refused


def _plain(kind: Any, value: Any) -> Any:
    if kind is bool:
        if isinstance(value, bool) or str(value).lower() in _BOOLS:
            return value if isinstance(value, bool) else _BOOLS[str(value).lower()]
        raise _Refused("bool_parsing", "True or False")
    if kind in (int, float):
        try:
            made = kind(value) if not isinstance(value, bool) else kind("")
        except (TypeError, ValueError, OverflowError):
            raise _Refused(f"{kind.__name__}_parsing", "a number") from None
        if isinstance(value, float) and made != value and not math.isnan(value):
            raise _Refused("int_from_float", "a whole number")
        if not math.isfinite(made):
            raise _Refused("finite_number", "a finite number")
        return made
    if kind is str and isinstance(value, str | int | float):
        return str(value)
    if kind is Path and isinstance(value, str | Path):
        return Path(value)
    if kind is Any:
        return value
    raise _Refused("type_error", getattr(kind, "__name__", str(kind)))
