"""An adapter without its library: the error and the page say what to install, as the tests themselves do."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from codev_env.adapters.libraries import REQUIREMENTS, install_command

ROOT = Path(__file__).parents[2]

LIBRARIES = {
    "ms_swift": ("swift", "pip install ms-swift=="),
    "nemo_gym": ("fastapi", "pip install nemo-gym=="),
    "openenv": ("openenv", "pip install openenv=="),
    "skyrl": ("skyrl_gym", "pip install skyrl-gym=="),
    "torchrl": ("tensordict", "pip install torchrl=="),
    "verifiers": ("verifiers", "pip install verifiers=="),
    "verl": ("verl", "pip install verl=="),
}
"""By adapter: an import name that may be missing, and the command to install what it belongs to."""


@pytest.fixture
def replace_library(monkeypatch):
    """Put modules in the place of a library, none by default, and forget the adapter that imported it."""

    def replace(adapter: str, root: str, *modules: str) -> None:
        for name in [*sys.modules]:
            if name == f"codev_env.adapters.{adapter}" or name.startswith(f"{root}."):
                monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, root, None)
        for name in modules:
            module = ModuleType(name)
            module.__path__ = []
            monkeypatch.setitem(sys.modules, name, module)

    return replace


@pytest.mark.parametrize("adapter", LIBRARIES)
def test_an_adapter_without_its_library_says_what_to_install(adapter, replace_library):
    root, command = LIBRARIES[adapter]
    if adapter == "torchrl":
        pytest.importorskip("torch", reason="torchrl needs torch first")
    replace_library(adapter, root)
    with pytest.raises(ModuleNotFoundError, match=re.escape(command)) as missing:
        importlib.import_module(f"codev_env.adapters.{adapter}")
    assert f"codev_env.adapters.{adapter}" in str(missing.value) and missing.value.name.split(".")[0] == root
    assert str(missing.value).endswith(install_command(adapter))
    with pytest.raises(pytest.skip.Exception):
        pytest.importorskip(f"codev_env.adapters.{adapter}")


def test_a_library_of_another_version_names_the_version_to_install(replace_library):
    replace_library("skyrl", "skyrl_gym", "skyrl_gym", "skyrl_gym.envs", "skyrl_gym.envs.base_text_env")
    with pytest.raises(ImportError, match="cannot import name 'BaseTextEnv'.*pip install skyrl-gym==") as missing:
        importlib.import_module("codev_env.adapters.skyrl")
    assert not isinstance(missing.value, ModuleNotFoundError)


def test_a_model_of_lmms_eval_without_the_library_says_what_to_install(replace_library):
    from codev_env.adapters.harness import lmms_model

    replace_library("none", "lmms_eval")
    with pytest.raises(ModuleNotFoundError, match="pip install lmms-eval=="):
        lmms_model(object)


def test_the_page_and_the_tests_install_the_same():
    page = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if "| `adapters." in line]
    assert page.index("| library | module | install |") < page.index("| `adapters.trl` |")
    shown = {re.findall(r"`adapters\.(\w+)`", row[1])[0]: row[2] for row in rows}
    assert {name for name in REQUIREMENTS if name != "torchrl"} <= {*shown}
    for adapter, cell in shown.items():
        assert not cell.startswith("`pip install") or cell == f"`{install_command(adapter)}`"
    reinforcement = (ROOT / "docs" / "adapters_rl.md").read_text(encoding="utf-8")
    assert f"    {install_command('torchrl')}\n" in reinforcement


@pytest.mark.parametrize("adapter", REQUIREMENTS)
def test_the_versions_are_those_that_are_tested(adapter):
    tested = re.findall(r"[\w-]+==[\w.]+", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    assert [word for word in REQUIREMENTS[adapter] if "==" in word][:1] == [
        word for word in tested if word in REQUIREMENTS[adapter]
    ]
