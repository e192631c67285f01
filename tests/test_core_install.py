"""Commands that work with the four packages of the core, as if no other one were installed; test_packaging.py tries a
wheel in an environment of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ALONE = """
import importlib.util, sys
from importlib.metadata import packages_distributions
CORE = {"gymnasium", "numpy", "PIL", "RestrictedPython", "farama_notifications", "cloudpickle", "typing_extensions"}
OURS = {"codev_env", "codev_agents", "codev_eval", "codev_train"}
HIDDEN = packages_distributions().keys() - CORE - OURS - set(sys.stdlib_module_names)
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name.partition(".")[0] in HIDDEN else find(name, package)
sys.meta_path.insert(0, Hide())
"""
MAIN = "from codev_env.app import cli\nsys.exit(cli.main(sys.argv[1:]))\n"


def codev(*words: str, alone: bool = True) -> subprocess.CompletedProcess[str]:
    code = (ALONE if alone else "import sys\n") + MAIN
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "line",
    [
        "rewards list",
        "rewards list --json",
        "rewards list --help",
        "rewards list --jsn",
        "data check --help",
        "data check --data synthetic --scenes toy --n 2",
        "data check --data synthetic --scenes toy --n 0",
        "data check --data synthetic --scenes toy --n two",
        "data check --data synthetic --scenes toy --n 1.5",
        "data check --data synthetic --difficulty inf",
        "data check",
        "data check --data synthetic --on-error skip",
        "view --port 99999 .",
        "view --port 1",
    ],
)
def test_a_command_says_the_same_with_and_without_the_other_packages(line: str) -> None:
    alone, beside = codev(*line.split()), codev(*line.split(), alone=False)
    assert "Traceback" not in alone.stderr
    assert (alone.returncode, alone.stdout) == (beside.returncode, beside.stdout)
    # A progress bar is drawn to stderr where tqdm is installed.
    last = beside.stderr.rpartition("\r")[2] if beside.returncode == 0 else beside.stderr
    assert alone.stderr == ("" if beside.returncode == 0 else last)


def test_tasks_of_ones_own_are_checked(tmp_path: Path) -> None:
    from PIL import Image

    Image.new("RGB", (64, 64), "red").save(tmp_path / "a.png")
    rows = '{"image": "a.png", "question": "Which colour?", "answer": "red"}\n'
    rows += '{"image": "b.png", "question": "Which?", "answer": "red"}\n'
    (tmp_path / "data.jsonl").write_text(rows)
    done = codev("data", "check", "--bench", "dataset", "--data", str(tmp_path / "data.jsonl"))
    assert done.returncode == 1 and not done.stderr and "b.png" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("line", "extra"),
    [
        ("report {run}", "report"),
        ("view --port 0 {run}", "report"),
        ("data filter --data synthetic --agent scripted:oracle --out {run}/tasks.jsonl", "eval"),
        ("eval --model scripted:lazy --bench vstar --data synthetic --out {run}/out", "eval"),
        ("judge --help", "eval"),
        ("train --preset tiny", "train"),
    ],
)
def test_a_command_that_needs_more_names_the_extra_before_it_does_anything(
    line: str, extra: str, tmp_path: Path
) -> None:
    (tmp_path / "summary.json").write_text("{}")
    done = codev(*line.format(run=tmp_path).split())
    assert done.returncode == 1 and f'pip install "codev-env[{extra}]"' in done.stderr
    assert "Traceback" not in done.stderr and not done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


def test_importing_the_package_prints_nothing() -> None:
    code = ALONE + "import codev_env, codev_agents, codev_eval, codev_train\n"
    done = subprocess.run([sys.executable, "-W", "default", "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
