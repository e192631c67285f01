"""`import codev_agents` is light, and a floor of it imports only the floors above."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import codev_agents

LIGHT = ("codev_agents", "codev_agents.cheats", "codev_agents.engines", "codev_agents.engines.options")
FLOORS = ("", "rollout", "engines")
"""From the top; a module belongs to the floor of its folder."""


@pytest.mark.parametrize("module", LIGHT)
def test_importing_it_loads_no_torch(module):
    code = f"import sys, {module}; sys.exit(sorted({{'torch', 'transformers'}} & sys.modules.keys()) or 0)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


LEAN = """
import sys
from codev_agents.engines.lean import import_transformers
import_transformers()
from codev_agents.engines.policy import Policy
assert not {"sklearn", "scipy"} & sys.modules.keys()
import scipy.optimize, sklearn.metrics  # others find them
import_transformers()
assert "scipy" in sys.modules
"""
LATE = """
from transformers import AutoConfig  # as a notebook may have done
from codev_agents.engines.lean import import_transformers
import_transformers()
from codev_agents.engines.policy import Policy
"""


@pytest.mark.parametrize("code", [LEAN, LATE], ids=["first", "after others"])
def test_transformers_comes_without_packages_that_take_long_and_do_nothing_here(code):
    if not all(importlib.util.find_spec(name) for name in ("transformers", "sklearn", "scipy")):
        pytest.skip("transformers, scikit-learn or SciPy is not installed")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def floor_of(module: str) -> int:
    parts = module.split(".")
    return FLOORS.index(parts[1]) if len(parts) > 1 and parts[1] in FLOORS else 0


def imported(path: Path) -> set[str]:
    """The modules of `codev_agents` that a file imports, lazily or for types alone, too."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    names = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return {name for name in names if name.split(".")[0] == "codev_agents"}


def test_a_floor_imports_only_the_floors_above():
    root = Path(codev_agents.__file__).parent
    files = sorted(root.rglob("*.py"))
    wrong = []
    for path in files:
        module = ".".join(("codev_agents", *path.relative_to(root).with_suffix("").parts))
        wrong += [f"{module} imports {name}" for name in imported(path) if floor_of(name) > floor_of(module)]
    assert len(files) > 20 and not wrong


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("OracleAgent", "Oracle"),
        ("NoToolAgent", "NoTool"),
        ("LazyCropAgent", "LazyCrop"),
        ("RandomCropAgent", "RandomCrop"),
        ("DecorativeCropAgent", "DecorativeCrop"),
    ],
)
def test_earlier_names_work_and_say_what_replaces_them(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"codev_agents\.{old} is now codev_agents\.{new}; .* 0\.3\.0"):
        found = getattr(codev_agents, old)
    assert found is getattr(codev_agents, new)
    with pytest.raises(AttributeError, match="no attribute 'Nobody'"):
        _ = codev_agents.Nobody  # type: ignore[attr-defined]
