"""The source keeps its floors: no circles, no import upward, every class name once, no long module.

Every import counts: lazy ones, those under `TYPE_CHECKING` and modules that a string names.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MOST_LINES = 400

# Import name of every package: its folder, and the other packages that it may import.
PACKAGES = {
    "codev_env": ("codev_env", ()),
    "codev_agents": ("agents", ("codev_env",)),
    "codev_train": ("train", ("codev_env", "codev_agents")),
    "codev_eval": ("eval", ("codev_env", "codev_agents")),
}

# From the ground up: a room imports only from floors before its own, never from another room of its floor.
FLOORS = {
    "codev_env": [
        ["codev_env"],
        ["codev_env.sandbox.wire", "codev_env.trajectory"],
        ["codev_env.sandbox.language", "codev_env.sandbox.host"],
        ["codev_env.sandbox.language.facades"],
        ["codev_env.sandbox.worker", "codev_env.sandbox"],
        ["codev_env.tasks.generators", "codev_env.tasks.readers"],
        ["codev_env.tasks"],
        ["codev_env.provenance"],
        ["codev_env.dialects", "codev_env.scoring"],
        ["codev_env.judges", "codev_env.rewards"],
        ["codev_env.farm"],
        ["codev_env.envs"],
        ["codev_env.adapters"],
        ["codev_env.adapters.verifiers_plugin"],
        ["codev_env.app"],
    ],
    "codev_agents": [
        ["codev_agents"],
        ["codev_agents.cheats", "codev_agents.rollout"],
        ["codev_agents.engines"],
    ],
    "codev_train": [
        ["codev_train.run.launch", "codev_train.run.presets"],
        ["codev_train.run"],
        ["codev_train.learn"],
        ["codev_train.sft"],
        ["codev_train"],
    ],
    "codev_eval": [
        ["codev_eval.bench"],
        ["codev_eval.report"],
        ["codev_eval.agreement", "codev_eval.data.demonstrations", "codev_eval.rewards", "codev_eval.study"],
        ["codev_eval.data"],
        ["codev_eval"],
    ],
}

# Rooms that only some may use. The trust boundary: the trainer's side and the program's side share the wire only.
USERS = {
    "codev_env.sandbox.host": {"codev_env.sandbox", "codev_env.app"},
    "codev_env.sandbox.language": {"codev_env.sandbox.language.facades", "codev_env.sandbox.worker"},
    "codev_env.sandbox.language.facades": {"codev_env.sandbox.worker"},
    "codev_env.sandbox.worker": set(),
}

# The modules that may name any other by a string.
REGISTRIES = {
    "codev_env.registration": "Gymnasium loads an environment by its entry point",
    "codev_env.app.cli": "the table of commands",
    "codev_env.app.completion": "the options of every command",
    "codev_env.sandbox.worker.boot": "makes two packages without running their __init__",
}

_NAMED = re.compile(rf"({'|'.join(PACKAGES)})((\.\w+)+)(:\w+)?")


@cache
def modules() -> dict[str, Path]:
    """Every module's file, by its import name."""
    found = {}
    for package, (folder, _) in PACKAGES.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = (package, *path.relative_to(ROOT / folder).with_suffix("").parts)
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(modules()[module].read_text("utf-8"))


def room(module: str) -> str:
    """The package that a module lies in."""
    return module if modules()[module].name == "__init__.py" else module.rpartition(".")[0]


def _imported(module: str, node: ast.AST) -> Iterator[str]:
    """The dotted names that an import statement reads."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = room(module).split(".")[: 1 - node.level or None] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        yield from (f"{base}.{alias.name}" for alias in node.names)


def _named(node: ast.AST) -> Iterator[str]:
    """The dotted name that a string is, where it is one of ours."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAMED.fullmatch(node.value):
        yield node.value.partition(":")[0]


def _module_of(name: str) -> str | None:
    """The module that a dotted name leads to: itself, or what holds it."""
    return next((name for name in (name, name.rpartition(".")[0]) if name in modules()), None)


@cache
def by_import(module: str) -> frozenset[str]:
    found = {_module_of(name) for node in ast.walk(tree(module)) for name in _imported(module, node)}
    return frozenset(name for name in found if name not in (None, module))


@cache
def by_string(module: str) -> frozenset[str]:
    found = {_module_of(name) for node in ast.walk(tree(module)) for name in _named(node)}
    return frozenset(name for name in found if name not in (None, module))


def used(module: str) -> frozenset[str]:
    """The modules of ours that a module imports, or names in a string; only what a registry names does not count."""
    return by_import(module) if module in REGISTRIES else by_import(module) | by_string(module)


def uses_of_rooms() -> dict[str, dict[str, list[str]]]:
    """For every room, the other rooms that it uses, with the modules at both ends."""
    found: dict[str, dict[str, list[str]]] = {room(module): {} for module in modules()}
    for module in modules():
        for other in used(module):
            if room(other) != room(module):
                found[room(module)].setdefault(room(other), []).append(f"{module} -> {other}")
    return found


def circle(graph: dict[str, set[str]]) -> list[str]:
    """The nodes of one circle, in order; empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_every_kind_of_import_is_read():
    code = """
from . import errors
from .sandbox import Limits
import codev_env.files, numpy
if TYPE_CHECKING:
    from codev_env.sandbox.host.session import Session
def lazy():
    from codev_env import spaces, make
    return load("codev_eval.report:write"), "codev_env", "see codev_env.types"
"""
    nodes = list(ast.walk(ast.parse(code)))
    imported = {_module_of(name) for node in nodes for name in _imported("codev_env.types", node)} - {None}
    names = ("", ".errors", ".files", ".sandbox", ".sandbox.host.session", ".spaces")
    assert imported == {f"codev_env{name}" for name in names}
    assert {_module_of(name) for node in nodes for name in _named(node)} == {"codev_eval.report"}


@pytest.mark.parametrize("package", PACKAGES)
def test_there_is_no_circle_of_modules(package):
    assert circle({module: set(used(module)) for module in modules() if module.startswith(package)}) == []


def test_there_is_no_circle_of_rooms():
    assert circle({name: set(others) for name, others in uses_of_rooms().items()}) == []


def test_every_room_has_a_floor():
    placed = Counter(name for floors in FLOORS.values() for floor in floors for name in floor)
    assert set(placed) == {room(module) for module in modules()} and set(placed.values()) == {1}


def _violations(package: str) -> Iterator[str]:
    floor_of = {name: number for number, floor in enumerate(FLOORS[package]) for name in floor}
    for name, others in uses_of_rooms().items():
        for other, uses in others.items():
            if name in floor_of and other in floor_of and floor_of[other] >= floor_of[name]:
                yield from uses


@pytest.mark.parametrize("package", PACKAGES)
def test_rooms_import_from_the_floors_below(package):
    assert sorted(_violations(package)) == []


def test_secluded_rooms_have_few_users():
    uses = [(name, other, found) for name, others in uses_of_rooms().items() for other, found in others.items()]
    assert [found for name, other, found in uses if name not in USERS.get(other, {name})] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_those_they_may(package):
    allowed = {package, *PACKAGES[package][1]}
    own = [module for module in modules() if module.partition(".")[0] == package]
    uses = [(module, other) for module in own for other in used(module)]
    assert [f"{module} -> {other}" for module, other in uses if other.partition(".")[0] not in allowed] == []


def test_no_package_imports_another_by_a_string():
    named = [(module, other) for module in modules() if module not in REGISTRIES for other in by_string(module)]
    assert [f"{one} -> {other}" for one, other in named if one.partition(".")[0] != other.partition(".")[0]] == []


def test_registries_name_modules():
    assert [module for module in REGISTRIES if not by_string(module)] == []


def test_a_class_name_exists_once():
    places: dict[str, list[str]] = {}
    for module in modules():
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(module)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_at_most_one_file_is_called_base():
    assert len([path for path in modules().values() if path.name == "base.py"]) <= 1


def test_modules_are_short():
    lines = {module: len(path.read_text("utf-8").splitlines()) for module, path in modules().items()}
    assert {module: count for module, count in lines.items() if count > MOST_LINES} == {}
