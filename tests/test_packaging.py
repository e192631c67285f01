"""The built wheel, installed with only the core dependencies, and the oldest Gymnasium that is supported."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

SMOKE = """
import sys
import codev_env
assert not {"torch", "transformers"} & set(sys.modules), "the core must not import torch"
import gymnasium as gym
import codev_agents, codev_eval, codev_train
env = gym.make("codev_env:CodeV-VStar-v0", data="synthetic", scenes="toy")
trajectory = codev_agents.run_episode(env, codev_agents.Oracle(), options={"index": 0})
assert trajectory.is_correct and trajectory.is_faithful, trajectory
print("faithful")
"""


def run(*command: str, **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def make_venv(folder: Path, *packages: str) -> str:
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    run(python, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", *packages)
    return python


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", str(out), str(ROOT))
    return str(next(out.glob("*.whl")))


@pytest.mark.integration
def test_wheel_works_with_the_core_alone(wheel: str, tmp_path: Path) -> None:
    python = make_venv(tmp_path / "venv", "-c", str(ROOT / "constraints.txt"), wheel)
    installed = run(python, "-m", "pip", "list", "--format=freeze")
    assert "torch" not in installed
    assert run(python, "-c", SMOKE, cwd=tmp_path).strip().endswith("faithful")
    help_text = run(str(tmp_path / "venv" / "bin" / "codev"), "--help", cwd=tmp_path)
    assert "train" in help_text
    quiet = subprocess.run([python, "-c", "import codev_env"], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert (quiet.stdout, quiet.stderr) == ("", "")
    codev = str(tmp_path / "venv" / "bin" / "codev")
    assert "tapo: robust" in run(codev, "rewards", "list", cwd=tmp_path)
    checked = run(codev, "data", "check", "--data", "synthetic", "--scenes", "toy", "--n", "2", cwd=tmp_path)
    assert "All 2 tasks can be used." in checked
    (tmp_path / "summary.json").write_text("{}")
    for command in (["report", "."], ["view", "--port", "0", "."]):
        refused = subprocess.run([codev, *command], capture_output=True, text=True, cwd=tmp_path)
        assert refused.returncode == 1 and "codev-env[report]" in refused.stderr
    doctor = run(str(tmp_path / "venv" / "bin" / "codev"), "doctor", cwd=tmp_path)
    assert "Everything required works." in doctor and "[train]" in doctor
    missing = subprocess.run(
        [str(tmp_path / "venv" / "bin" / "codev"), "train", "--preset", "tiny"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert missing.returncode == 1
    assert "codev-env[train]" in missing.stderr


@pytest.mark.integration
def test_the_wheel_is_small(wheel: str) -> None:
    assert Path(wheel).stat().st_size < 2_000_000


@pytest.mark.integration
def test_the_extra_report_makes_reports(wheel: str, tmp_path: Path) -> None:
    python = make_venv(tmp_path / "venv", "-c", str(ROOT / "constraints.txt"), f"{wheel}[report]")
    write = "from codev_env.trajectory import write_trajectories\nwrite_trajectories('run/after', [trajectory])\n"
    run(python, "-c", SMOKE + write, cwd=tmp_path)
    (tmp_path / "run" / "summary.json").write_text('{"name": "small", "after": {"n": 1, "accuracy": 1.0}}')
    run(str(tmp_path / "venv" / "bin" / "codev"), "report", "run", cwd=tmp_path)
    assert "<article" in (tmp_path / "run" / "report.html").read_text("utf-8")


@pytest.mark.integration
def test_the_extra_docs_alone_builds_the_site(wheel: str, tmp_path: Path) -> None:
    python = make_venv(tmp_path / "venv", "-c", str(ROOT / "constraints.txt"), f"{wheel}[docs]")
    run(python, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site"), cwd=ROOT)
    assert (tmp_path / "site" / "gallery.html").is_file()


@pytest.mark.integration
def test_environments_pass_on_the_oldest_gymnasium(wheel: str, tmp_path: Path) -> None:
    without_pin = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if "gymnasium" not in line]
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("\n".join(without_pin))
    packages = "gymnasium==1.1.0", "-c", str(constraints), "pytest", "hypothesis", f"{wheel}[corruptions]"
    python = make_venv(tmp_path / "venv", *packages)
    tests = [str(ROOT / "tests" / name) for name in ("envs", "test_spaces.py")]
    out = run(
        python, "-m", "pytest", *tests, "-m", "not integration", cwd=tmp_path, env={**os.environ, "PYTHONPATH": ""}
    )
    assert " passed" in out
