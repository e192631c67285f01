"""`codev train --staleness N`: whole runs, resuming, and updates on tokens of earlier weights."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import json
import math
import os
import random
import shutil
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import micro_run
import numpy as np
import pytest
import torch
from accelerate import Accelerator
from micro_run import history

from codev_agents.engines.hf import HFEngine
from codev_agents.rollout.engine import Prompt, Sampling
from codev_agents.rollout.stream import TakenGroups
from codev_env.app.cli import main
from codev_train.learn.ahead import Ahead
from codev_train.learn.optimizer import make_optimizer
from codev_train.learn.progress import GroupLog
from codev_train.learn.sample import Sample, make_samples
from codev_train.learn.scorer import TokenScorer
from codev_train.learn.update import EngineMismatch, Updater
from codev_train.run.options import TrainOptions

HERE = Path(__file__).parent


def notes(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "groups" / "0.jsonl").read_text().splitlines()]


def check_groups(run: Path, steps: int) -> None:
    """Each update noted its groups, none was used twice, and none was left out before those that were begun last."""
    rows = notes(run)
    assert [row["step"] for row in rows] == list(range(1, steps + 1))
    used = [number for row in rows for number in row["used"]]
    assert len(used) == len(set(used)) and all(len(row["used"]) >= 2 for row in rows)
    # Without drops, a run of two groups an update uses exactly the first ones.
    dropped = sum(row["async/groups_dropped"] for row in history(run))
    assert set(used) == set(range(2 * steps)) or dropped


@pytest.fixture(scope="module")
def ahead(runs, arguments) -> Path:
    assert main(["train", *arguments("ahead", "--staleness", "1", "--keep", "3")]) == 0
    return runs / "ahead"


def test_the_history_of_a_run_that_plays_ahead(ahead):
    rows = history(ahead)
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert [row["async/version"] for row in rows] == [0, 1, 2]
    for row in rows:
        assert 0 <= row["async/idle_trainer"] <= 1 and 0 <= row["async/idle_engine"] <= 1
        assert row["async/groups_again"] == row["async/updates_again"] == 0
        assert row["lag/0_share"] + row["lag/1_share"] == pytest.approx(1)
    assert rows[0]["lag/0_share"] == 1, "nothing is older than the first weights"
    check_groups(ahead, 3)


def test_an_evaluation_does_not_repeat_the_draws_of_the_rollouts_after_it(arguments, monkeypatch):
    seeds, seed = [], HFEngine.seed
    monkeypatch.setattr(HFEngine, "seed", lambda self, value: [seeds.append(value), seed(self, value)][1])
    assert main(["train", *arguments("seeded", "--staleness", "1", "--steps", "3", "--eval.every", "1")]) == 0
    turns = [value for value, _ in itertools.groupby(seeds)]  # evaluations, and rollouts between them
    assert len(turns) == 7 and len(set(turns[0::2])) == 1 and len(set(turns[1::2])) == 3


@pytest.mark.parametrize("done", [1, 2])
def test_a_run_that_is_killed_goes_on_without_training_on_a_group_twice(ahead, runs, done):
    """As a kill leaves it: the notes and the history are ahead of the newest checkpoint."""
    run = runs / f"ahead-killed-{done}"
    shutil.copytree(ahead, run)
    for name in ("after", "model", "summary.json", "report.html"):
        shutil.rmtree(run / name) if (run / name).is_dir() else (run / name).unlink()
    for step in range(done + 1, 4):
        shutil.rmtree(run / "checkpoints" / f"step-{step:06d}")
    with (run / "groups" / "0.jsonl").open("a") as file:
        file.write('{"step": 4, "cou')  # torn
    assert main(["train", "--resume", str(run)]) == 0
    check_groups(run, 3)
    first = history(run)[done]
    assert first["async/updates_again"] == 3 - done and first["async/groups_again"] >= 2 * (3 - done)
    assert all(row["async/updates_again"] == 0 for row in history(run)[done + 1 :])


@pytest.mark.integration
@pytest.mark.parametrize("kills", [4, pytest.param(10, marks=pytest.mark.soak)])
def test_kills_at_random_moments(tmp_path, kills):
    content = micro_run.CONFIG | {"train": micro_run.CONFIG["train"] | {"staleness": 1}}
    (tmp_path / "micro.yaml").write_text(json.dumps(content))  # JSON is YAML
    seed = int(os.environ.get("CODEV_KILL_SEED", random.SystemRandom().randrange(10**6)))
    quiet = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": str(HERE)}
    command = [sys.executable, str(HERE / "killed_process.py"), str(tmp_path), str(seed), str(kills)]
    done = subprocess.run(command, env=os.environ | quiet, capture_output=True, text=True, timeout=400 + 60 * kills)
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-1000:]}\n{(tmp_path / 'log.txt').read_text()[-3000:]}"
    for run in tmp_path.glob("killed-*/micro"):
        check_groups(run, 3)
        assert [row["step"] for row in history(run)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--engine", "vllm", "--staleness", "1"], "--staleness is 1"),
        (["--staleness", "-1"], "--staleness is -1"),
    ],
)
def test_what_does_not_work_is_refused(words, said, capsys):
    assert main(["train", "--preset", "smoke", *words]) == 1
    assert said in capsys.readouterr().err


def test_a_run_that_goes_on_in_turn_keeps_no_saved_groups(ahead, runs):
    run = runs / "ahead-in-turn"
    shutil.copytree(ahead, run)
    shutil.rmtree(run / "checkpoints" / "step-000003")
    (run / "groups" / "0").mkdir()
    (run / "groups" / "0" / "00000006.zip").write_bytes(b"a group that had ended")
    assert main(["train", "--resume", str(run), "--staleness", "0"]) == 0
    assert [row["step"] for row in history(run)] == [1, 2, 3] and not (run / "groups" / "0").exists()


# --- the notes of the groups ---


def taken(numbers: list[int], begun: int) -> TakenGroups:
    return TakenGroups([], [], [], numbers, 0, begun, 0, 0)


def test_a_log_knows_what_is_missing(tmp_path):
    log = GroupLog(tmp_path, 2)
    assert (log.start, set(log.used), log.again, log.updates) == (0, set(), 0, 0)
    log.note(1, taken([0, 2], 4))
    log.note(2, taken([1, 5], 8))
    log.note(3, taken([3, 4], 9))
    one, two = GroupLog(tmp_path, 2, 2), GroupLog(tmp_path, 2, 1)
    assert (one.start, set(one.used), one.updates) == (3, {5}, 1) and one.again == 5  # 3, 4, 6, 7, 8
    assert (two.start, set(two.used)) == (1, {2}) and len(notes_of(tmp_path)) == 1
    assert (two.updates, two.again) == (1, 6), "the later notes were dropped by the first"


def notes_of(folder: Path) -> list[str]:
    return (folder / "groups" / "0.jsonl").read_text().splitlines()


@pytest.mark.parametrize("other", [{"count": 3}, {"processes": 2}])
def test_with_other_batches_or_processes_the_draws_begin_anew(tmp_path, other):
    GroupLog(tmp_path, 2).note(1, taken([0, 1], 4))
    log = GroupLog(tmp_path, **({"count": 2, "done": 1} | other))
    assert (log.start, set(log.used)) == (other.get("count", 2), set())
    log.note(2, taken([log.start], log.start + 1))
    again = GroupLog(tmp_path, **({"count": 2, "done": 2} | other))
    assert again.start == log.start + 1


# --- the end of a run ---


def ended(taken: int, pushing: Future) -> threading.Thread:
    """Leave a run of three updates, of which so many have got their groups, while a push is under way."""
    ahead = Ahead.__new__(Ahead)
    ahead._taken, ahead._last, ahead._pushing = taken, 3, pushing
    ahead._stream, ahead._thread = SimpleNamespace(close=lambda: None), ThreadPoolExecutor(1)
    ahead._saved_steps = lambda: 0
    thread = threading.Thread(target=ahead.__exit__, args=(None, None, None), daemon=True)
    thread.start()
    return thread


def test_an_interrupted_run_does_not_wait_for_a_push_and_a_finished_one_does():
    pushing: Future = Future()
    interrupted, finished = ended(2, Future()), ended(3, pushing)
    interrupted.join(20)
    assert not interrupted.is_alive()
    finished.join(0.2)
    assert finished.is_alive()
    pushing.set_result(None)
    finished.join(20)
    assert not finished.is_alive()


def test_a_push_that_hangs_does_not_hold_the_end_of_an_interrupted_run(monkeypatch):
    monkeypatch.setattr("codev_train.learn.ahead._PUSH_S", 0.1)
    ahead, ends = Ahead.__new__(Ahead), threading.Event()
    ahead._taken, ahead._last, ahead._pushing, ahead._saved_steps = 2, 3, None, lambda: 0
    ahead._stream = SimpleNamespace(close=lambda: None, updating=contextlib.nullcontext)
    others = dict.fromkeys(("generate", "seed", "sleep", "sync"), print)
    ahead._engine = SimpleNamespace(stage=lambda model: lambda: {"done": float(ends.wait(60))}, **others)
    ahead.push(None)
    thread = threading.Thread(target=ahead.__exit__, args=(None, None, None), daemon=True)
    thread.start()
    thread.join(20)
    held = thread.is_alive()
    pushing = [one for one in threading.enumerate() if one.name.startswith("codev-push")]
    ends.set()
    assert not held
    assert pushing and all(one.daemon for one in pushing)  # the process ends without it


# --- engine and updater ---


def test_an_engine_apart_keeps_its_weights_until_they_are_pushed(policy):
    model = copy.deepcopy(policy.model)
    prompts = [Prompt(policy.processor.prompt("sys", "hello", []))]
    engine = HFEngine(model, policy.processor, apart=True, version=4)
    (before,) = engine.generate(prompts, Sampling(0.0, 8))
    (plain,) = HFEngine(policy.model, policy.processor).generate(prompts, Sampling(0.0, 8))
    assert before.ids == plain.ids and set(before.versions) == {4} and not plain.versions
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.neg_()
    assert engine.generate(prompts, Sampling(0.0, 8))[0].ids == before.ids
    engine.sync(model)
    (after,) = engine.generate(prompts, Sampling(0.0, 8))
    assert after.ids != before.ids and set(after.versions) == {5}


def updater_of(policy, **changes) -> tuple[Updater, list]:
    options = TrainOptions(**({"staleness": 2, "temperature": 0.8, "micro_batch": 2} | changes))
    model = copy.deepcopy(policy.model)
    optimizer = make_optimizer(model, options.optimizer)
    return Updater(TokenScorer(model), optimizer, policy.processor, options, Accelerator(cpu=True)), [model]


@pytest.fixture
def samples(played) -> list[Sample]:
    rollouts, advantages = torch.load(played / "rollouts.pt", weights_only=False)
    return make_samples(rollouts, advantages)


def shifted(samples: list[Sample], lag: int, by: float) -> list[Sample]:
    """The same samples as if weights that were `lag` updates older had sampled them, with other probabilities."""
    return [
        dataclasses.replace(
            s,
            lags=[lag if turn >= 0 else 0 for turn in s.turns],
            logprobs=[value + by if turn >= 0 else 0.0 for value, turn in zip(s.logprobs, s.turns, strict=True)],
        )
        for s in samples
    ]


def test_only_tokens_of_the_same_weights_are_compared_with_the_engine(policy, samples):
    updater, _ = updater_of(policy)
    with pytest.raises(EngineMismatch):
        updater.update(shifted(samples, 0, 0.5), np.random.default_rng(0))
    updater, _ = updater_of(policy)
    stats = updater.update(shifted(samples, 2, 0.5), np.random.default_rng(0))
    assert math.isnan(stats.sampler_gap)
    row = stats.row()
    assert (row["lag/0_share"], row["lag/1_share"], row["lag/2_share"]) == (0, 0, 1)
    assert row["lag/2_kl"] == pytest.approx(math.exp(-0.5) - 1 + 0.5, rel=1e-3) and math.isnan(row["lag/0_kl"])


def test_the_importance_of_a_token_is_relative_to_the_weights_that_sampled_it(policy, samples):
    """A token that the sampler found twice as likely counts half."""
    plain, (one,) = updater_of(policy, correction="token", optimizer={"lr": 1.0})
    first = plain.update(samples, np.random.default_rng(0))
    halved, (two,) = updater_of(policy, correction="token", optimizer={"lr": 1.0})
    second = halved.update(shifted(samples, 1, math.log(2)), np.random.default_rng(0))
    assert second.grad_norm == pytest.approx(first.grad_norm / 2, rel=1e-3)


def test_a_sample_knows_the_lag_of_each_token(played):
    rollouts, advantages = torch.load(played / "rollouts.pt", weights_only=False)
    tokens = rollouts[0].tokens
    tokens.versions = [-1 if turn < 0 else 3 + turn for turn in tokens.turns]
    sample, *others = make_samples(rollouts, advantages, version=5)
    assert sample.version == 3 and max(sample.lags) == 2
    assert all(lag == (0 if turn < 0 else 2 - turn) for lag, turn in zip(sample.lags, sample.turns, strict=True))
    assert all(other.version == 5 and not other.lags for other in others)


def test_a_log_whose_first_line_is_torn_can_be_resumed_from_twice(tmp_path):
    (tmp_path / "groups").mkdir()
    (tmp_path / "groups" / "0.jsonl").write_text('{"step": 1, "count": 2, "proc')
    GroupLog(tmp_path, 2).note(1, taken([0, 1], 4))
    assert (GroupLog(tmp_path, 2, 1).start, len(notes_of(tmp_path))) == (2, 1)


def test_the_shares_of_lags_are_those_of_all_minibatches(policy, samples):
    old, *new = shifted(samples, 2, 0.0)
    mixed = [old, *(dataclasses.replace(sample, lags=[]) for sample in new)]
    updater, _ = updater_of(policy, minibatches=4, epochs=2, health={"mismatch": 9.0})
    row = updater.update(mixed, np.random.default_rng(0)).row()
    counted = [sample for sample in mixed if sample.advantages.any()]
    assert row["lag/2_share"] == pytest.approx(1 / len(counted)), "of minibatches of one sample each, one has lag 2"
    assert row["lag/0_share"] + row["lag/2_share"] == pytest.approx(1)
