"""Modules as programs see them: a fixed set of names, without access to the real module."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

import numpy as np

_NUMBERS = (bool, int, float, complex, np.generic)
_OURS = __name__.rpartition(".")[0].rpartition(".")[0]


class Facade:
    """Holds the curated names of one module as plain attributes; has no `__name__` and no reference to the module."""

    def __init__(self, label: str, names: Mapping[str, Any], hints: Mapping[str, str] | None = None) -> None:
        name_after(names)
        self.__dict__.update(names)
        self.__dict__[" label"] = label
        self.__dict__[" hints"] = hints or {}

    def __getattr__(self, name: str) -> Any:
        hint = self.__dict__[" hints"].get(name)
        more = f": {hint}" if hint else ""
        raise AttributeError(f"module {self.__dict__[' label']!r} has no attribute {name!r} here{more}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"the names of module {self.__dict__[' label']!r} cannot be changed here")

    def __repr__(self) -> str:
        return f"<module {self.__dict__[' label']!r}>"

    def __dir__(self) -> list[str]:
        return sorted(name for name in self.__dict__ if not name.startswith((" ", "_")))

    def __reduce__(self) -> Any:
        raise TypeError("a module cannot be copied")


def name_after(names: Mapping[str, Any]) -> None:
    """Give functions of the sandbox the names that programs call them by, which Python's messages repeat."""
    for name, value in names.items():
        if isinstance(value, types.FunctionType) and value.__module__.startswith(_OURS):
            value.__name__ = value.__qualname__ = name


def leave_out(facade: Facade, names: Mapping[str, str]) -> None:
    """Take names out of a façade, if it has them; why, unless it has a hint that says what to use instead."""
    for name in names:
        facade.__dict__.pop(name, None)
    facade.__dict__[" hints"] = {**names, **facade.__dict__[" hints"]}


def pick(module: Any, names: str) -> dict[str, Any]:
    """The named attributes (separated by spaces) that this version of a library has."""
    return {name: getattr(module, name) for name in names.split() if hasattr(module, name)}


def whole(module: Any, label: str) -> Facade:
    """A façade of all public names of a module; `reviewed.keep_reviewed` takes out those that are not reviewed."""
    names = getattr(module, "__all__", None) or dir(module)
    return Facade(label, {name: getattr(module, name) for name in names if not name.startswith("_")})


def public(module: Any, label: str, hints: Mapping[str, str]) -> Facade:
    """A façade of only the public functions, classes and numbers of a module.

    Metaclasses are left out, since they make classes with any attribute; `reviewed.keep_reviewed` takes out what is not
    reviewed.

    Args:
        module: The module.
        label: Its name for programs.
        hints: By name that is left out: an alternative.
    """
    names: dict[str, Any] = {}
    for name in getattr(module, "__all__", None) or dir(module):
        value = getattr(module, name, None)
        if name.startswith("_") or isinstance(value, types.ModuleType) or is_metaclass(value):
            continue
        if callable(value) or isinstance(value, _NUMBERS):
            names[name] = value
    return Facade(label, names, hints)


def is_metaclass(value: Any) -> bool:
    """Return whether calling the value makes classes."""
    return isinstance(value, type) and issubclass(value, type)


def nested(found: dict[str, Facade], package: Facade, root: str) -> None:
    """Put façades into the façade of the package they belong to, unless it has a function of that name.

    Args:
        found: Façades by import name.
        package: The façade of the package itself.
        root: Its import name.
    """
    found[root] = package
    for name in sorted(found):
        parent, _dot, last = name.rpartition(".")
        if parent in found:
            found[parent].__dict__.setdefault(last, found[name])
