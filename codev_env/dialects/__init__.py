"""Dialects by name. A new one is one file in this folder that defines a `Dialect` subclass with a `name`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

from codev_env.dialects.dialect import Dialect
from codev_env.registry import Registry

__all__ = ["Dialect", "dialect_names", "get_dialect"]

# All of them at once: the tags of each are neutralised in all.
for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_module.name)


def _below(kind: type[Dialect]) -> Iterator[type[Dialect]]:
    for found in kind.__subclasses__():
        yield found
        yield from _below(found)


_DIALECTS: Registry[Dialect] = Registry(
    "dialect",
    {kind.name: kind for kind in _below(Dialect) if kind.__module__.startswith(f"{__name__}.")},  # type: ignore[type-abstract]
    lambda found: isinstance(found, Dialect),
    "a codev_env Dialect",
    makes=True,
)


def dialect_names() -> list[str]:
    """Return the names of the dialects that come with the package."""
    return sorted(_DIALECTS)


def get_dialect(name: str | Dialect) -> Dialect:
    """Return a dialect.

    Args:
        name: The name of a dialect, a `"module:attribute"` path to one, or a `Dialect`.

    Raises:
        ConfigError: If there is no such dialect.
    """
    return _DIALECTS.find(name) if isinstance(name, str) else _DIALECTS.checked(name)
