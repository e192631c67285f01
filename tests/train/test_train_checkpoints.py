"""Checkpoints: complete or not at all, whatever the disk does; and folders that cannot be resumed from."""

from __future__ import annotations

import copy
import errno
import json
import re
import resource
import shutil
import signal
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from codev_agents.engines.policy import Policy
from codev_env.errors import ConfigError
from codev_train.learn import checkpoint
from codev_train.learn.checkpoint import (
    CheckpointError,
    CheckpointWriter,
    checkpoints,
    last,
    load_optimizer,
    prune,
    replace_folder,
)
from codev_train.learn.moments import load_moments, moments, write_moments
from codev_train.learn.optimizer import make_optimizer, set_learning_rate
from codev_train.run.options import OptimizerOptions

SHARD = "optimizer/__0_0.distcp"


def save(run: Path, step: int, policy, optimizer, keep: int) -> Path:
    """Write a checkpoint and wait for it."""
    with CheckpointWriter(run, keep) as writer:
        writer.save(step, policy, optimizer)
    return run / "checkpoints" / f"step-{step:06d}"


@pytest.fixture
def optimizer(policy):
    """An optimizer with moments, like after an update."""
    made = make_optimizer(policy.model, OptimizerOptions())
    set_learning_rate(made, 0.0)
    for parameter in policy.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    made.step()
    made.zero_grad()
    return made


@pytest.fixture
def run(policy, optimizer, tmp_path) -> Path:
    """A run with one good checkpoint, after update 1."""
    save(tmp_path, 1, policy, optimizer, keep=2)
    return tmp_path


def files(folder: Path) -> dict[str, bytes]:
    """Everything below a folder, hidden files too."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@contextmanager
def disk_of(size: int):
    """Let no file grow beyond `size` bytes: writing fails where it fails on a full disk, in the writers' own ways."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_checkpoint_holds_policy_optimizer_and_step(run, policy, optimizer):
    (folder,) = checkpoints(run)
    assert last(run) == folder and folder.name == "step-000001"
    loaded = Policy.load(str(folder / "model")).model.state_dict()
    assert all(torch.equal(v, loaded[k]) for k, v in policy.model.state_dict().items())
    fresh = make_optimizer(policy.model, OptimizerOptions(lr=1.0))
    assert load_optimizer(folder, policy.model, fresh) == 1
    for parameter in policy.model.parameters():
        assert torch.equal(fresh.state[parameter]["exp_avg"], optimizer.state[parameter]["exp_avg"])


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.99], ids=["nothing", "small files", "half", "nearly all"])
@pytest.mark.parametrize("which", ["model/model.safetensors", SHARD])
def test_a_full_disk_leaves_the_last_good_checkpoint(run, policy, optimizer, which, share):
    before = files(run)
    size = int(share * (checkpoints(run)[0] / which).stat().st_size)
    with disk_of(size), pytest.raises(CheckpointError) as caught:
        save(run, 2, policy, optimizer, keep=1)
    assert files(run) == before and len(list((run / "checkpoints").iterdir())) == 1
    message = str(caught.value)
    assert "step-000002" in message and "earlier checkpoints are untouched" in message and "--resume" in message
    # And once there is room again, it goes on.
    assert save(run, 2, policy, optimizer, keep=1) == last(run)


FULL: list[Exception] = [
    RuntimeError("basic_ios::clear: iostream error"),
    Exception("No space left on device (os error 28)"),
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EDQUOT, "Disk quota exceeded"),
    SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    SafetensorError("Error while serializing: I/O error: Disk quota exceeded (os error 122)"),
    RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534"),
    RuntimeError("[enforce fail at inline_container.cc:471] . PytorchStreamWriter failed writing file data/1"),
]


@pytest.mark.parametrize(
    ("writer", "error"),
    [("torch", error) for error in FULL] + [("model", FULL[0]), ("tokenizer", FULL[1])],
    ids=lambda value: str(value)[:40],
)
def test_every_way_of_failing_to_write_is_one_error(run, policy, optimizer, monkeypatch, writer, error):
    before = files(run)
    holder, name = {
        "torch": (torch, "save"),
        "model": (policy.model, "save_pretrained"),
        "tokenizer": (policy.processor.tokenizer, "save_pretrained"),
    }[writer]

    def fail(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(holder, name, fail)
    with pytest.raises(CheckpointError, match="could not write"):
        save(run, 2, policy, optimizer, keep=1)
    assert files(run) == before


def test_a_defect_is_not_taken_for_a_full_disk(run, policy, optimizer, monkeypatch):
    before = files(run)
    monkeypatch.setattr(policy.processor.image_processor, "save_pretrained", lambda folder: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save(run, 2, policy, optimizer, keep=1)
    assert files(run) == before


def test_an_interrupt_while_writing_leaves_nothing(run, policy, optimizer, monkeypatch):
    before = files(run)

    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(run, 2, policy, optimizer, keep=1)
    assert files(run) == before


def test_a_tokenizer_that_finds_no_room_is_one_error(policy, tmp_path):
    with disk_of(10_000), pytest.raises(CheckpointError), replace_folder(tmp_path / "tokenizer") as partial:
        policy.processor.tokenizer.save_pretrained(partial)
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_made_is_one_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CheckpointError, match="could not write"), replace_folder(tmp_path / "file" / "model"):
        pass


def test_a_folder_is_replaced_whole(tmp_path):
    folder = tmp_path / "model"
    for content in ("old", "new"):
        with replace_folder(folder) as partial:
            (partial / content).write_text(content)
            assert folder.exists() == (content == "new")
    assert files(tmp_path) == {"model/new": b"new"}


def test_what_a_kill_left_of_the_old_folder_goes_with_the_next_write(tmp_path):
    (tmp_path / ".model.removed").mkdir()
    (tmp_path / ".model.removed" / "half").write_text("old")
    with replace_folder(tmp_path / "model") as partial:
        (partial / "whole").write_text("new")
    assert files(tmp_path) == {"model/whole": b"new"}


def test_only_the_newest_are_kept(run, policy, optimizer):
    for step in (2, 10, 9999999):
        save(run, step, policy, optimizer, keep=2)
    assert [p.name for p in checkpoints(run)] == ["step-000010", "step-9999999"]
    assert last(run).name == "step-9999999"


def test_partial_folders_are_no_checkpoints_and_the_next_one_sweeps_them(run, policy, optimizer):
    (run / "checkpoints" / ".step-000005.partial").mkdir()
    (run / "checkpoints" / ".step-000004.removed").mkdir()
    (run / "checkpoints" / "step-").mkdir()
    assert [p.name for p in checkpoints(run)] == ["step-000001"]
    save(run, 2, policy, optimizer, keep=2)
    assert {p.name for p in (run / "checkpoints").iterdir()} == {"step-000001", "step-000002", "step-"}


def test_pruning_alone_ends_what_a_kill_cut_short(run, policy, optimizer):
    save(run, 2, policy, optimizer, keep=3)
    save(run, 3, policy, optimizer, keep=3)
    (run / "checkpoints" / ".step-000000.removed").mkdir()
    prune(run, keep=2)
    assert {p.name for p in (run / "checkpoints").iterdir()} == {"step-000002", "step-000003"}


def test_moments_of_other_shapes_are_refused(run, policy):
    name, parameter = next(iter(policy.model.named_parameters()))
    shard_state = {f"{name}.exp_avg": torch.zeros_like(parameter)[:-1]}
    shutil.rmtree(last(run) / "optimizer")
    write_moments(last(run) / "optimizer", shard_state)
    with pytest.raises(CheckpointError, match=re.escape(str(last(run)))):
        load_optimizer(last(run), policy.model, make_optimizer(policy.model, OptimizerOptions()))


def test_moments_of_a_frozen_weight_are_refused(run, policy):
    trained = torch.nn.ModuleDict({"model": policy.model})
    with pytest.raises(CheckpointError, match="not trained"):
        load_optimizer(last(run), trained, make_optimizer(trained, OptimizerOptions()))


def test_a_checkpoint_of_optimizer_pt_is_refused_with_what_to_do(run, policy):
    (last(run) / "optimizer.pt").write_bytes(b"")
    with pytest.raises(CheckpointError, match=re.escape(f"--model {last(run) / 'model'}")):
        load_optimizer(last(run), policy.model, make_optimizer(policy.model, OptimizerOptions()))


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_steps_go_on_bit_by_bit(policy, tmp_path, name):
    """Also those of a weight that gets its first gradient later: its moments begin then."""
    late = "model.visual.patch_embed.proj.weight"

    def step(model, optimizer, number: int) -> None:
        generator = torch.Generator().manual_seed(number)
        for key, parameter in model.named_parameters():
            random = torch.randn(parameter.shape, generator=generator)
            parameter.grad = None if key == late and number < 2 else random
        optimizer.step()

    model = copy.deepcopy(policy.model)
    options = OptimizerOptions(name=name, lr=1e-3, weight_decay=0.1)
    optimizer = make_optimizer(model, options)
    assert late in dict(model.named_parameters())
    step(model, optimizer, 0)
    step(model, optimizer, 1)
    folder = save(tmp_path, 2, Policy(model, policy.processor), optimizer, keep=1)
    other = copy.deepcopy(model)
    resumed = make_optimizer(other, options)
    assert load_optimizer(folder, other, resumed) == 2
    for number in (2, 3):
        step(model, optimizer, number)
        step(other, resumed, number)
    assert all(torch.equal(v, other.state_dict()[k]) for k, v in model.state_dict().items())


def test_what_changes_after_saving_is_not_written(policy, optimizer, tmp_path, monkeypatch):
    """Training goes on while the files are written."""
    model = copy.deepcopy(policy.model)
    own = make_optimizer(model, OptimizerOptions())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    own.step()
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    go, write = threading.Event(), checkpoint.write_moments

    def later(*arguments: object) -> None:
        assert go.wait(60)
        write(*arguments)

    monkeypatch.setattr(checkpoint, "write_moments", later)
    with CheckpointWriter(tmp_path, 1) as writer:
        writer.save(1, Policy(model, policy.processor), own)
        assert checkpoints(tmp_path) == []
        own.step()
        go.set()
    loaded = Policy.load(str(last(tmp_path) / "model")).model
    assert all(torch.equal(v, weights[k]) for k, v in loaded.state_dict().items())
    fresh = make_optimizer(loaded, OptimizerOptions())
    load_optimizer(last(tmp_path), loaded, fresh)
    assert {float(state["step"]) for state in fresh.state.values()} == {1.0}


@pytest.mark.parametrize("pressed", ["in an update", "in the wait at the end"])
def test_a_second_interrupt_does_not_wait_for_a_checkpoint(policy, optimizer, tmp_path, monkeypatch, pressed):
    """A large one takes minutes on a slow disk."""
    go, begun, write = threading.Event(), threading.Event(), checkpoint.write_moments

    def later(*arguments: object) -> None:
        begun.set()
        assert go.wait(60)
        write(*arguments)

    monkeypatch.setattr(checkpoint, "write_moments", later)
    monkeypatch.setattr(checkpoint, "GRACE_S", 0.1)
    timer = threading.Timer(0.5, lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT))
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt), CheckpointWriter(tmp_path, 1) as writer:
        writer.save(1, policy, optimizer)
        assert begun.wait(60)
        if pressed == "in an update":
            raise KeyboardInterrupt
        timer.start()
    assert time.monotonic() - started < 30 and not checkpoints(tmp_path)
    writing = [thread for thread in threading.enumerate() if thread.name.startswith("checkpoint")]
    assert writing and all(thread.daemon for thread in writing)  # the process ends without them
    go.set()
    for thread in writing:
        thread.join(60)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-000001"]


def test_a_checkpoint_that_failed_in_the_background_is_reported_by_the_next(run, policy, optimizer, monkeypatch):
    before = files(run)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", lambda *_, **__: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        writer = CheckpointWriter(run, 1)
        writer.save(2, policy, optimizer)
        with pytest.raises(CheckpointError, match="step-000002"):
            writer.save(3, policy, optimizer)
    assert files(run) == before and not writer.failed
    with writer:
        writer.save(4, policy, optimizer)
    assert [path.name for path in checkpoints(run)] == ["step-000004"]


@pytest.mark.integration
def test_eight_bits_go_on(policy, tmp_path):
    """Moments of 8 bits are stored in fp32 and rounded to 8 bits again."""
    pytest.importorskip("torchao.optim", reason="torchao is not installed: pip install 'codev-env[lowbit]'")
    model = torch.nn.Linear(128, 64)
    optimizer = make_optimizer(model, OptimizerOptions(name="adamw8bit", lr=1e-2))
    model(torch.randn(16, 128)).pow(2).mean().backward()
    optimizer.step()
    write_moments(tmp_path / "moments", moments(model, optimizer))
    fresh = make_optimizer(model, OptimizerOptions(name="adamw8bit", lr=1e-2))
    load_moments(tmp_path / "moments", model, fresh)
    for name in ("exp_avg", "exp_avg_sq"):
        wanted, found = optimizer.state[model.weight][name], fresh.state[model.weight][name]
        assert type(found) is type(wanted) and type(found).__name__ == "OptimState8bit"
        assert_close(found.dequantize(), wanted.dequantize(), rtol=0.02, atol=1e-6)


def test_a_checkpoint_can_be_moved(run, policy, tmp_path):
    """No file of it names the place where it was written."""
    for path in last(run).rglob("*.json"):
        assert str(tmp_path) not in path.read_text()
    moved = tmp_path / "elsewhere" / "checkpoints" / last(run).name
    shutil.copytree(last(run), moved)
    shutil.rmtree(run / "checkpoints")
    assert (
        load_optimizer(last(tmp_path / "elsewhere"), policy.model, make_optimizer(policy.model, OptimizerOptions()))
        == 1
    )
    assert Policy.load(str(moved / "model"))


@pytest.mark.parametrize(
    ("file", "content"),
    [
        (SHARD, b""),
        (SHARD, b"not a checkpoint"),
        (SHARD, "torn"),
        (SHARD, None),
        ("optimizer/.metadata", b""),
        ("optimizer/.metadata", "torn"),
        ("optimizer/.metadata", None),
        ("optimizer", "other"),
        ("state.json", b'{"step": 1, "optimizer": ["Muon", "AdamW"]}'),
        ("state.json", b'{"step"'),
        ("state.json", b"{}"),
        ("state.json", b"[1]"),
        ("state.json", None),
    ],
)
def test_broken_or_foreign_files_are_named(run, policy, file, content):
    path = last(run) / file
    if content == "torn":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif content == "other":
        shutil.rmtree(path)
        write_moments(path, {"weight.exp_avg": torch.zeros(2, 2)})
    elif content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(CheckpointError, match=re.escape(str(last(run)))):
        load_optimizer(last(run), policy.model, make_optimizer(policy.model, OptimizerOptions()))


def test_a_run_without_checkpoint_has_none_and_a_missing_run_is_named(tmp_path):
    assert last(tmp_path) is None
    with pytest.raises(ConfigError, match="there is no folder"):
        last(tmp_path / "missing")


# --- a checkpoint folder of another model ---


@pytest.fixture
def folder(policy, tmp_path) -> Path:
    policy.save(tmp_path / "model")
    return tmp_path / "model"


def change_config(folder: Path, **text: object) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["text_config"] |= text
    path.write_text(json.dumps(config))


def text_only(folder: Path) -> None:
    from transformers import Qwen2Config

    Qwen2Config(hidden_size=32, num_hidden_layers=1).save_pretrained(folder)


def another_width(folder: Path) -> None:
    change_config(folder, hidden_size=64, head_dim=32)


def more_layers(folder: Path) -> None:
    change_config(folder, num_hidden_layers=3)


def other_names(folder: Path) -> None:
    tensors = {f"other.{name}": value for name, value in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def torn(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


def no_json(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def unknown_model(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "codev-of-tomorrow"}')


def emptied(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


OTHERS = [text_only, another_width, more_layers, other_names, torn, no_json, unknown_model, emptied]


@pytest.mark.parametrize("make", OTHERS, ids=lambda f: f.__name__)
def test_a_folder_of_another_model_is_refused_by_name(folder, make):
    make(folder)
    with pytest.raises(ConfigError, match=re.escape(str(folder))):
        Policy.load(str(folder))


@pytest.mark.parametrize("make", [text_only, another_width], ids=lambda f: f.__name__)
def test_codev_train_refuses_it_and_leaves_nothing(folder, arguments, runs, capsys, make):
    from codev_env.app.cli import main

    make(folder)
    assert main(["train", *arguments("refused", "--model", str(folder))]) == 1
    err = capsys.readouterr().err
    assert str(folder) in err.splitlines()[-1]
    assert not (runs / "refused").exists()


def test_an_old_checkpoint_that_cannot_be_removed_does_not_end_the_run(run, policy, optimizer, monkeypatch, capsys):
    def fail(*_: object) -> None:
        raise OSError(errno.ENOTEMPTY, "Directory not empty")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "prune", fail)
        save(run, 2, policy, optimizer, keep=1)
    assert "cannot remove old checkpoints" in capsys.readouterr().err
    assert [path.name for path in checkpoints(run)] == ["step-000001", "step-000002"]
    save(run, 3, policy, optimizer, keep=1)
    assert [path.name for path in checkpoints(run)] == ["step-000003"]
