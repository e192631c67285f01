"""The classes that programs define: their permitted bases and members."""

from __future__ import annotations

from typing import Any

from codev_env.sandbox.language.policy import MAGIC_METHODS
from codev_env.sandbox.language.refusals import RefusedCall


class SandboxClass(type):
    """The metaclass of every class that a program defines."""

    def __new__(mcls, name: str, bases: tuple[type, ...], members: dict[str, Any], **options: Any) -> SandboxClass:
        """Make a class; raises `RefusedCall` for a base or a member that a class statement could not have."""
        for base in bases:
            if not (isinstance(base, SandboxClass) or base in _BASES or issubclass(base, Exception)):
                raise RefusedCall(f"a class cannot be derived from {base.__name__} here: keep it as an attribute.")
        check_members(members)
        return super().__new__(mcls, name, bases, members, **options)


_BASES = {object, list, dict, set, tuple, str, int, float}


_CLASS_MEMBERS = MAGIC_METHODS | {
    f"__{name}__"
    for name in (
        "module qualname doc annotations annotate annotate_func annotations_cache conditional_annotations classcell "
        "classdictcell classdict firstlineno static_attributes orig_bases parameters match_args slots getstate "
        "setstate replace"
    ).split()
}
"""Members that the compiler and `dataclass` add to a class, and the methods that a program may define."""


def allow_bases(*types_: type) -> None:
    """Let programs derive classes from these types."""
    _BASES.update(types_)


def check_members(names: Any) -> None:
    """Raise `RefusedCall` for a name with double underscores that no class statement could define."""
    for name in names:
        if isinstance(name, str) and name.startswith("__") and name.endswith("__"):
            if name not in _CLASS_MEMBERS and not name.startswith("__dataclass_"):
                raise RefusedCall(f"the name {name!r} is reserved: choose one without underscores.")
