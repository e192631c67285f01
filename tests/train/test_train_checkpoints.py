"""Checkpoints: complete or not at all, whatever the disk does; and folders that cannot be resumed from."""

from __future__ import annotations

import errno
import json
import re
import resource
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from codev_agents.engines.policy import Policy
from codev_env.errors import ConfigError
from codev_train.learn.checkpoint import CheckpointError, checkpoints, last, load_optimizer, prune, replace_folder, save
from codev_train.learn.optimizer import make_optimizer, set_learning_rate
from codev_train.run.options import OptimizerOptions


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
    assert load_optimizer(folder, fresh) == 1
    for parameter in policy.model.parameters():
        assert torch.equal(fresh.state[parameter]["exp_avg"], optimizer.state[parameter]["exp_avg"])


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.99], ids=["nothing", "small files", "half", "nearly all"])
@pytest.mark.parametrize("which", ["model/model.safetensors", "optimizer.pt"])
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


@pytest.mark.parametrize("error", FULL, ids=str)
@pytest.mark.parametrize("writer", ["torch", "model", "tokenizer"])
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
    monkeypatch.setattr(optimizer, "state_dict", lambda: 1 / 0)
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


def test_moments_of_other_shapes_are_refused(run, policy, tmp_path):
    """As many weights, in as many groups, but one of another shape: `torch` itself would take it."""
    path = last(run) / "optimizer.pt"
    state = torch.load(path, weights_only=True)
    state["state"][0]["exp_avg"] = state["state"][0]["exp_avg"][:-1]
    torch.save(state, path)
    with pytest.raises(CheckpointError, match=re.escape(str(last(run)))):
        load_optimizer(last(run), make_optimizer(policy.model, OptimizerOptions()))


def test_a_checkpoint_can_be_moved(run, policy, tmp_path):
    """No file of it names the place where it was written."""
    for path in last(run).rglob("*.json"):
        assert str(tmp_path) not in path.read_text()
    moved = tmp_path / "elsewhere" / "checkpoints" / last(run).name
    shutil.copytree(last(run), moved)
    shutil.rmtree(run / "checkpoints")
    assert load_optimizer(last(tmp_path / "elsewhere"), make_optimizer(policy.model, OptimizerOptions())) == 1
    assert Policy.load(str(moved / "model"))


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("optimizer.pt", b""),
        ("optimizer.pt", b"not a checkpoint"),
        ("optimizer.pt", "torn"),
        ("optimizer.pt", "list"),
        ("optimizer.pt", "other"),
        ("optimizer.pt", "muon"),
        ("optimizer.pt", None),
        ("state.json", b'{"step"'),
        ("state.json", b"{}"),
        ("state.json", b"[1]"),
        ("state.json", None),
    ],
)
def test_broken_or_foreign_files_are_named(run, policy, file, content):
    path = last(run) / file
    other = torch.nn.Linear(2, 2)
    if content == "torn":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif content == "list":
        torch.save([1, 2], path)
    elif content in ("other", "muon"):
        name = "muon" if content == "muon" else "adamw"
        torch.save(make_optimizer(other, OptimizerOptions(name=name)).state_dict(), path)
    elif content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(CheckpointError, match=re.escape(str(last(run)))):
        load_optimizer(last(run), make_optimizer(policy.model, OptimizerOptions()))


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
