"""Closed libraries: of their objects programs get the attributes that a table lists, and of their classes stand-ins.

pandas and scikit-learn hold too much that reads files, names functions by text or trusts the arrays it was given. Here
everything is refused that is not listed; arguments are values of Python's and NumPy's own types, and arrays copies,
since a program could change its own during the call or after it.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from codev_env.sandbox.language.classes import SandboxClass
from codev_env.sandbox.language.refusals import RefusedAttribute, RefusedCall

NO_DEFAULT: Any = object()
"""Stands for the default of `getattr` that was not given."""
_METHODS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.MethodDescriptorType)
_PLAIN: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (tuple, lambda value: tuple.__getitem__(value, slice(None))),
    (list, list.copy),
    (dict, dict.copy),
)
ATOMS = frozenset((str, int, float, bool, complex, bytes, type(None)))
"""Types of values that never change."""


class ClosedLibrary:
    """The parts of one library that programs may use.

    Args:
        listed: Attributes by the name of a class; a class that is missing has none.
        refused: By the name of a class and attribute: why, or what to use instead.
        hints: By attribute: what to use instead.
        check: Called with each argument of each call; raises if it is not allowed.
        dropped: Arguments that are left out of all calls.
        depth: Of the lists and dicts in arguments, how many levels are copied.
        labels: Names that an object offers as attributes besides, such as the columns of a data frame.
    """

    def __init__(
        self,
        listed: Mapping[str, set[str]],
        refused: Mapping[str, Mapping[str, set[str]]],
        hints: Mapping[str, str],
        check: Callable[[Any], None] = lambda _value: None,
        dropped: tuple[str, ...] = (),
        depth: int = 2,
        labels: Callable[[Any], Any] = lambda _obj: (),
    ) -> None:
        self.listed = listed
        self.reasons = {
            (kind, name): why for kind, reasons in refused.items() for why, names in reasons.items() for name in names
        }
        self.hints = hints
        self.check = check
        self.dropped = dropped
        self.depth = depth
        self.labels = labels

    def why_not(self, kind: type, name: str) -> str | None:
        """Why programs may not read this attribute of the class and its instances; `None` if they may."""
        allowed = False
        for base in kind.__mro__:
            if library_of(base) is not self:
                allowed = allowed or (base is not object and name in vars(base))
                continue
            if (base.__qualname__, name) in self.reasons:
                return self.hints.get(name) or self.reasons[base.__qualname__, name]
            allowed = allowed or name in self.listed.get(base.__qualname__, ())
        return None if allowed else self.hints.get(name, "nobody has reviewed it")

    def guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function or method of the library for programs."""

        def call(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = self.arguments(args, kwargs)
            return given(function(*args, **kwargs))

        for name in ("__name__", "__qualname__", "__doc__"):
            setattr(call, name, getattr(function, name, None) or "function")
        return call

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments as the library gets them."""
        kept = {key: plain(value, self.depth) for key, value in kwargs.items() if key not in self.dropped}
        plain_args = tuple(plain(value, self.depth) for value in args)
        for value in (*plain_args, *kept.values()):
            self.check(value)
        return plain_args, kept


LIBRARIES: dict[str, ClosedLibrary] = {}
"""By import name."""

_REAL: dict[type, type] = {}
_STAND_INS: dict[type, type] = {}
_MAKE: dict[type, Callable[..., Any]] = {}


class _StandIn(type):
    """The metaclass of stand-ins, which programs use as the classes themselves."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _REAL[cls])

    def __subclasscheck__(cls, subclass: Any) -> bool:
        return issubclass(_REAL.get(subclass, subclass), _REAL[cls])

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return _MAKE[cls](*args, **kwargs)


def close(root: str, library: ClosedLibrary) -> None:
    """Close a library, by its import name."""
    LIBRARIES[root] = library


def library_of(kind: type) -> ClosedLibrary | None:
    """The closed library that a class is of."""
    home = getattr(kind, "__module__", None)
    return LIBRARIES.get(home.partition(".")[0]) if isinstance(home, str) else None


def offer(cls: type, make: Callable[..., Any] | None = None) -> type:
    """The stand-in of a class, whose call is `make`, or that of the class with checked arguments."""
    library = library_of(cls)
    assert library is not None
    stand_in = stand_in_of(cls)
    _MAKE[stand_in] = library.guarded(make or cls)
    return stand_in


def stand_in_of(cls: type) -> type:
    """The stand-in of a class of a closed library, which cannot be called unless it was offered."""
    if cls not in _STAND_INS:
        names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
        stand_in = _StandIn(cls.__name__, (), names)
        _STAND_INS[cls], _REAL[stand_in] = stand_in, cls

        def refuse(*_args: Any, **_kwargs: Any) -> Any:
            raise RefusedCall(f"{cls.__name__}() is not available here: use the functions of the library.")

        _MAKE[stand_in] = refuse
    return _STAND_INS[cls]


def real(obj: Any) -> Any:
    """The class that a stand-in stands for; any other object as it is."""
    return _REAL[obj] if type(obj) is _StandIn else obj


def given(value: Any) -> Any:
    """A value of a closed library as programs get it."""
    if type(value) is np.ndarray:
        return value.view()  # whose shape a program may set
    if type(value) is tuple:
        return tuple(map(given, value))
    if isinstance(value, type) and not issubclass(value, BaseException) and library_of(value):
        return stand_in_of(value)
    return value


def plain(value: Any, depth: int = 2) -> Any:
    """An argument that cannot change any more: of Python's own type, and an array of its own."""
    if type(value) in ATOMS:
        return value
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(type(value), SandboxClass):
        for kind, convert in _PLAIN:
            if isinstance(value, kind):
                return plain(convert(value), depth)
        return value
    if depth and type(value) in (list, tuple):
        return type(value)(plain(part, depth - 1) for part in value)
    if depth and type(value) is dict:
        return {plain(key, 0): plain(part, depth - 1) for key, part in value.items()}
    return value


def read(obj: Any, name: str, default: Any) -> Any:
    """Read an attribute of an object or class, as programs may; `LookupError` if it is of no closed library.

    Raises:
        LookupError: The object is of no closed library.
        AttributeError: There is no such attribute, or it is refused.
    """
    kind = obj if isinstance(obj, type) else type(obj)
    library = library_of(kind)
    if library is None or issubclass(kind, BaseException):
        raise LookupError
    if kind is not obj and isinstance(obj, tuple) and name in getattr(kind, "_fields", ()):
        return getattr(obj, name)
    why = library.why_not(kind, name)
    if why is None:
        try:
            value = getattr(obj, name)
        except AttributeError:
            if default is NO_DEFAULT:
                raise
            return default
        if _is_method(value):
            return library.guarded(value)
        if isinstance(value, np.ndarray) and value.flags.writeable or type(value) in (list, dict):
            return value.copy()  # what it is of trusts that it stays as it is
        return given(value)
    if getattr(kind, name, NO_DEFAULT) is NO_DEFAULT and (kind is obj or name not in getattr(obj, "__dict__", ())):
        if kind is not obj and name in library.labels(obj):
            return given(obj[name])
        if default is not NO_DEFAULT:
            return default
        raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}")
    raise RefusedAttribute(f"the attribute {name!r} of {kind.__name__} is not available here: {why}.")


def _is_method(value: Any) -> bool:
    kind = type(value).__name__
    return isinstance(value, _METHODS) or isinstance(value, functools.partial) or "cython_function" in kind
