"""How the sandbox says no: errors whose message names what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Refused(Exception):
    """A program breaks the rules of the language; the message says what to write instead."""


class RefusedAttribute(AttributeError, Refused):
    """An attribute that exists and is not for programs."""


class RefusedCall(RuntimeError, Refused):
    """A builtin or a kind of call that is not for programs."""


class RefusedImport(ImportError, Refused):
    """A module that is not for programs."""


def refuse(name: str, instead: str) -> Callable[..., Any]:
    """Make a function that stands in for `name` and raises `RefusedCall`; the message ends with `instead`."""

    def refused(*_args: Any, **_kwargs: Any) -> Any:
        raise RefusedCall(f"{name}() is not available here: {instead}.")

    return refused
