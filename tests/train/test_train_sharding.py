"""FSDP2 in two processes on CPUs: precision of its passes, and passes with and without images side by side."""

from __future__ import annotations

import shutil
from importlib import resources
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType
from process_group import launcher_variables, run_group
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.testing import assert_close
from toy_families import NAMES, toy_policy

from codev_train.learn import reference, trained
from codev_train.learn.checkpoint import checkpoints
from codev_train.learn.sharding import Layout, computing_in_fp32, layout_of, make_accelerator
from codev_train.run.options import TrainOptions

LAUNCH = resources.files("codev_train.run.launch")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, played) -> Path:
    """The policy and its rollouts, in a folder for results."""
    return Path(shutil.copytree(played, tmp_path_factory.mktemp("sharding"), dirs_exist_ok=True))


def start(processes: int, module: str, *arguments: str, shards: bool = True) -> None:
    """Run a module of these tests, sharded if there is more than one process and nothing else is said."""
    shards &= processes > 1
    variables = launcher_variables(LAUNCH / "fsdp2.yaml", "--num_processes", str(processes)) if shards else {}
    done = run_group(processes, "sharded_process", module, *arguments, variables=variables, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]


def passes(
    folder: Path, processes: int, precision: str, *kinds: str, shards: bool = True
) -> tuple[list[torch.Tensor], dict]:
    """Return the log-probabilities of each sample, and the whole gradient."""
    name = "-".join([str(processes), precision, *kinds, *([] if shards else ["copies"])])
    if not (folder / f"{name}.0").exists():
        start(processes, "sharded_passes", str(folder), name, precision, *kinds, shards=shards)
    results = [torch.load(folder / f"{name}.{rank}") for rank in range(processes)]
    assert all(sharded == (shards and processes > 1) for _, _, sharded in results)
    return [logprobs for found, _, _ in results for logprobs in found], results[0][1]


@pytest.mark.integration
def test_sharded_passes_in_bf16_are_as_exact_as_those_of_one_process(folder):
    """Log-probabilities are not rounded to bf16, nor are the gradients, which are added up in fp32."""
    kinds = ("image", "image")
    found, gradients = passes(folder, 2, "bf16", *kinds)
    alone, _ = passes(folder, 1, "bf16", *kinds)
    exact, _ = passes(folder, 1, "fp32", *kinds)
    for own, one, true in zip(found, alone, exact, strict=True):
        assert not torch.equal(own, own.bfloat16().float())
        assert (own - true).abs().mean() < 1.2 * (one - true).abs().mean()
    assert not any(torch.equal(g, g.bfloat16().float()) for g in gradients.values())


@pytest.mark.integration
@pytest.mark.parametrize("shards", [True, False], ids=["fsdp2", "copies"])
def test_a_pass_without_images_runs_beside_one_with_images(folder, shards):
    """Both end, and the gradient is that of one process that makes both; also where each has a whole copy (DDP)."""
    found, gradients = passes(folder, 2, "fp32", "image", "text", shards=shards)
    wanted, expected = passes(folder, 1, "fp32", "image", "text")
    assert_close(found, wanted, atol=1e-5, rtol=0)
    assert gradients.keys() == expected.keys()
    assert_close(gradients, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.integration
@pytest.mark.parametrize("family", [name for name in NAMES if name != "qwen3_vl"])
def test_a_packed_row_with_images_runs_beside_text_in_each_family(family, play, tmp_path):
    """As above; the family of the other tests is Qwen3-VL."""
    kinds = ("packed", "text")
    play(toy_policy(family), tmp_path)
    found, gradients = passes(tmp_path, 2, "fp32", *kinds)
    wanted, expected = passes(tmp_path, 1, "fp32", *kinds)
    assert_close(found, wanted, atol=1e-5, rtol=0)
    assert gradients.keys() == expected.keys()
    assert_close(gradients, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.integration
def test_a_cold_start_takes_uneven_examples(folder):
    """One process runs three passes and the other one: both end, and the gradient is that of one process."""
    start(2, "sharded_start", str(folder), "uneven", "[3, 1]")
    start(1, "sharded_start", str(folder), "alone", "[4]")
    (found, sharded), (wanted, whole) = (torch.load(folder / name) for name in ("uneven", "alone"))
    assert sharded and not whole
    assert found.keys() == wanted.keys()
    assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.integration
def test_a_cold_start_in_bf16_rounds_no_sharded_gradient(folder):
    start(2, "sharded_start", str(folder), "rounded", "[3, 1]", "bf16")
    start(1, "sharded_start", str(folder), "rounded-alone", "[4]", "bf16")
    start(1, "sharded_start", str(folder), "exact", "[4]")
    (found, sharded), (wanted, _), (exact, _) = (torch.load(folder / n) for n in ("rounded", "rounded-alone", "exact"))
    assert sharded and {gradient.dtype for gradient in found.values()} == {torch.float32}
    a, b, c = (torch.cat([gradients[name].flatten() for name in wanted]) for gradients in (found, wanted, exact))
    assert 0 < (b - c).norm() < 0.1 * c.norm()
    assert (a - b).norm() < 0.1 * (b - c).norm(), "sums over passes and processes are in fp32"


@pytest.mark.integration
@pytest.mark.parametrize("full", [0, 1])
def test_a_process_whose_disk_is_full_ends_the_checkpoint_of_all(full, folder, tmp_path):
    """All get the same message, nobody waits, earlier checkpoints stay, and the next one is written."""
    (tmp_path / "policy").symlink_to(folder / "policy")
    start(2, "full_disk_process", str(tmp_path), str(full))
    told = [(tmp_path / f"told.{rank}").read_text().split("\n") for rank in range(2)]
    assert told[0] == told[1]
    first, second, third = told[0]
    assert not first and not third
    assert "could not write" in second and "step-000002" in second and "earlier checkpoints are untouched" in second
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["step-000001", "step-000003"]
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) == 2


@pytest.mark.parametrize("main", [True, False])
def test_of_the_processes_that_share_weights_the_main_one_alone_reads_them(main, policy, tmp_path, monkeypatch):
    """The policy, and the reference of the KL term: nothing of them is moved to a device before it is sharded."""
    policy.save(tmp_path)
    given = []
    accelerator = SimpleNamespace(is_fsdp2=True, is_main_process=main, unwrap_model=lambda module: module)
    for place in (reference, trained):
        monkeypatch.setattr(place, "prepare", lambda _, module, trained=True: given.append((module, trained)) or module)
    options = TrainOptions(kl=0.1, model=str(tmp_path))
    found = trained.load_trained(options, options.model, None, accelerator)
    reference.make_reference(options, found.module, accelerator)
    for (module, _), learns in zip(given, (True, False), strict=True):
        assert {p.device.type for p in module.parameters()} == {"cpu" if main else "meta"}
        assert {p.requires_grad for p in module.parameters()} == {learns}
    assert [learns for _, learns in given] == [True, False]


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, Layout("fsdp2")),
        ({"FSDP_OFFLOAD_PARAMS": "true"}, Layout("fsdp2-offload")),
        ({"FSDP_VERSION": "1"}, Layout("FSDP, version 1")),
        ({"ACCELERATE_USE_FSDP": "false"}, Layout("none")),
    ],
)
def test_the_layout_is_that_of_the_launcher(environment, wanted, monkeypatch):
    for name, value in ({"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"} | environment).items():
        monkeypatch.setenv(name, value)
    AcceleratorState._reset_state(reset_partial_state=True)
    try:
        PartialState(cpu=True)._shared_state["distributed_type"] = DistributedType.MULTI_GPU
        assert layout_of(make_accelerator()) == wanted
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)


def test_a_launch_for_fsdp2_on_cpus_says_that_it_shards_nothing(monkeypatch, capsys):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_VERSION", "2")
    AcceleratorState._reset_state(reset_partial_state=True)
    try:
        make_accelerator()
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)
    assert "shards nothing on CPUs" in capsys.readouterr().err


def test_gradients_are_never_divided_by_the_accumulation_steps_of_a_launcher(monkeypatch):
    """An update is one step, however many passes it takes: `accelerate launch --gradient_accumulation_steps 4`."""
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4")
    accelerator = make_accelerator()
    assert accelerator.gradient_accumulation_steps == 1
    weight = torch.ones(1, requires_grad=True)
    accelerator.backward(weight.sum())
    assert weight.grad.tolist() == [1.0]


@pytest.mark.parametrize("sharded", [False, True])
def test_a_cold_start_computes_in_fp32_in_a_run_of_bf16(sharded):
    """The folder of its result is that of `codev sft`, which knows no precision."""
    plugin = SimpleNamespace(mixed_precision_policy="bf16")
    accelerator = SimpleNamespace(native_amp=True, is_fsdp2=sharded, state=SimpleNamespace(fsdp_plugin=plugin))
    with computing_in_fp32(accelerator):
        assert not accelerator.native_amp
        assert not sharded or plugin.mixed_precision_policy == MixedPrecisionPolicy()
    assert plugin.mixed_precision_policy == "bf16"
