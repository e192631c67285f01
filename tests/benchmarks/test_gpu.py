"""The GPU benchmark: every part runs at toy size, resumes, and judges its goals by what was measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import gpu  # noqa: E402
import gpu_models  # noqa: E402
import gpu_page  # noqa: E402
import gpu_parts  # noqa: E402

BLOCKER = """
from importlib.machinery import PathFinder

found = PathFinder.find_spec
missing = {"RestrictedPython", "vllm", "trl", "flash_attn", "datasets", "tensorboard", "cv2"}
PathFinder.find_spec = staticmethod(lambda name, *rest: None if name.split(".")[0] in missing else found(name, *rest))
"""


def run(tmp_path: Path, *arguments: str) -> str:
    """Run the benchmark with a Python that lacks what a GPU machine may lack."""
    (tmp_path / "sitecustomize.py").write_text(BLOCKER)
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), "--out", str(tmp_path / "out"), "--toy", *arguments]
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.integration
def test_every_part_runs_at_toy_size_and_leaves_the_page_alone(tmp_path):
    page = (ROOT / "docs" / "gpu.md").read_text()
    told = run(tmp_path)
    assert "numbers mean nothing" in told
    assert (ROOT / "docs" / "gpu.md").read_text() == page
    for part in gpu.NAMES:
        rows = gpu_parts.results(tmp_path / "out" / "toy" / f"{part}.jsonl")
        assert rows, part
        states = {cell: row["state"] for cell, row in rows.items()}
        assert set(states.values()) <= {"measured", "not installed"}, states
        if part in ("machine", "update-3b", "update-7b", "agreement"):
            assert set(states.values()) == {"measured"}, states
    assert "packages" in os.listdir(tmp_path / "out")
    # The second run finds every result.
    before = (tmp_path / "out" / "toy" / "machine.jsonl").read_bytes()
    run(tmp_path, "--parts", "machine")
    assert (tmp_path / "out" / "toy" / "machine.jsonl").read_bytes() == before


def test_the_parts_are_those_that_can_be_named():
    assert tuple(gpu_parts.PARTS) == gpu.NAMES


@pytest.fixture
def part(monkeypatch, tmp_path):
    """Return a part of given measurements, and what it measured."""

    def make(**cells):
        monkeypatch.setitem(gpu_parts.PARTS, "machine", lambda toy: iter(cells.items()))
        path = tmp_path / "machine.jsonl"
        try:
            gpu_parts.measure("machine", path, True)
        except RuntimeError:
            pass
        return gpu_parts.results(path)

    return make


def test_out_of_memory_is_a_result_and_the_next_cell_follows(part):
    def full():
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB\nmore")

    rows = part(a=full, b=lambda: {"seconds": 1.0})
    assert rows["a"]["state"] == "out of memory" and "1 GiB" in rows["a"]["why"]
    assert rows["b"] == {"cell": "b", "state": "measured", "seconds": 1.0}


def test_an_error_ends_the_process_and_is_recorded_and_not_tried_again(part):
    def broken():
        raise RuntimeError("CUDA error: device-side assert")

    assert "device-side" in part(a=broken, b=lambda: {"seconds": 1.0})["a"]["why"]
    rows = part(a=broken, b=lambda: {"seconds": 1.0})
    assert rows["a"]["state"] == "failed" and rows["b"]["state"] == "measured"


def test_a_part_goes_on_after_it_was_killed(part, tmp_path):
    path = tmp_path / "machine.jsonl"
    path.write_text(
        '{"cell": "a", "state": "measured", "seconds": 3.0}\n{"cell": "b", "state": "begun"}\n{"cell": "b", "sta'
    )
    rows = part(a=lambda: pytest.fail("a was measured again"), b=lambda: {"seconds": 2.0})
    assert rows["a"]["seconds"] == 3.0 and rows["b"]["seconds"] == 2.0


def test_a_cell_that_ends_the_process_twice_is_given_up(part, tmp_path):
    begun = json.dumps({"cell": "a", "state": "begun"})
    (tmp_path / "machine.jsonl").write_text(f"{begun}\n{begun}")
    assert part(a=lambda: pytest.fail("measured a third time"))["a"]["state"] == "failed"


def test_a_number_that_is_not_finite_is_a_failure(part):
    assert part(a=lambda: {"seconds": float("nan")})["a"]["state"] == "failed"


@pytest.mark.parametrize(("name", "known"), [("3b", "Qwen2.5-VL-3B"), ("7b", "Qwen2.5-VL-7B")])
def test_the_architectures_have_the_published_sizes(name, known):
    from codev_train.run.model_size import config_size
    from codev_train.run.sizes import KNOWN_MODELS

    found = config_size(gpu_models.make_config(gpu_models.SIZES[name]), known)
    assert found == KNOWN_MODELS[known]


@pytest.mark.parametrize("length", [128, 512])
def test_a_made_up_trajectory_is_one_that_the_trainer_takes(length):
    size = gpu_models.SIZES["tiny"]
    for sample in gpu_models.make_samples(size, length, 2):
        assert len(sample.ids) == len(sample.turns) == len(sample.mask) == length
        assert sample.ids.count(size.ids.image_id) == sum(block.tokens for block in sample.images)
        assert 0.3 * length < sum(block.tokens for block in sample.images) <= length / 2
        assert sorted(set(sample.turns)) == [-1, 0, 1, 2, 3] and not sample.mask[0]


def test_operations_are_those_of_the_estimate_without_what_is_computed_again():
    from codev_train.run.estimate import update_flops
    from codev_train.run.model_size import measure
    from codev_train.run.options import EstimateOptions, TrainOptions

    size = gpu_models.SIZES["tiny"]
    model = gpu_models.make_model(size, "meta")
    (sample,) = gpu_models.make_samples(size, 256, 1)
    images = sum(block.tokens for block in sample.images) / 256
    assumed = EstimateOptions(trajectory=256, response=sample.size, images=images)
    options = TrainOptions(estimate=assumed, train_vision=False)
    wanted = update_flops(measure(model, ""), options)
    assert gpu_models.useful_flops(model, sample, lora=False) == pytest.approx(wanted)
    assert gpu_models.useful_flops(model, sample, lora=True) < wanted


def rows(path: Path, **cells) -> None:
    path.write_text("\n".join(json.dumps({"cell": cell, "state": "measured", **row}) for cell, row in cells.items()))


def holds(out: Path) -> list[str]:
    """Return the second column of the goals."""
    text = gpu_page.text(out, "NVIDIA H200", {"torch": "2.11"}, "make gpu", toy=False)
    table = text.split("| --- | --- | --- |\n")[1].split("\n\n")[0]
    return [line.split(" | ")[1] for line in table.splitlines()]


def test_goals_are_open_without_measurements_and_judged_with_them(tmp_path):
    assert holds(tmp_path) == ["open"] * 4
    good = {"tflops": 500.0, "used_gib": 20.0, "seconds": 1.0}
    slow = {"used_gib": 50.0, "seconds": 2.5}
    rows(tmp_path / "update-3b.jsonl", **{"lora, 2048": {**good, "tflops": 1.0}, "lora, 8192": good})
    rows(tmp_path / "trl.jsonl", **{"lora, 8192, ours": good, "lora, 8192, TRL": slow})
    assert holds(tmp_path) == ["open", "yes", "yes", "yes"]  # the 7B model is not measured
    rows(tmp_path / "update-7b.jsonl", **{"full, 8192": good})
    assert holds(tmp_path)[0] == "yes"
    rows(tmp_path / "update-7b.jsonl", **{"full, 8192": {**good, "tflops": 300.0}})
    rows(tmp_path / "trl.jsonl", **{"lora, 8192, ours": good, "lora, 8192, TRL": {"used_gib": 30.0, "seconds": 1.5}})
    rows(tmp_path / "update-3b.jsonl", **{"lora, 32768": {**good, "used_gib": 23.0}})
    assert holds(tmp_path) == ["**no**"] * 4


def test_the_page_keeps_what_is_around_the_results(tmp_path):
    page = tmp_path / "gpu.md"
    page.write_text("before\n<!-- results -->\nold\n<!-- end of results -->\nafter\n")
    gpu_page.write(page, "new\n")
    gpu_page.write(page, "newer\n")
    assert page.read_text() == "before\n<!-- results -->\n\nnewer\n\n<!-- end of results -->\nafter\n"
    assert gpu_page.BEGIN in (ROOT / "docs" / "gpu.md").read_text()


def test_wheels_that_are_brought_along_are_found(tmp_path):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with pytest.raises(SystemExit, match="gpu-wheels"):
        gpu.search_path(tmp_path / "out", wheels)
    with zipfile.ZipFile(wheels / "brought-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("brought.py", "")
        wheel.writestr("brought-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: brought\nVersion: 1.0\n")
        wheel.writestr("brought-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("brought-1.0.dist-info/RECORD", "")
    paths = [Path(path) for path in gpu.search_path(tmp_path / "out", wheels).split(os.pathsep)]
    assert (paths[0] / "codev_train" / "learn" / "update.py").is_file()
    assert (paths[1] / "brought.py").is_file()
