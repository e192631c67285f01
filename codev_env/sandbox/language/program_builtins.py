"""The builtins that programs see: guards, plain functions, and stand-ins for unsafe objects."""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
from RestrictedPython.Guards import safe_builtins

from codev_env.sandbox.language import closed, state
from codev_env.sandbox.language.classes import SandboxClass
from codev_env.sandbox.language.facade import Facade, name_after
from codev_env.sandbox.language.guards import (
    AttributeTarget,
    guard_attribute_target,
    guard_item_target,
    guarded_getattr,
    guarded_setattr,
)
from codev_env.sandbox.language.refusals import RefusedCall, refuse


class _ArrayMeta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, np.ndarray)

    def __subclasscheck__(cls, subclass: Any) -> bool:
        return subclass is cls or issubclass(subclass, np.ndarray)


class ndarray(metaclass=_ArrayMeta):  # the name that programs see
    """Stands for `numpy.ndarray` in `isinstance` and annotations, without its constructor over foreign memory."""

    __module__ = "numpy"

    def __new__(cls, *_args: Any, **_kwargs: Any) -> ndarray:
        """Refuse to construct; raises `RefusedCall`."""
        raise RefusedCall("np.ndarray cannot be called here: use np.zeros, np.empty or np.array.")


def safe_type(obj: Any) -> type:
    """`type` with one argument."""
    kind = type(obj)
    if issubclass(kind, np.ndarray):
        return ndarray
    if issubclass(kind, type):
        return _Type
    if issubclass(kind, Facade):
        return _Module
    return closed.given(kind)


class _Module:
    """Stands for the type of modules, which makes objects with attributes of any name."""

    def __new__(cls, *_args: Any, **_kwargs: Any) -> _Module:
        """Refuse to construct; raises `RefusedCall`."""
        raise RefusedCall("modules cannot be made here.")


class _TypeMeta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, type)

    def __call__(cls, *args: Any) -> Any:
        if len(args) != 1:
            raise RefusedCall("type() takes one argument here: write a class statement.")
        return safe_type(args[0])


class _Type(metaclass=_TypeMeta):
    """Stands for `type`."""


def _hasattr(obj: Any, name: str) -> bool:
    try:
        guarded_getattr(obj, name)
    except AttributeError:
        return False
    return True


def _dir(*objects: Any) -> list[str]:
    if not objects:
        raise RefusedCall("dir() needs an object here.")
    return [name for name in dir(objects[0]) if not name.startswith("_")]


def _vars(*objects: Any) -> dict[str, Any]:
    if not objects or not isinstance(type(objects[0]), SandboxClass):
        raise RefusedCall("vars() takes an object of one of your classes here.")
    return dict(objects[0].__dict__)


def _caller() -> types.FrameType:
    frame = sys._getframe(2)
    if frame.f_code.co_filename != "<code>":
        raise RefusedCall("locals() and globals() are called by the program itself here.")
    return frame


def _visible(names: Any) -> dict[str, Any]:
    return {name: value for name, value in names.items() if not name.startswith(("__", ".")) and not name.endswith("_")}


def _locals() -> dict[str, Any]:
    """`locals()`, as a dict of its own."""
    return _visible(_caller().f_locals)


def _globals() -> dict[str, Any]:
    """`globals()`, as a dict of its own."""
    return _visible(_caller().f_globals)


def _hash(obj: Any) -> int:
    """`hash`, of values: that of other objects is their address."""
    own = isinstance(type(obj), SandboxClass) and type(obj).__hash__ is not object.__hash__
    if isinstance(obj, tuple | frozenset):
        for part in obj:
            _hash(part)
    elif not own and not isinstance(obj, str | bytes | int | float | complex | np.generic | type(None)):
        if getattr(type(obj), "__hash__", None) is None:
            return hash(obj)  # raises Python's own error
        raise RefusedCall(f"hash() of a {type(obj).__name__} differs from run to run: use values, such as a tuple.")
    return hash(obj)


def read_part(obj: Any, key: Any) -> Any:
    """Replaces `obj[a:b]` and `obj[a:b, c:d]` in programs: of arrays, the parts that are cut out are recorded."""
    part = obj[key]
    if type(obj) is np.ndarray and obj.ndim in (2, 3):
        rows, columns = (*key, slice(None))[:2] if type(key) is tuple else (key, slice(None))
        (top, bottom, down), (left, right, along) = rows.indices(obj.shape[0]), columns.indices(obj.shape[1])
        if down == along == 1:
            state.current().cuts.note((obj.shape[1], obj.shape[0]), (left, top, right, bottom))
    return part


class ProgramExit(BaseException):
    """`exit()` and `quit()`: the program ends, and its output so far counts."""


def exit_program(*_args: Any) -> None:
    """`exit()`."""
    raise ProgramExit


class _SystemExit(RefusedCall):
    """Stands for `SystemExit`: the error of a program that raises it names `exit`."""

    def __init__(self, *_args: Any) -> None:
        super().__init__("SystemExit is not available here: call exit().")


_PLAIN = (
    "all any ascii bin bytearray bytes classmethod dict enumerate filter format frozenset iter list map max min next "
    "object property reversed set sorted staticmethod sum super tuple zip StopAsyncIteration TimeoutError "
    "FileNotFoundError FileExistsError PermissionError ModuleNotFoundError RecursionError NotImplemented"
).split()


def make_builtins(
    import_: Callable[..., Any], print_: Callable[..., None], show: Callable[..., None], **others: Any
) -> dict[str, Any]:
    """Make the builtins of a program: guards, functions that only compute, and stand-ins.

    Args:
        import_: The function that the statement `import` calls.
        print_: The function `print`.
        show: The function `show`.
        others: More builtins by name.
    """
    names = {name: value for name, value in safe_builtins.items() if name not in ("id", "hash", "delattr")}
    names.update({name: getattr(builtins, name) for name in _PLAIN})
    for name in ("SystemExit", "KeyboardInterrupt", "GeneratorExit"):
        names.pop(name, None)
    names.update(
        SystemExit=_SystemExit,
        __import__=import_,
        __metaclass__=SandboxClass,
        _getattr_=guarded_getattr,
        _write_=guard_attribute_target,
        _case_=AttributeTarget,
        _write_item_=guard_item_target,
        _getitem_=read_part,
        getattr=guarded_getattr,
        setattr=guarded_setattr,
        hasattr=_hasattr,
        print=print_,
        show=show,
        type=_Type,
        dir=_dir,
        vars=_vars,
        exit=exit_program,
        quit=exit_program,
        eval=refuse("eval", "write the expression itself"),
        exec=refuse("exec", "write the statements themselves"),
        compile=refuse("compile", "write the statements themselves"),
        globals=_globals,
        locals=_locals,
        id=refuse("id", "it differs from run to run; compare with `is`"),
        hash=_hash,
        delattr=refuse("delattr", "assign None instead"),
        breakpoint=refuse("breakpoint", "print what you want to know"),
        memoryview=refuse("memoryview", "use bytes or np.frombuffer"),
    )
    names.update(others)
    name_after(names)
    return names
