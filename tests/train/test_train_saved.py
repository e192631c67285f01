"""Groups that have ended are saved: a run that was killed takes them as they were, and makes its updates again."""

from __future__ import annotations

import dataclasses
import errno
import json
import shutil
from pathlib import Path

import pytest
import torch
from micro_run import history, same_weights, untimed

from codev_agents.rollout.groups import EndedGroup, TakenGroups
from codev_agents.rollout.player import Rollout
from codev_agents.rollout.tokens import TokenSequence
from codev_env.app.cli import main
from codev_env.errors import ConfigError
from codev_train.learn import saved
from codev_train.learn.progress import GroupLog
from codev_train.learn.saved import SavedGroups

PLAN = {"count": 2, "processes": 1, "start": 0}


@pytest.fixture
def rollouts(played) -> list[Rollout]:
    """Two episodes of one task, whose tokens two versions sampled."""
    found, _ = torch.load(played / "rollouts.pt", weights_only=False)
    for rollout in found:
        rollout.tokens.versions = [-1 if turn < 0 else 3 + turn for turn in rollout.tokens.turns]
        rollout.tokens.logprobs[-1] = -0.1234567890123456789
    return found[:2]


@pytest.fixture
def store(tmp_path, policy) -> SavedGroups:
    made = SavedGroups(tmp_path / "groups" / "0", policy.processor, "key")
    made.open(PLAN, lambda number: True)
    return made


def again(store: SavedGroups, plan: dict = PLAN, key: str = "key", free=lambda number: True) -> list[EndedGroup]:
    return SavedGroups(store._folder, store._processor, key).open(plan, free)


def names(store: SavedGroups) -> list[str]:
    return sorted(path.name for path in store._folder.iterdir())


def test_a_group_is_read_as_it_was(store, rollouts):
    store.save(EndedGroup.of(7, rollouts[0].trajectory.index, rollouts, True))
    (found,) = again(store)
    own = EndedGroup.of(7, rollouts[0].trajectory.index, rollouts, True)
    assert (found.number, found.outcome, found.versions, found.wanted) == (7, own.outcome, own.versions, True)
    read = found.load()
    assert len(read) == len(rollouts)
    for one, other in zip(read, rollouts, strict=True):
        assert one.trajectory == other.trajectory and one.cut == other.cut and one.rewards == other.rewards
        assert all(isinstance(image, type(one.trajectory.images[0])) for image in one.trajectory.images)
        for field in ("ids", "turns", "logprobs", "versions"):
            assert getattr(one.tokens, field) == list(getattr(other.tokens, field)), field
        assert len(one.tokens.images) == len(other.tokens.images) > 0
        for a, b in zip(one.tokens.images, other.tokens.images, strict=True):
            assert torch.equal(a.values, b.values) and (a.grid, a.tokens) == (b.grid, b.tokens)
    assert read[0].tokens.images[0] is read[1].tokens.images[0], "an image is processed once for a group"
    store.remove([7])  # what was read needs no file any more
    assert not names(store) and read[0].trajectory.images[0].tobytes()


def test_of_a_group_that_is_not_wanted_the_outcome_is_saved(store, rollouts):
    store.save(EndedGroup.of(3, 5, rollouts, False))
    (found,) = again(store)
    assert not found.wanted and found.outcome.index == 5 and found.outcome.episodes == 2 and found.load() == []


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_torn_file_is_removed_and_counted(store, rollouts, share):
    for number in (1, 2):
        store.save(EndedGroup.of(number, 0, rollouts, True))
    path = store._folder / names(store)[0]
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    reader = SavedGroups(store._folder, store._processor, "key")
    assert [group.number for group in reader.open(PLAN, lambda number: True)] == [2]
    assert reader.broken == 1 and names(store) == ["00000002.zip"]


@pytest.mark.parametrize("place", range(0, 100, 7))
def test_a_changed_byte_is_found(store, rollouts, place):
    store.save(EndedGroup.of(1, 0, rollouts, True))
    (path,) = store._folder.iterdir()
    content = bytearray(path.read_bytes())
    content[len(content) * place // 100] ^= 0x55
    path.write_bytes(content)
    for group in again(store):  # or in a field that nobody reads
        assert [one.tokens.ids for one in group.load()] == [one.tokens.ids for one in rollouts]


def test_groups_of_other_plans_options_and_numbers_are_removed(store, rollouts):
    for number in (1, 2):
        store.save(EndedGroup.of(number, 0, rollouts, True))
    (store._folder / ".00000003.zip.1").write_bytes(b"PK")  # of a process that was killed while it wrote
    assert [group.number for group in again(store, free=lambda number: number != 1)] == [2]
    assert names(store) == ["00000002.zip"]
    assert not again(store, plan=PLAN | {"count": 3}) and not names(store)
    store.save(EndedGroup.of(1, 0, rollouts, True))
    assert not again(store, key="other") and not names(store)


def test_a_full_disk_is_reported_once_and_does_not_end_the_run(store, rollouts, monkeypatch, capsys):
    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(saved, "write_bytes", full)
        for number in (1, 2):
            store.save(EndedGroup.of(number, 0, rollouts, True))
    assert capsys.readouterr().err.count("No space left") == 1
    store.save(EndedGroup.of(3, 0, rollouts, True))
    assert [group.number for group in again(store)] == [3]


def test_images_that_are_processed_otherwise_now_are_an_error_that_says_so(store, rollouts):
    tokens = rollouts[0].tokens
    block = dataclasses.replace(tokens.images[0], tokens=tokens.images[0].tokens + 1)
    changed = TokenSequence(tokens.ids, tokens.turns, tokens.logprobs, [block, *tokens.images[1:]], tokens.versions)
    store.save(EndedGroup.of(1, 0, [dataclasses.replace(rollouts[0], tokens=changed)], True))
    (found,) = again(store)
    with pytest.raises(ConfigError, match="other numbers of tokens"):
        found.load()


# --- with the notes of the groups ---


def taken(trained: list[int], begun: int, noted: tuple[int, ...] = ()) -> TakenGroups:
    return TakenGroups([], [], [], [*trained, *noted], 0, begun, 0, 0, trained)


@pytest.fixture
def log(tmp_path, policy, rollouts):
    """Opens the notes of a run, as a process that was started anew."""

    def opened(done: int, **more) -> GroupLog:
        store = SavedGroups(tmp_path / "groups" / str(more.get("rank", 0)), policy.processor, "key")
        return GroupLog(tmp_path, 2, done, **({"store": store, "key": "updates"} | more))

    return opened


def group(number: int, version: int, rollouts: list[Rollout]) -> EndedGroup:
    return dataclasses.replace(EndedGroup.of(number, number, rollouts, True), versions=(version, version))


@pytest.fixture
def killed(log, rollouts) -> None:
    """Three updates were made, and four groups had ended that none had used."""
    first = log(0)
    for number in range(11):
        if number != 8:  # under way
            first._store.save(group(number, min(3, number // 3), rollouts))
    first.note(1, taken([1, 0], 6))
    first.note(2, taken([2, 4], 8))
    first.note(3, taken([5, 3], 10))


def test_groups_that_no_checkpoint_includes_are_there_and_their_updates_are_made_again(log, killed, tmp_path):
    found = log(1)
    assert found.planned == [[2, 4], [5, 3]] and (found.updates, found.again) == (2, 1)
    assert [one.number for one in found.saved] == [2, 3, 4, 5, 6, 7, 9, 10]
    kept = log(1)  # killed again before anything happened
    assert kept.planned == found.planned and kept.again == 1
    kept.note(2, taken([2, 4], 11))
    rows = (tmp_path / "groups" / "0.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == [1, 2, 3]
    kept.settle(2)
    assert [one.number for one in log(2).saved] == [3, 5, 6, 7, 9, 10]
    assert log(2).planned == [[5, 3]]


def test_files_are_removed_with_the_checkpoint_that_includes_their_update(log, killed, tmp_path):
    found = log(1)
    folder = tmp_path / "groups" / "0"
    assert len(list(folder.iterdir())) == 8
    found.note(2, taken([2, 4], 11))
    found.settle(1)
    assert len(list(folder.iterdir())) == 8
    found.note(3, taken([5, 3], 11, noted=(6,)))
    found.settle(3)
    assert sorted(path.name for path in folder.iterdir()) == ["00000007.zip", "00000009.zip", "00000010.zip"]
    found.finish()
    assert not folder.exists()


def test_tokens_of_weights_that_are_lost_are_given_up(log, killed, tmp_path):
    """A group of the second update is missing: what came after it is of weights that do not come back."""
    (tmp_path / "groups" / "0" / "00000004.zip").unlink()
    found = log(1)
    assert not found.planned and [one.number for one in found.saved] == [2, 3, 5]  # of versions 0 and 1
    assert found.again == 6 and len(list((tmp_path / "groups" / "0").iterdir())) == 3
    assert [row for row in found._rows] == [1]


def test_processes_agree_on_what_is_made_again(log, killed):
    found = log(1, agree=lambda own: min(own, 1))
    assert found.planned == [[2, 4]] and [one.number for one in found.saved] == [2, 3, 4, 5, 6, 7]


def test_an_update_with_other_options_is_not_made_again_as_it_was(log, killed):
    found = log(1, key="other")
    assert not found.planned and [one.number for one in found.saved] == [2, 3, 4, 5]


def test_groups_of_processes_that_are_gone_are_removed(log, killed, tmp_path):
    shutil.copytree(tmp_path / "groups" / "0", tmp_path / "groups" / "1")
    log(1)
    assert not (tmp_path / "groups" / "1").exists()


# --- whole runs ---


@pytest.fixture(scope="module")
def unsaved(runs, arguments) -> Path:
    """A run in which no saved group was removed, as if it had been killed before each checkpoint was complete."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("settle", "finish"):
            patch.setattr(GroupLog, name, lambda *args: None)
        assert main(["train", *arguments("unsaved", "--staleness", "1", "--keep", "3")]) == 0
    return runs / "unsaved"


@pytest.mark.parametrize("done", [0, 1, 2])
def test_a_run_that_was_killed_makes_its_updates_again_bit_by_bit(unsaved, runs, done):
    run = runs / f"unsaved-{done}"
    shutil.copytree(unsaved, run)
    for name in ("after", "model", "summary.json", "report.html"):
        shutil.rmtree(run / name) if (run / name).is_dir() else (run / name).unlink()
    for step in range(done + 1, 4):
        shutil.rmtree(run / "checkpoints" / f"step-{step:06d}")
    assert main(["train", "--resume", str(run)]) == 0
    assert same_weights(run / "model", unsaved / "model")
    rows, wanted = history(run), history(unsaved)
    assert [row["step"] for row in rows] == [1, 2, 3]
    changed = {name for name in rows[0] if name.startswith("async/")}
    for row, other in zip(untimed(rows), untimed(wanted), strict=True):
        assert {k: v for k, v in row.items() if k not in changed} == {
            k: v for k, v in other.items() if k not in changed
        }
    first = rows[done]
    assert (first["async/updates_again"], first["async/groups_again"]) == (3 - done, 0)
    assert first["async/groups_kept"] >= 2 * (3 - done) and first["async/groups_broken"] == 0
    notes = [
        [json.loads(line)["trained"] for line in (one / "groups" / "0.jsonl").read_text().splitlines()]
        for one in (run, unsaved)
    ]
    assert notes[0] == notes[1] and not (run / "groups" / "0").exists()


def test_a_run_whose_saved_groups_are_torn_says_how_many(unsaved, runs):
    run = runs / "unsaved-torn"
    shutil.copytree(unsaved, run)
    for step in (2, 3):
        shutil.rmtree(run / "checkpoints" / f"step-{step:06d}")
    for path in (run / "groups" / "0").iterdir():
        path.write_bytes(path.read_bytes()[:-5])
    count = len(list((run / "groups" / "0").iterdir()))
    assert main(["train", "--resume", str(run)]) == 0
    first = history(run)[1]
    assert first["async/groups_broken"] >= count - 2 and first["async/groups_kept"] == 0
    assert first["async/groups_again"] >= 4


def test_a_finished_run_leaves_no_saved_groups(runs, arguments):
    assert main(["train", *arguments("ahead-clean", "--staleness", "1", "--steps", "2")]) == 0
    assert [path.name for path in (runs / "ahead-clean" / "groups").iterdir()] == ["0.jsonl"]
