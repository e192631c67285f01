"""Look-up by name: rows that come with the package, and `"module:attribute"` paths of the user's own."""

from __future__ import annotations

import importlib
import inspect
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from codev_env.errors import ConfigError, nearest_name, unknown, unstopped

T = TypeVar("T")

PATH = "module:attribute"
"""Form of an import path, as messages show it."""


def import_path(path: str, kind: str) -> Any:
    """Import the object that `"module:attribute"` names.

    Args:
        path: For example `"my_package.rewards:my_reward"`.
        kind: The kind of object, for the error message, for example `"reward"`.

    Returns:
        The attribute.

    Raises:
        ConfigError: If the module or the attribute does not exist.
    """
    module, _, attribute = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except (ImportError, TypeError, ValueError) as error:
        raise ConfigError(f"cannot import the {kind} {path!r}: {_reason(error, module, attribute)}") from error
    except Exception as error:  # whatever the module's own code raises
        raise ConfigError(f"cannot import the {kind} {path!r}: its module raises {_raised(error)}.") from error
    try:
        for part in attribute.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        near = nearest_name(attribute, dir(found))
        hint = f" Did you mean {near!r}?" if near else ""
        raise ConfigError(f"cannot import the {kind} {path!r}: {error}. Write it as {PATH!r}.{hint}") from error
    return found


def _reason(error: Exception, module: str, attribute: str) -> str:
    """Explain why a module cannot be imported: its name is a path, it is not found, or its own imports fail."""
    if "#" in attribute:  # of URL#NAME
        address = attribute.removeprefix("//") if attribute.startswith("//") else f"{module}:{attribute}"
        return f"{error}. Write the address of a server with http:// in front: http://{address}."
    name = re.sub(r"\.py$", "", re.split(r"[/\\]", module)[-1])
    if name != module:
        return f"{module!r} is a path. Write it as {PATH!r}, {name}:{attribute}, and put its folder on PYTHONPATH."
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing and (module == missing or module.startswith(f"{missing}.")):
        where = "is looked for in the working folder and among installed packages"
        return f"{error}. Write it as {PATH!r}; the module {where}."
    if isinstance(error, ImportError):
        return f"its module raises {_raised(error)}."
    return f"{error}. Write it as {PATH!r}."


def _raised(error: Exception) -> str:
    """Return an error of a module with the place where it was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = "" if isinstance(error, SyntaxError) else f" ({last.filename}, line {last.lineno})"
    return f"{type(error).__name__}: {unstopped(error)}{place}"


class Registry(Mapping[str, Any], Generic[T]):
    """Objects of one kind by name. As a mapping it holds the package's own rows; `find` also imports paths.

    Args:
        kind: The kind of object, for messages, for example `"reward"`.
        rows: By name, the object, or its `"module:attribute"` path, which is imported when the row is read.
        accepts: Whether an object is of this kind.
        expected: The objects that `accepts` accepts, for messages, for example `"a function"`.
        makes: A class is called to make the object; so is any other callable that `accepts` refuses.
        needs: Attributes that every object has; a message names those that are missing.
        forms: Other spellings that the caller of `find` understands, for messages, for example `"URL#NAME"`.
    """

    def __init__(
        self,
        kind: str,
        rows: Mapping[str, Any],
        accepts: Callable[[Any], bool] = callable,
        expected: str = "a function",
        makes: bool = False,
        forms: Iterable[str] = (),
        needs: Iterable[str] = (),
    ) -> None:
        self.kind, self.expected = kind, expected
        self._rows, self._accepts, self._makes, self._forms = dict(rows), accepts, makes, tuple(forms)
        self._needs = tuple(needs)

    def __getitem__(self, name: str) -> Any:
        """Return the object of a row as it is; raises `KeyError` for other names."""
        row = self._rows[name]
        return import_path(row, self.kind) if isinstance(row, str) else row

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, in the order of the rows."""
        return iter(self._rows)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._rows)

    def find(self, name: object, **options: Any) -> T:
        """Return the object of a name or of a `"module:attribute"` path.

        Args:
            name: A name or a path.
            options: Arguments of the class or function that makes the object.

        Raises:
            ConfigError: The name is unknown, the path cannot be imported, the options do not fit, or the object is of
                another kind.
        """
        if isinstance(name, str) and name in self._rows:
            found = self[name]
        elif isinstance(name, str) and ":" in name:
            found = import_path(name, self.kind)
        else:
            raise unknown(self.kind, name, [*self._rows, *self._forms, PATH])
        if self._makes and (isinstance(found, type) or (callable(found) and not self._accepts(found))):
            found = self._make(name, found, options)
        elif options:
            raise ConfigError(f"{self.kind} {name!r} has no options, got {sorted(options)}. Leave them out.")
        return self.checked(found, f"{self.kind} {name!r}")

    def checked(self, found: Any, label: str = "") -> T:
        """Return an object if it is of this kind.

        Args:
            found: Any object.
            label: Names it in messages; empty for the kind alone.

        Raises:
            ConfigError: It is of another kind, or a class instead of an instance.
        """
        label = label or self.kind
        if isinstance(found, type) and (self._makes or not self._accepts(found)):
            raise ConfigError(f"{label} is the class {found.__name__}; give an instance: {found.__name__}().")
        if not self._accepts(found):
            missing = " and ".join(repr(name) for name in self._needs if not hasattr(found, name))
            lacks = f" without {missing}" if missing and len(missing) < len(repr(self._needs)) - 2 else ""
            names = ", ".join([*self._rows, *self._forms, PATH])
            raise ConfigError(
                f"{label} is a {type(found).__name__}{lacks}; it must be {self.expected}, or one of: {names}."
            )
        return found

    def _make(self, name: str, maker: Callable[..., Any], options: Mapping[str, Any]) -> Any:
        signature = inspect.signature(maker)
        try:
            signature.bind(**options)
        except TypeError as error:
            known = ", ".join(signature.parameters) or "none"
            what = "" if isinstance(maker, type) else f" It is a function; it must be {self.expected}, or make one."
            raise ConfigError(
                f"{self.kind} {name!r} with options {sorted(options)}: {error}. Its options: {known}.{what}"
            ) from error
        return maker(**options)
