"""A module as programs see it: a fixed set of names and nothing behind them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Facade:
    """Holds the curated names of one module as plain attributes; has no `__name__` and no way to the module."""

    def __init__(self, label: str, names: Mapping[str, Any], hints: Mapping[str, str] | None = None) -> None:
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


def pick(module: Any, names: str, missing_ok: bool = True) -> dict[str, Any]:
    """The named attributes of a module, as far as it has them.

    Args:
        module: Any object.
        names: Names, separated by spaces.
        missing_ok: Other versions of the library may lack some.
    """
    return {name: getattr(module, name) for name in names.split() if not missing_ok or hasattr(module, name)}
