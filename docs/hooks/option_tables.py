"""Options of the commands, read from the source of their dataclasses without importing what they train with."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = {"codev_env": "codev_env", "codev_agents": "agents", "codev_train": "train", "codev_eval": "eval"}
"""Import name of a package -> its folder."""


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        flag: As it is written, for example `--env.max-turns`; a positional argument in capitals.
        type: Its annotation.
        default: As in the source; empty where it must be given.
        about: Its docstring, in one line.
    """

    flag: str
    type: str
    default: str
    about: str


def options_of(target: str) -> list[Option]:
    """Return the options of a dataclass, `"module:Class"`: nested ones under dotted names, those of bases first."""
    return list(_options(*_place(target), ""))


def about_class(target: str) -> str:
    """Return the docstring of a class, `"module:Class"`."""
    path, kind = _place(target)
    return inspect.cleandoc(ast.get_docstring(_classes(path)[kind]) or "")


def _options(path: str, kind: str, prefix: str) -> Iterator[Option]:
    found: dict[str, list[Option]] = {}
    for field, annotation, default, about, where in _fields(path, kind):
        name = prefix + field.replace("_", "-")
        if "Suppress" in annotation:  # hidden from the command line, also where a base shows it
            found.pop(field, None)
            continue
        nested = _find(where, annotation)
        if nested:
            found[field] = list(_options(*nested, f"{name}."))
            continue
        flag = f"--{name}"
        if "Positional" in annotation:
            flag, annotation = name.upper(), annotation.removeprefix("Annotated[").partition(",")[0]
            annotation = annotation.removeprefix("tyro.conf.Positional[").removesuffix("]")
        found[field] = [Option(flag, annotation, default, " ".join(about.split()))]
    for options in found.values():
        yield from options


def _fields(path: str, kind: str) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield name, annotation, default, docstring and file of each field."""
    node = _classes(path)[kind]
    for base in node.bases:
        found = _find(path, ast.unparse(base))
        if found:
            yield from _fields(*found)
    for statement, after in zip(node.body, [*node.body[1:], None], strict=True):
        if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
            continue
        is_docstring = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        about = str(after.value.value) if is_docstring else ""  # type: ignore[union-attr]
        yield statement.target.id, ast.unparse(statement.annotation), _default(statement.value), about, path


def _default(value: ast.expr | None) -> str:
    """Write a default as a user would type it or see it; `field(default_factory=dict)` is `{}`."""
    if value is None:
        return ""
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "field":
        given = {word.arg: ast.unparse(word.value) for word in value.keywords}
        return given.get("default") or {"dict": "{}", "list": "[]", "tuple": "()"}.get(given["default_factory"], "…")
    return ast.unparse(value)


def _find(path: str, name: str) -> tuple[str, str] | None:
    """Return file and name of the dataclass that a name in a file stands for; `None` if it is none of ours."""
    if name in _classes(path):
        return path, name
    for statement in _tree(path).body:
        if isinstance(statement, ast.ImportFrom) and name in {alias.name for alias in statement.names}:
            file, _ = _place(f"{statement.module}:{name}")
            return (file, name) if (ROOT / file).is_file() and name in _classes(file) else None
    return None


def _place(target: str) -> tuple[str, str]:
    """Return file and name of `"module:Class"`."""
    module, _, name = target.partition(":")
    package, _, rest = module.partition(".")
    return f"{FOLDERS.get(package, package)}/{rest.replace('.', '/')}.py", name


@cache
def _tree(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text("utf-8"))


def _classes(path: str) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in _tree(path).body if isinstance(node, ast.ClassDef)}
