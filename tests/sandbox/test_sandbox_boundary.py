"""The trust boundary in the imports: trusted and untrusted code share `wire`, and nothing else."""

from __future__ import annotations

import ast
import graphlib
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from zygotes import own_zygotes

import codev_env
from codev_env.sandbox import Sandbox
from codev_env.sandbox.host import process

SANDBOX = Path(codev_env.__file__).parent / "sandbox"
ALLOWED = {
    "wire": ("wire", "codev_env.errors"),
    "language": ("wire", "language"),
    "worker": ("wire", "language", "worker"),
    "host": ("wire", "host", "codev_env.errors", "codev_env.types"),
}
"""By floor: the floors and modules of this project that it may import, lazily and for types too."""


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SANDBOX.parents[1]).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in sorted(SANDBOX.rglob("*.py"))}


def imports(path: Path) -> Iterator[str]:
    """Every module of this project that a file imports anywhere."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.partition(".")[0] == "codev_env")
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            assert not node.level, f"{path}: a relative import"
            if module.partition(".")[0] == "codev_env":
                inner = {f"{module}.{name.name}" for name in node.names} & MODULES.keys()
                yield from inner or {module}


@pytest.mark.parametrize("floor", ALLOWED)
def test_a_floor_imports_only_what_it_may(floor: str) -> None:
    allowed = tuple(name if "." in name else f"codev_env.sandbox.{name}." for name in ALLOWED[floor])
    seen = {(path.name, name) for path in (SANDBOX / floor).rglob("*.py") for name in imports(path)}
    assert seen
    assert [(file, name) for file, name in sorted(seen) if not f"{name}.".startswith(allowed)] == []


def test_no_import_circle() -> None:
    graph = {name: {other for other in imports(path) if other != name} for name, path in MODULES.items()}
    assert {*graphlib.TopologicalSorter(graph).static_order()} >= MODULES.keys()


@pytest.mark.parametrize(
    "kind", ["plain", *(pytest.param(kind, marks=pytest.mark.integration) for kind in ("science", "tables"))]
)
def test_what_workers_are_forked_from_has_no_trusted_module(kind: process.Kind, tmp_path: Path) -> None:
    boot, loaded = tmp_path / "boot.py", tmp_path / "loaded.txt"
    boot.write_text(
        textwrap.dedent(f"""
        import os, runpy, sys

        def fork(real=os.fork):
            partial = {str(loaded)!r} + ".partial"
            with open(partial, "w") as file:
                print(*sys.modules, sep="\\n", file=file)
            os.replace(partial, {str(loaded)!r})
            return real()

        os.fork = fork
        runpy.run_path({str(process._BOOT)!r}, run_name="__main__")
        """)
    )
    code = {"plain": "print(1)", "science": "print(1)  # scipy", "tables": "print(1)  # pandas"}[kind]
    with own_zygotes() as patch:
        patch.setattr(process, "_BOOT", boot)
        with Sandbox() as box, box.session({}) as session:
            assert session.run(code).stdout == "1\n"
    names = set(loaded.read_text().split())
    ours = {name for name in names if name.startswith("codev_env.") and name != "codev_env.sandbox"}
    assert "codev_env.sandbox.worker.worker" in ours
    shared = ("codev_env.errors", *(f"codev_env.sandbox.{floor}" for floor in ("wire", "worker", "language")))
    assert {name for name in ours if not name.startswith(shared)} == set()
    assert not names & {"gymnasium", "codev_agents", "codev_train", "codev_eval"}
