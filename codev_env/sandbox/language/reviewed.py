"""Names of libraries that somebody has reviewed; those that a newer release adds stay out of the façades until then.

`names/LIBRARY.txt` lists them. A line without indentation is a heading, the indented ones below it hold names:

    numpy                     of the module `numpy`: what programs may use
    numpy refused: REASON     of the module `numpy`: what they may not
    class ndarray             public attributes that a class adds to those of its bases
    class DataFrame refused: REASON   those that programs may not use, of a closed library (see `closed.py`)
"""

from __future__ import annotations

import enum
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from codev_env.sandbox.language import closed, guards
from codev_env.sandbox.language.facade import Facade, leave_out
from codev_env.sandbox.language.policy import HIDDEN_ATTRIBUTES

LIBRARIES = (
    "PIL cmath colorsys cv2 heapq itertools math matplotlib mpl_toolkits numpy pandas re scipy skimage sklearn "
    "statistics sympy textwrap"
).split()
"""Those whose façades take names by a rule, so that a newer release could add some."""
FOLDER = Path(__file__).with_name("names")
_NEW = "it is new, and nobody has reviewed yet what it can reach"
_VALUES = (bool, int, float, complex, str, bytes, np.generic, enum.Enum, types.NoneType)


class Reviewed(NamedTuple):
    """The reviewed names of one library."""

    allowed: dict[str, set[str]]
    """By module."""
    refused: dict[str, dict[str, set[str]]]
    """By module and reason."""
    classes: dict[str, set[str]]
    """Attributes by class."""
    hidden: dict[str, dict[str, set[str]]]
    """Refused attributes by class and reason."""


def read(library: str) -> Reviewed:
    """Read the table of a library; `FileNotFoundError` if it is not installed with the package."""
    table = Reviewed({}, {}, {}, {})
    current: set[str] = set()
    for line in (FOLDER / f"{library}.txt").read_text(encoding="utf-8").splitlines():
        module, refused, reason = line.partition(" refused: ")
        if line.startswith("    "):
            current.update(line.split())
        elif line.startswith("class ") and refused:
            current = table.hidden.setdefault(module[6:], {}).setdefault(reason, set())
        elif line.startswith("class "):
            current = table.classes.setdefault(line[6:], set())
        elif refused:
            current = table.refused.setdefault(module, {}).setdefault(reason, set())
        elif line and not line.startswith("#"):
            current = table.allowed.setdefault(line, set())
    return table


def names_of(facade: Facade) -> dict[str, Any]:
    """Functions, classes and objects that a façade offers, without constants and other façades."""
    return {
        name: value
        for name, value in vars(facade).items()
        if not name.startswith((" ", "_")) and not isinstance(value, (*_VALUES, Facade))
    }


def classes_of(library: str, facade: Facade, names: set[str]) -> list[type]:
    """The classes of a library that a façade offers under these names."""
    offered = [value for name, value in names_of(facade).items() if name in names]
    return [value for value in offered if isinstance(value, type) and _home(value) == library]


def own_attributes(cls: type) -> set[str]:
    """Public attributes that a class adds to those of its bases."""
    return {name for name in vars(cls) if not name.startswith("_")}


def lineage(cls: type) -> list[type]:
    """A class and its bases of the same library."""
    return [base for base in cls.__mro__ if _home(base) == _home(cls)]


def keep_reviewed(modules: Mapping[str, Facade]) -> list[str]:
    """Take out of façades what the tables do not know.

    Args:
        modules: Façades by import name.

    Returns:
        The names that no table has, such as `"numpy.load_anything"` and `"class ndarray: load_anything"`.
    """
    found: list[str] = []
    for library in sorted({module.partition(".")[0] for module in modules} & set(LIBRARIES)):
        table = read(library)
        for module, facade in modules.items():
            if module.partition(".")[0] != library:
                continue
            allowed = table.allowed.get(module, set())
            reasons = {name: why for why, names in table.refused.get(module, {}).items() for name in names}
            new = sorted(names_of(facade).keys() - allowed - reasons.keys())
            leave_out(facade, {**reasons, **dict.fromkeys(new, _NEW)})
            found += [f"{module}.{name}" for name in new]
            for cls in () if library in closed.LIBRARIES else classes_of(library, facade, allowed):
                found += _hide_new(cls, table)
        for reasons_of_class in table.hidden.values():
            HIDDEN_ATTRIBUTES.update(*reasons_of_class.values())  # a class pattern would read them
    return list(dict.fromkeys(found))


def _hide_new(cls: type, table: Reviewed) -> list[str]:
    bases = lineage(cls)
    known = set().union(*(table.classes.get(base.__qualname__, set()) for base in bases))
    new = sorted(set().union(*map(own_attributes, bases)) - known)
    guards.hide((cls,), *new)
    return [f"class {cls.__qualname__}: {name}" for name in new]


def _home(cls: type) -> str:
    return getattr(cls, "__module__", "").partition(".")[0]
