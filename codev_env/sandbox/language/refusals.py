"""The errors by which the sandbox refuses something; their messages name an alternative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Refused(Exception):
    """A program breaks the rules of the language; the message names an alternative."""


class RefusedAttribute(AttributeError, Refused):
    """An attribute that exists and that programs may not use."""


class RefusedCall(RuntimeError, Refused):
    """A function, or a kind of call, that programs may not use."""


class RefusedImport(ImportError, Refused):
    """A module, or a name in it, that programs may not import."""


def refuse(name: str, instead: str) -> Callable[..., Any]:
    """Make a function that stands in for `name` and raises `RefusedCall`; the message ends with `instead`."""

    def refused(*_args: Any, **_kwargs: Any) -> Any:
        raise RefusedCall(f"{name}() is not available here: {instead}.")

    return refused
