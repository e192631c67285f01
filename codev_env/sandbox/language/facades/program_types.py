"""Standard classes that programs may derive from, each with a metaclass that extends the sandbox's."""

from __future__ import annotations

import abc
import collections
import enum
import types
import typing
from typing import Any

from codev_env.sandbox.language.classes import SandboxClass, allow_bases, check_members
from codev_env.sandbox.language.refusals import RefusedCall

allow_bases(enum.Enum, enum.IntEnum, enum.StrEnum, enum.Flag, enum.IntFlag, typing.Generic)

_MODULE = "__main__"
"""That of all classes of a program: the sandbox knows those of libraries by theirs."""


class _EnumClass(SandboxClass, enum.EnumType):
    """The metaclass of enumerations; `Colour("red green")` makes no member with double underscores either."""

    def _create_(cls, class_name: str, names: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(names, str):
            names = names.replace(",", " ").split()
        elif not isinstance(names, dict):
            names = list(names)
        given = [name if isinstance(name, str) else name[0] for name in names]
        for name in given:
            if type(name) is not str or not name.isidentifier() or name.startswith("__"):
                raise RefusedCall(f"the name {name!r} is none of a member: choose a plain one.")
        return super()._create_(class_name, names, *args, **{**kwargs, "module": _MODULE})  # type: ignore[misc]


class Enum(enum.Enum, metaclass=_EnumClass):
    """`enum.Enum`."""


class IntEnum(enum.IntEnum, metaclass=_EnumClass):
    """`enum.IntEnum`."""


class StrEnum(enum.StrEnum, metaclass=_EnumClass):
    """`enum.StrEnum`."""


class Flag(enum.Flag, metaclass=_EnumClass):
    """`enum.Flag`."""


class IntFlag(enum.IntFlag, metaclass=_EnumClass):
    """`enum.IntFlag`."""


ENUM = {
    "Enum": Enum, "IntEnum": IntEnum, "StrEnum": StrEnum, "Flag": Flag, "IntFlag": IntFlag, "auto": enum.auto,
    "unique": enum.unique,
}  # fmt: skip
"""The names in `enum`."""


class _AbstractClass(SandboxClass, abc.ABCMeta):
    """The metaclass of abstract classes."""


class ABC(metaclass=_AbstractClass):
    """`abc.ABC`."""


def _abstractmethod(function: Any) -> Any:
    """`abc.abstractmethod`, of functions of the program."""
    own = isinstance(function, types.FunctionType) and function.__code__.co_filename == "<code>"
    return (
        abc.abstractmethod(function) if own or isinstance(function, property | classmethod | staticmethod) else function
    )


ABC_NAMES = {"ABC": ABC, "abstractmethod": _abstractmethod}
"""The names in `abc`."""


class SimpleNamespace(metaclass=SandboxClass):
    """`types.SimpleNamespace`."""

    def __init__(self, **names: Any) -> None:
        for name in names:
            if type(name) is not str or name.startswith("__"):
                raise RefusedCall(f"the name {name!r} is reserved: choose one without underscores.")
        self.__dict__.update(names)

    def __repr__(self) -> str:
        return f"namespace({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SimpleNamespace) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]


def namedtuple(
    typename: str, field_names: Any, *, rename: bool = False, defaults: Any = None, module: Any = None
) -> type[tuple[Any, ...]]:
    """`collections.namedtuple`; the module is the program's."""
    return collections.namedtuple(typename, field_names, rename=rename, defaults=defaults, module=_MODULE)


class _NamedTupleClass(SandboxClass):
    """Makes a named tuple from the annotations of a class statement."""

    def __new__(mcls, name: str, bases: tuple[type, ...], members: dict[str, Any]) -> Any:
        """Make a tuple class with the fields that the class statement declares, and its methods."""
        if name == "NamedTuple" and not bases:
            return type.__new__(mcls, name, bases, members)
        check_members(members)
        declared = type.__new__(SandboxClass, name, (), dict(members))
        fields = list(getattr(declared, "__annotations__", {}))
        defaults = [members[field] for field in fields if field in members]
        plain = collections.namedtuple(name, fields, defaults=defaults)  # type: ignore[misc]
        kept = {key: value for key, value in members.items() if key not in fields}
        return type.__new__(SandboxClass, name, (plain,), {"__slots__": (), **kept})


class NamedTuple(metaclass=_NamedTupleClass):
    """`typing.NamedTuple`, as the base of a class statement."""
