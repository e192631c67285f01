"""The notebooks of examples/: valid files without outputs, whose cells run from top to bottom on toys."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_judge_server import FakeJudgeServer, says
from pages import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def code_of(path: Path) -> str:
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


def run(path: Path, folder: Path, **toys: str) -> str:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", **toys}
    command = [sys.executable, "-c", code_of(path)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_there_are_three():
    assert [path.stem for path in NOTEBOOKS] == ["default_run", "evaluate_api_model", "train_on_one_gpu"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_valid_and_holds_no_output(path):
    notebook = json.loads(path.read_text("utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    assert all(
        not cell["outputs"] and cell["execution_count"] is None for cell in notebook["cells"] if "outputs" in cell
    )
    compile(code_of(path), path.name, "exec")


@pytest.mark.integration
@pytest.mark.parametrize("name", ["default_run", "train_on_one_gpu"])
def test_training_runs_on_a_toy(name, tmp_path):
    said = run(ROOT / "examples" / f"{name}.ipynb", tmp_path, CODEV_NOTEBOOK_PRESET="smoke")
    assert "Report:" in said and (tmp_path / "runs" / "smoke" / "report.html").is_file()


@pytest.mark.integration
def test_a_notebook_that_runs_again_reads_the_run_that_it_made(tmp_path):
    for _ in range(2):
        run(ROOT / "examples" / "default_run.ipynb", tmp_path, CODEV_NOTEBOOK_PRESET="smoke")
    runs = {path.name for path in (tmp_path / "runs").iterdir() if not path.name.startswith("start")}
    assert runs == {"smoke"}


@pytest.mark.integration
def test_an_api_model_is_evaluated(tmp_path):
    with FakeJudgeServer(says("<answer>1</answer>")) as server:
        model = f"{server.url}#toy"
        said = run(
            ROOT / "examples" / "evaluate_api_model.ipynb", tmp_path, CODEV_NOTEBOOK_MODEL=model, CODEV_NOTEBOOK_N="2"
        )
    assert "accuracy" in said and (tmp_path / "results" / "compared" / "comparison.html").is_file()
