"""The options of pandas, as programs may set them: those of the display, for one run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pandas
from pandas._config import config

from codev_env.sandbox.language import closed, guards
from codev_env.sandbox.language.facade import Facade
from codev_env.sandbox.language.refusals import RefusedCall

_OPEN = ("display.", "mode.")
_changed: set[str] = set()


def _options(keys: Any) -> list[str]:
    """The options that a pattern names."""
    if not isinstance(keys, str):
        raise TypeError("the name of an option is text")
    found = config._select_options(str.__str__(keys))
    for key in found:
        if not key.startswith(_OPEN):
            raise RefusedCall(f"the option {key!r} is not available here: those of display are.")
    if not found:
        raise KeyError(f"No such option: {keys!r}")
    return found


def _set_option(*args: Any, **_other: Any) -> None:
    """`pd.set_option`; it ends with the run."""
    pairs = [(key, value) for one in args for key, value in one.items()] if args and isinstance(args[0], dict) else None
    for key, value in pairs or list(zip(args[::2], args[1::2], strict=True)):
        for name in _options(key):
            _changed.add(name)
            pandas.set_option(name, closed.plain(value))


def _get_option(pat: str) -> Any:
    """`pd.get_option`."""
    return pandas.get_option(_options(pat)[0])


def _reset_option(pat: str) -> None:
    """`pd.reset_option`."""
    for name in [key for key in _changed] if pat == "all" else _options(pat):
        pandas.reset_option(name)


@contextlib.contextmanager
def _option_context(*args: Any) -> Iterator[None]:
    """`pd.option_context`."""
    before = [(name, pandas.get_option(name)) for key in args[::2] for name in _options(key)]
    try:
        _set_option(*args)
        yield
    finally:
        for name, value in before:
            pandas.set_option(name, value)


class Options(Facade):
    """`pd.options` and its parts."""

    def __init__(self, prefix: str = "") -> None:
        super().__init__(f"pandas.options{prefix and '.'}{prefix}".rstrip("."), {})
        self.__dict__[" prefix"] = prefix

    def __getattr__(self, name: str) -> Any:
        path = self.__dict__[" prefix"] + name
        if any(key.startswith(path + ".") for key in config._registered_options):
            return Options(path + ".")
        try:
            return _get_option(path)
        except (KeyError, AttributeError) as error:
            raise AttributeError(str(error)) from None

    def __setattr__(self, name: str, value: Any) -> None:
        _set_option(self.__dict__[" prefix"] + name, value)


def allow_setting() -> None:
    """Let programs assign options."""
    guards.allow_setting(
        Options, *(key.rpartition(".")[2] for key in config._registered_options if key.startswith(_OPEN))
    )


def reset() -> None:
    """Undo what a run set."""
    while _changed:
        pandas.reset_option(_changed.pop())


NAMES = {
    "set_option": _set_option,
    "get_option": _get_option,
    "reset_option": _reset_option,
    "option_context": _option_context,
    "options": Options(),
}
"""The functions of pandas about options."""
