"""The libraries that programs may import, loaded once in the zygote and offered to programs as façades."""

from __future__ import annotations

import importlib.util
from typing import Protocol

from codev_env.sandbox.language import reviewed
from codev_env.sandbox.language.facade import Facade
from codev_env.sandbox.language.facades import files, numpy, pil, run, std, tables
from codev_env.sandbox.worker import traces

MODULES: dict[str, Facade] = {}
"""The façades by import name."""

ELSEWHERE: list[str] = []
"""Libraries that are installed, and that other kinds of zygote load."""

_OPTIONAL = ("cv2", "matplotlib", "pandas", "scipy", "skimage", "sklearn", "sympy")


class Library(Protocol):
    """A module of `language.facades`."""

    def warm(self) -> None:
        """Load and use once what the library loads lazily: a worker cannot open files."""

    def modules(self) -> dict[str, Facade]:
        """The façades by import name; empty where the library is not installed."""

    def seed(self, value: int, used: bool, /) -> None:
        """Start the library's random streams for a run; in a process that was used, undo what the last run changed."""


_LOADED: list[Library] = []
_used = False


def load(kind: str) -> dict[str, str]:
    """Load the libraries of a kind of zygote (see `host.process.Kind`).

    Returns:
        By name: why a library was left out, because the guards do not fit its version.
    """
    libraries: list[Library] = [std, files, run, tables, pil, numpy]
    if kind != "plain":
        from codev_env.sandbox.language.facades import cv2

        libraries.append(cv2)
    if kind not in ("plain", "vision"):
        from codev_env.sandbox.language.facades import pyplot

        libraries.append(pyplot)
    for library in libraries:
        library.warm()
    pil.patch()
    for library in libraries:
        _provide(library)
    left_out = _load_science() if kind in ("science", "tables") else {}
    if kind == "tables":
        left_out |= _load_tables()
    reviewed.keep_reviewed(MODULES)
    traces.learn(MODULES)
    known = {name.partition(".")[0] for name in MODULES} | left_out.keys()
    ELSEWHERE[:] = [name for name in _OPTIONAL if name not in known and _is_installed(name)]
    return left_out


def seed(value: int) -> None:
    """Start the random streams of all libraries for a run, and undo what earlier runs of this process changed."""
    global _used
    for library in _LOADED:
        library.seed(value, _used)
    _used = True


def settle() -> None:
    """In the zygote: undo what its own runs changed, so that a new worker need not, which costs it copies of pages."""
    global _used
    seed(0)
    _used = False


def _provide(library: Library) -> None:
    MODULES.update(library.modules())
    _LOADED.append(library)


def _load_science() -> dict[str, str]:
    from codev_env.sandbox.language.facades import scipy, skimage, sympy

    return _load_each({"scipy": scipy, "skimage": skimage, "sympy": sympy})


def _load_tables() -> dict[str, str]:
    from codev_env.sandbox.language.facades import pandas, sklearn

    return _load_each({"pandas": pandas, "sklearn": sklearn})


def _load_each(libraries: dict[str, Library]) -> dict[str, str]:
    left_out = {}
    for name, library in libraries.items():
        try:
            library.warm()
            _provide(library)
        except (AttributeError, ImportError, OSError, TypeError, ValueError) as error:
            left_out[name] = f"{type(error).__name__}: {error}"
    return left_out


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # a loaded module of that name without a spec
        return False
