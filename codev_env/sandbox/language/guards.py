"""The guards that rewritten code calls: how programs read and assign attributes, and which items they may assign."""

from __future__ import annotations

import builtins
import functools
import string
import types
import typing
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence
from typing import Any, NamedTuple, cast

import numpy as np
from PIL import Image
from RestrictedPython.Guards import safer_getattr_raise

from codev_env.sandbox.language import closed
from codev_env.sandbox.language.classes import SandboxClass
from codev_env.sandbox.language.facade import Facade
from codev_env.sandbox.language.policy import CLASS_NAME, HIDDEN_ATTRIBUTES, INSPECT_ATTRIBUTES, MAGIC_METHODS
from codev_env.sandbox.language.refusals import RefusedAttribute, RefusedCall

_MISSING = closed.NO_DEFAULT
_ALIASES: tuple[Any, ...] = (types.GenericAlias, *map(type, (typing.List, typing.List[int], typing.Optional[int])))  # noqa: UP006, UP045
"""Generic types, which pass on the attributes of their origin."""

_NEVER_GIVEN: tuple[type, ...] = (
    types.ModuleType,
    types.FrameType,
    types.CodeType,
    types.TracebackType,
)


def never_give(*kinds: type) -> None:
    """Refuse to read any attribute whose value is an instance of these types: they lead to the whole of a library."""
    global _NEVER_GIVEN
    _NEVER_GIVEN += kinds


_TRUSTING = ("scipy.",)
"""Modules whose compiled code trusts the arrays of its objects: programs get copies that they cannot write to."""


def _hidden(obj: Any, name: str, instead: str = "") -> RefusedAttribute:
    kind = repr(obj) if isinstance(obj, Facade) else type(obj).__name__
    return RefusedAttribute(f"the attribute {name!r} of {kind} is not available here{instead and f': {instead}'}.")


def _view(array: Any) -> Callable[..., Any]:
    def view(dtype: Any = None, type: Any = None) -> Any:
        if type is not None or (isinstance(dtype, builtins.type) and not issubclass(dtype, np.generic | float | int)):
            raise RefusedCall("ndarray.view takes a dtype of numbers here.")
        if dtype is None:
            return array.view()
        wanted = np.dtype(dtype)  # once: an object with a `dtype` of its own may answer differently next time
        if wanted.hasobject or array.dtype.hasobject:
            raise RefusedCall("ndarray.view takes a dtype of numbers here.")
        return array.view(wanted)

    return view


def _array_tobytes(array: Any) -> Callable[..., bytes]:
    def tobytes(order: Any = "C") -> bytes:
        if array.dtype.hasobject:
            raise RefusedCall("tobytes() takes an array of numbers here: its objects have no bytes.")
        return array.tobytes(order)

    return tobytes


def _image_load(image: Image.Image) -> Callable[[], Any]:
    # An opened file shares its pixels until they are written, and pixel access allows writing.
    def load() -> Any:
        image.load()
        if image.readonly:
            image._copy()
        return image.load()

    return load


class _Rule(NamedTuple):
    """How an attribute of some types is read: by calling `how` with the object, or, if `None`, not at all."""

    kinds: tuple[type, ...]
    how: Callable[[Any], Any] | None
    instead: str = ""
    of_class: bool = False


_SPECIAL: dict[str, list[_Rule]] = {}
"""By attribute: its rules, newest first; the first one that fits the object applies."""


def handle(kinds: tuple[type, ...], name: str, how: Callable[[Any], Any]) -> None:
    """Read an attribute of instances (and subclasses) of some types by calling `how` with the object."""
    _add_rule(name, _Rule(kinds, how))


def handle_class(kinds: tuple[type, ...], name: str, how: Callable[[Any], Any]) -> None:
    """Read a class method of some types, also through an instance, by calling `how` with the class."""
    _add_rule(name, _Rule(kinds, how, of_class=True))


def hide(kinds: tuple[type, ...], *names: str, instead: str = "") -> None:
    """Refuse to read attributes of instances (and subclasses) of some types; `instead` names an alternative."""
    for name in names:
        _add_rule(name, _Rule(kinds, None, instead))


def _add_rule(name: str, rule: _Rule) -> None:
    _SPECIAL.setdefault(name, []).insert(0, rule)
    HIDDEN_ATTRIBUTES.add(name)  # a class pattern would read it past the guard


handle((str,), "format", lambda text: _Formatter(text).format)
handle((str,), "format_map", lambda text: _Formatter(text).format_map)
handle((np.ndarray,), "view", _view)
for _name in ("tobytes", "tostring"):  # the old name, until NumPy 2.3
    handle((np.ndarray, np.generic), _name, _array_tobytes)
handle((Image.Image,), "load", _image_load)
hide((AttributeError, NameError, memoryview), "obj")
hide((BaseException,), "with_traceback")
hide((object,), "mro")
# Compiled functions have these attributes under their old names, without underscores.
hide((object,), *(f"func_{name}" for name in ("globals", "code", "closure", "defaults")))
hide((type,), "register")
hide((np.ndarray,), "resize", instead="use np.resize or np.pad")
hide((np.ndarray, np.generic), "ctypes", "tofile", "dump", "dumps", "getfield", "setfield", "data", "base", "setflags")
hide((np.random.Generator, np.random.RandomState), "bit_generator", "set_state")
hide((Image.Image,), "im", "fp", "getim", "toqimage", "toqpixmap", "draft", "decoderconfig", "tile")
for _name in INSPECT_ATTRIBUTES:
    hide((object,), _name)


def guarded_getattr(obj: Any, name: str, default: Any = _MISSING) -> Any:
    """Replaces `obj.name` and `getattr(obj, name)` in programs."""
    if type(name) is not str:
        raise TypeError("attribute name must be string")
    obj = closed.real(obj)
    for kinds, how, instead, of_class in _SPECIAL.get(name, ()):
        if isinstance(obj, _ALIASES):
            return guarded_getattr(obj.__origin__, name, default)  # an alias would read it unguarded
        subject = cast(Any, obj).__self__ if type(obj) is super else obj
        if isinstance(subject, kinds) or (isinstance(subject, type) and issubclass(subject, kinds)):
            if how is None:
                raise _hidden(obj, name, instead)
            if of_class:
                return how(subject if isinstance(subject, type) else type(subject))
            return _unbound(subject, name, how) if isinstance(subject, type) else how(subject)
    if name[:1] in ("_", " "):
        return _underscored(obj, name, default)
    if closed.LIBRARIES:
        try:
            return closed.read(obj, name, default)
        except LookupError:
            pass
    try:
        value = safer_getattr_raise(obj, name) if isinstance(obj, str | string.Formatter) else getattr(obj, name)
    except AttributeError:
        if default is not _MISSING:
            return default
        raise
    if isinstance(value, _NEVER_GIVEN):
        raise _hidden(obj, name)
    if isinstance(value, np.ndarray) and type(obj).__module__.startswith(_TRUSTING):
        value = value.copy()
        value.flags.writeable = False
    return value


def _unbound(cls: type, name: str, how: Callable[[Any], Any]) -> Callable[..., Any]:
    def method(first: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(first, cls):
            raise TypeError(f"{cls.__name__}.{name} needs a {cls.__name__} as its first argument")
        return how(first)(*args, **kwargs)

    return method


_NAMED = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.MethodDescriptorType,
    types.GeneratorType,
    functools._lru_cache_wrapper,
    np.ufunc,
)
"""Types of objects whose name and docstring programs may read."""


def _underscored(obj: Any, name: str, default: Any) -> Any:
    own = isinstance(type(obj), SandboxClass) or isinstance(obj, SandboxClass)
    dunder = name[:2] == "__"
    if (own and not dunder) or (type(obj) is super and (not dunder or name in MAGIC_METHODS)):
        return getattr(obj, name) if default is _MISSING else getattr(obj, name, default)
    if own and name in MAGIC_METHODS and (method := _own_method(obj, name)) is not None:
        return method
    if name in ("_replace", "_asdict", "_fields", "_make") and isinstance(obj, tuple | type):
        return getattr(obj, name) if default is _MISSING else getattr(obj, name, default)
    if name in ("__name__", "__doc__") and isinstance(obj, _NAMED):
        return getattr(obj, name)
    if name == CLASS_NAME:
        return type(obj).__name__
    if name == "__dict__" and own and not isinstance(obj, type):
        return dict(obj.__dict__)
    if name in ("__cause__", "__context__") and isinstance(obj, BaseException):
        return getattr(obj, name)
    if name == "__version__" and isinstance(obj, Facade) and hasattr(obj, name):
        return getattr(obj, name)
    if default is not _MISSING:
        return default
    raise _hidden(obj, name)


def _own_method(obj: Any, name: str) -> Any:
    """Return a magic method that the program itself wrote, as in `Base.__init__(self, x)`; `None` for any other."""
    cls = obj if isinstance(obj, SandboxClass) else type(obj)
    found = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
    if not isinstance(found, types.FunctionType) or found.__code__.co_filename != "<code>":
        return None
    return found if cls is obj else types.MethodType(found, obj)


class _Formatter(string.Formatter):
    """`str.format`, whose fields read attributes through the guard."""

    def __init__(self, text: str) -> None:
        self._text = text

    def format(self, /, *args: Any, **kwargs: Any) -> str:
        return self.vformat(self._text, args, kwargs)

    def format_map(self, mapping: Mapping[str, Any]) -> str:
        return self.vformat(self._text, (), mapping)

    def get_value(self, key: int | str, args: Any, kwargs: Any) -> Any:
        if isinstance(key, int) and key >= len(args):
            raise IndexError(f"Replacement index {key} out of range for positional args tuple")
        return super().get_value(key, args, kwargs)

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        first, rest = _field_name_split(field_name)
        value = self.get_value(first, args, kwargs)
        for is_attribute, key in rest:
            value = guarded_getattr(value, key) if is_attribute else value[key]
        return value, first


def _field_name_split(name: str) -> Any:
    import _string  # type: ignore[import-not-found]

    return _string.formatter_field_name_split(name)


class AttributeTarget:
    """Wraps an object whose attribute is assigned; programs cannot reach this class."""

    __slots__ = ("_target",)

    def __init__(self, target: Any) -> None:
        object.__setattr__(self, "_target", target)

    def __getattribute__(self, name: str) -> Any:
        return guarded_getattr(object.__getattribute__(self, "_target"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        guarded_setattr(object.__getattribute__(self, "_target"), name, value)

    def __delattr__(self, name: str) -> None:
        target = object.__getattribute__(self, "_target")
        if isinstance(type(target), SandboxClass) or isinstance(target, SandboxClass):
            delattr(target, name)
            return
        raise RefusedAttribute(f"attributes of {type(target).__name__} cannot be deleted here.")


def guard_attribute_target(obj: Any) -> Any:
    """Replaces `obj` in `obj.name = value`, `obj.name += value` and `del obj.name`."""
    # Texts and errors, and classes, have attributes that only the guard may read, as `x.format += y` does.
    if isinstance(type(obj), SandboxClass) and not isinstance(obj, str | BaseException):
        return obj  # names with a double underscore were refused when the code was compiled
    return AttributeTarget(obj)


_SETTABLE: list[tuple[type, frozenset[str]]] = [(np.ndarray, frozenset({"shape", "flat", "real", "imag"}))]


def allow_setting(kind: type, *names: str) -> None:
    """Let programs assign some attributes of instances of a type."""
    _SETTABLE.append((kind, frozenset(names)))


def guarded_setattr(obj: Any, name: str, value: Any) -> None:
    """Replaces `setattr(obj, name, value)` in programs."""
    if type(name) is not str:
        raise TypeError("attribute name must be string")
    if isinstance(type(obj), SandboxClass) or isinstance(obj, SandboxClass):
        if not name.startswith("__") and name not in INSPECT_ATTRIBUTES:
            setattr(obj, name, value)
            return
    for kind, names in reversed(_SETTABLE):
        if isinstance(obj, kind) and name in names:
            setattr(obj, name, closed.plain(value) if closed.library_of(kind) else value)
            return
    what, instead = type(obj).__name__, "keep the value in a variable"
    if isinstance(obj, Facade):
        what, instead = repr(obj), "leave the line out"
    raise RefusedAttribute(f"the attribute {name!r} of {what} cannot be set here: {instead}.")


_PIXEL_ACCESS = type(Image.new("L", (1, 1)).load())
_ITEM_TARGETS: tuple[type, ...] = (
    list, dict, bytearray, np.ndarray, np.flatiter, _PIXEL_ACCESS, MutableMapping, MutableSequence,
)  # fmt: skip


def allow_items(*kinds: type) -> None:
    """Let programs assign items of instances of some types."""
    global _ITEM_TARGETS
    _ITEM_TARGETS += kinds


def guard_item_target(obj: Any) -> Any:
    """Replaces `obj` in `obj[i] = value`, `obj[i] += value` and `del obj[i]`."""
    if isinstance(obj, _ITEM_TARGETS) or isinstance(type(obj), SandboxClass) or type(obj).__module__ == "cv2":
        return obj
    raise TypeError(f"{type(obj).__name__!r} object does not support item assignment")
