"""Dialects by name. A new one is one file in this folder that defines a `Dialect` subclass with a `name`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache

from codev_env.dialects.dialect import Dialect
from codev_env.errors import ConfigError, unknown
from codev_env.registration import import_path

__all__ = ["Dialect", "dialect_names", "get_dialect"]


@cache
def _dialects() -> dict[str, type[Dialect]]:
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)
    kinds = _below(Dialect)  # type: ignore[type-abstract]
    return {kind.name: kind for kind in kinds if kind.__module__.startswith(f"{__name__}.")}


def _below(kind: type[Dialect]) -> Iterator[type[Dialect]]:
    for found in kind.__subclasses__():
        yield found
        yield from _below(found)


def dialect_names() -> list[str]:
    """Return the names of the dialects that come with the package."""
    return sorted(_dialects())


def get_dialect(name: str | Dialect) -> Dialect:
    """Return a dialect.

    Args:
        name: The name of a dialect, a `"module:attribute"` path to one, or a `Dialect`.

    Raises:
        ConfigError: If there is no such dialect.
    """
    if isinstance(name, Dialect):
        return name
    if isinstance(name, str) and ":" in name:
        found = import_path(name, "dialect")
        found = found() if isinstance(found, type) else found
        if not isinstance(found, Dialect):
            raise ConfigError(f"dialect {name!r} is a {type(found).__name__}; it must be a codev_env Dialect.")
        return found
    if name not in _dialects():
        raise unknown("dialect", name, _dialects())
    return _dialects()[name]()
