"""Several processes that share the weights out, by FSDP2, do what one does alone; on CPUs."""

from __future__ import annotations

import json
import shutil
from importlib import resources
from pathlib import Path

import pytest
import torch
import yaml
from micro_run import weights
from process_group import launcher_variables, run_group
from torch.testing import assert_close
from toy_families import NAMES as FAMILY_NAMES
from toy_families import toy_policy

from codev_agents.engines.policy import Policy
from codev_train.learn.checkpoint import checkpoints

LAUNCH = resources.files("codev_train.run.launch")
HYBRID = ("--parallelism_config_dp_replicate_size", "2", "--parallelism_config_dp_shard_size", "2")
NAMES = sorted(path.name for path in LAUNCH.iterdir() if path.name.endswith(".yaml"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, played) -> Path:
    """The policy and its rollouts, in a folder for results."""
    return Path(shutil.copytree(played, tmp_path_factory.mktemp("scale"), dirs_exist_ok=True))


def updates(folder: Path, config: str, *options: str, start: str = "-") -> tuple[dict[str, torch.Tensor], dict, Path]:
    """Two updates by two processes as `config` says, by one if it is empty; returns weights, notes and checkpoint."""
    name = "-".join([config.removesuffix(".yaml") or "one", start, *options])
    out = folder / name
    hybrid = config == "hsdp.yaml"
    arguments = [str(folder), name, "[1, 1, 1, 1]" if hybrid else "[3, 1]" if config else "[4]", start, *options]
    if not out.exists():  # what one process does is wanted by several tests
        count, words = (4, HYBRID) if hybrid else (2, ()) if config else (1, ())
        variables = launcher_variables(LAUNCH / config, "--num_processes", str(count), *words) if config else {}
        done = run_group(count, "sharded_process", "scaled_process", *arguments, variables=variables)
        assert done.returncode == 0, done.stderr[-3000:]
    (checkpoint,) = checkpoints(out)
    return weights(checkpoint / "model"), json.loads((out / "told.json").read_text()), checkpoint


def same(found, wanted, tolerance: float = 1e-5, noted: float = 1e-5) -> None:
    """The weights and the notes of both agree."""
    assert found[0].keys() == wanted[0].keys()
    for name, weight in wanted[0].items():
        assert_close(found[0][name], weight, atol=tolerance, rtol=0, msg=lambda text, n=name: f"{n}: {text}")
    for a, b in zip(found[1]["updates"], wanted[1]["updates"], strict=True):
        assert a == pytest.approx(b, abs=noted, rel=noted)
    assert found[1]["sampled"] == wanted[1]["sampled"]


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_configuration_is_one_that_accelerate_reads(name):
    from accelerate.commands.config.config_args import load_config_from_file

    text = (LAUNCH / name).read_text("utf-8")
    found = load_config_from_file(str(LAUNCH / name))
    section = yaml.safe_load(text)["distributed_type"]
    assert found.distributed_type == section
    assert found.fsdp_config["fsdp_version"] == 2


WAYS = [
    pytest.param(("micro_batch=1",), id="plain"),
    pytest.param(("token_budget=400", "loss=grpo", "correction=token", "epochs=2"), id="packed"),
    pytest.param(("micro_batch=2", "gradient_checkpointing=True", "grad_clip=0.5"), id="clipped"),
    pytest.param(("micro_batch=2", "kl=0.5"), id="reference"),
    pytest.param(("micro_batch=2", "kl=0.5", "rank=2"), id="adapters"),
]


SHARED_ROWS = [
    pytest.param(("token_budget=400", "loss=grpo", "correction=token", "epochs=2"), id="whole"),
    pytest.param(("token_budget=90", "kl=0.5", "rank=2", "gradient_checkpointing=True"), id="adapters"),
]


@pytest.mark.integration
@pytest.mark.parametrize("options", SHARED_ROWS)
def test_fsdp2_processes_that_share_rows_out_take_the_steps_of_one(folder, options):
    """They share the weights out and the tokens of each packed row: sequence parallelism."""
    wanted = updates(folder, "", *options)
    found = updates(folder, "fsdp2.yaml", *options, "sequence_parallel=2")
    assert found[1]["sharded"] and not wanted[1]["sharded"]
    same(found, wanted)


@pytest.mark.integration
@pytest.mark.parametrize("options", WAYS)
def test_fsdp2_takes_the_steps_of_one_process(folder, options):
    """Weights after two SGD steps, losses, gradient norms, and what the engine samples then."""
    wanted = updates(folder, "", *options)
    found = updates(folder, "fsdp2.yaml", *options)
    assert found[1]["sharded"] and not wanted[1]["sharded"]
    before = weights(folder / "policy")
    assert max(float((wanted[0][n] - before[n]).abs().max()) for n in before) > 1e-3
    same(found, wanted)
    assert not found[1]["gathered"], "whole weights stay in memory after an update, of the policy or its reference"


FAMILY_WAYS = [
    pytest.param(("token_budget=2000", "kl=0.5", "epochs=2", "grad_clip=1.0"), id="packed"),
    pytest.param(("token_budget=2000", "gradient_checkpointing=True", "rank=2"), id="adapters"),
]


@pytest.mark.integration
@pytest.mark.parametrize("options", FAMILY_WAYS)
@pytest.mark.parametrize("family", [name for name in FAMILY_NAMES if name != "qwen3_vl"])
def test_fsdp2_takes_the_steps_of_one_process_in_each_family(family, options, play, tmp_path_factory):
    """The family of all other tests here is Qwen3-VL. One process has three rollouts, the other one."""
    made = tmp_path_factory.getbasetemp() / f"scale-{family}"
    if not made.exists():
        play(toy_policy(family), made)
    wanted = updates(made, "", *options)
    found = updates(made, "fsdp2.yaml", *options)
    assert found[1]["sharded"] and not wanted[1]["sharded"]
    before = weights(made / "policy")
    assert max(float((wanted[0][n] - before[n]).abs().max()) for n in before) > 1e-3
    same(found, wanted, noted=1e-4)  # Qwen3.5's linear layers make more of rounding, in the norm of the gradient.


@pytest.mark.integration
@pytest.mark.parametrize("options", [WAYS[2], ("micro_batch=2", "kl=0.5", "rank=2", "optimizer=adamw")])
def test_shards_in_cpu_memory_take_the_steps_of_one_process(folder, options):
    """With offload, which has no effect on the numbers; on CPUs, shards are copied from memory to memory."""
    wanted = updates(folder, "", *options)
    found = updates(folder, "fsdp2-offload.yaml", *options)
    assert found[1]["sharded"] == [2] and found[1]["offloaded"]
    if "optimizer=adamw" in options:  # makes much of rounding where a gradient is almost 0
        assert found[1]["updates"] == [pytest.approx(row, abs=1e-4, rel=1e-3) for row in wanted[1]["updates"]]
    else:
        same(found, wanted)


@pytest.mark.integration
@pytest.mark.parametrize("options", [WAYS[1], WAYS[2]])
def test_two_sharded_copies_take_the_steps_of_one_process(folder, options):
    """HSDP: two processes share out each of two copies of the weights."""
    wanted = updates(folder, "", *options)
    found = updates(folder, "hsdp.yaml", *options)
    assert found[1]["sharded"] == [2, 2]
    same(found, wanted)


@pytest.mark.integration
def test_adapters_beside_weights_in_bf16_are_trained_by_processes_that_share_both(folder):
    """As by one process, within the rounding of a computation in bf16; what is frozen stays what it was in bf16."""
    options = ("micro_batch=2", "rank=2", "precision=bf16")
    wanted, found = (updates(folder, config, *options) for config in ("", "fsdp2.yaml"))
    before = weights(folder / "policy")
    for state in (wanted[0], found[0]):
        same = {name: torch.equal(state[name], weight.bfloat16().float()) for name, weight in before.items()}
        assert {name for name, equal in same.items() if not equal} == {
            name for name in before if "language_model.layers" in name and "_proj" in name
        }
    for a, b in zip(found[1]["updates"], wanted[1]["updates"], strict=True):
        assert a == pytest.approx(b, abs=0.02, rel=0.1)


PAIRS = [
    pytest.param("", "fsdp2.yaml", "optimizer=sgd", id="one-fsdp2"),
    pytest.param("fsdp2.yaml", "", "optimizer=adamw", id="fsdp2-one"),
    pytest.param("fsdp2.yaml", "", "optimizer=muon", id="fsdp2-one-muon"),
]


@pytest.mark.integration
@pytest.mark.parametrize(("saver", "loader", "optimizer"), PAIRS)
def test_a_checkpoint_of_some_processes_is_one_that_others_go_on_from(folder, saver, loader, optimizer):
    """One process, and two that share the weights out, go on from the same checkpoint, moments and all."""
    before, _, checkpoint = updates(folder, saver, "micro_batch=1", optimizer)
    start = checkpoint.parent.parent.name
    wanted, found = (updates(folder, config, "micro_batch=1", optimizer, start=start) for config in (saver, loader))
    for a, b in zip(found[1]["updates"], wanted[1]["updates"], strict=True):
        assert a == pytest.approx(b, abs=1e-5, rel=1e-4)
    # Adam and Muon make much of rounding where a gradient is almost 0.
    moved = sum(float((wanted[0][name] - weight).abs().sum()) for name, weight in before.items())
    off = sum(float((wanted[0][name] - weight).abs().sum()) for name, weight in found[0].items())
    assert off < 0.02 * moved


@pytest.mark.integration
def test_what_shared_out_weights_leave_loads_anywhere(folder):
    state, _, checkpoint = updates(folder, "fsdp2.yaml", "micro_batch=1")
    loaded = Policy.load(str(checkpoint / "model")).model.state_dict()
    assert all(torch.equal(loaded[name], weight) for name, weight in state.items())
    for path in checkpoint.rglob("*.json"):
        assert str(folder) not in path.read_text()
