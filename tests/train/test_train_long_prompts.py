"""First prompts that leave no room for a turn: their tasks are skipped, counted and named; others take their place."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import micro_run
import pytest
from long_prompts import FILLER, half, lengthened
from micro_run import history, same_weights
from process_group import run_group
from test_train_resumed import interrupting

from codev_agents.agent import AgentError
from codev_agents.engines.hf import HFEngine
from codev_agents.rollout.engine import Sampling
from codev_agents.rollout.runner import RolloutRunner
from codev_agents.rollout.selection import Selection
from codev_agents.rollout.tokens import ChatProcessor
from codev_env.app.cli import main
from codev_train import experiment
from codev_train.run.environments import make_env

SAMPLING = Sampling(1.0, 24)
ROOM = ["--max-length", str(FILLER)]


@pytest.fixture
def long(monkeypatch, policy, env_options) -> set[int]:
    """Lengthens the prompts of some tasks; returns those among the first 12."""
    monkeypatch.setattr(ChatProcessor, "prompt", lengthened(half))
    env: Any = make_env(env_options, "train")
    images = [policy.processor.image(env.reset(options={"index": index})[0]["images"][0]) for index in range(12)]
    env.close()
    return {index for index, image in enumerate(images) if half([image])}


@pytest.fixture
def select(policy, env_options):
    """Plays a selection with a seeded engine."""

    def run(selection: Selection, group: int = 2, **options: Any) -> Selection:
        engine = HFEngine(policy.model, policy.processor, seed=1)
        made = RolloutRunner(lambda: make_env(env_options, "train"), policy.processor, max_length=FILLER, **options)
        with made as runner:
            runner.select(engine, selection, group, SAMPLING)
        return selection

    return run


def ids(found: Selection) -> list[list[int]]:
    return [rollout.tokens.ids for rollout in found.rollouts]


@pytest.mark.parametrize("concurrent", [1, 3, 256])
def test_skipped_tasks_give_way_to_the_next_ones(long, select, concurrent):
    found = select(Selection(range(12), 4, 4), concurrent=concurrent)
    fit = [index for index in range(12) if index not in long]
    assert 0 < len(long) < 9, "some of both kinds"
    assert [r.trajectory.index for r in found.rollouts] == [index for index in fit[:4] for _ in range(2)]
    assert [r.group for r in found.rollouts] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [task.index for task in found.skipped] == [index for index in sorted(long) if index < fit[3]]
    assert all(task.tokens > FILLER for task in found.skipped)


@pytest.mark.integration
@pytest.mark.parametrize("concurrent", [3, 256])
def test_samples_do_not_depend_on_the_pace_of_the_environments(long, select, concurrent):
    def keep(rollouts: list[Any]) -> bool:
        return sum(len(rollout.tokens) for rollout in rollouts) % 3 > 0

    one, other = (
        select(Selection(range(12), 3, 5, keep), concurrent=concurrent, workers=workers) for workers in (1, 4)
    )
    assert ids(one) == ids(other) and one.played == other.played and one.skipped == other.skipped


def test_a_list_of_tasks_is_played_whole_or_refused(long, policy, env_options):
    runner = RolloutRunner(lambda: make_env(env_options, "train"), policy.processor, max_length=FILLER)
    engine = HFEngine(policy.model, policy.processor, seed=1)
    with runner, pytest.raises(AgentError, match=r"first prompt has \d+ tokens.*--max-tokens 24 within --max-length"):
        runner.play(engine, range(12), 1, SAMPLING)


def test_a_task_that_does_not_fit_is_not_a_candidate(long, policy, env_options):
    runner = RolloutRunner(lambda: make_env(env_options, "train"), policy.processor, max_length=FILLER)
    with runner:
        right = runner.guesses(HFEngine(policy.model, policy.processor), range(12), SAMPLING.max_tokens)
    assert len(right) == 12 and all(right[index] for index in long), "as if it could be guessed: the others come first"


@pytest.mark.integration
def test_a_run_skips_counts_and_names_them_and_goes_on_as_if_never_stopped(long, arguments, runs, monkeypatch, capsys):
    assert main(["train", *arguments("long", *ROOM)]) == 0
    rows = history(runs / "long")
    out, errors = capsys.readouterr()
    played = json.loads((runs / "long" / "summary.json").read_text())["after"]["n"]
    assert f"\n{played} held-out test episodes, 95 %" in out
    said = re.findall(r"task '[a-z]+-train-\S+' \(index \d+\) is skipped: its first prompt has \d+ tokens", errors)
    assert len(rows) == 3 and sum(row["tasks_skipped"] for row in rows) > 0
    assert len(said) == len(set(said)) > 0

    with monkeypatch.context() as patch:
        patch.setattr(experiment, "Monitor", interrupting(1))
        assert main(["train", *arguments("long-stopped", *ROOM)]) == 130
    assert main(["train", "--resume", str(runs / "long-stopped")]) == 0
    assert same_weights(runs / "long" / "model", runs / "long-stopped" / "model")

    monkeypatch.setattr(experiment, "positions_of", lambda config: FILLER)
    assert main(["train", *arguments("long-positions")]) == 0
    assert same_weights(runs / "long" / "model", runs / "long-positions" / "model")


@pytest.mark.integration
def test_nothing_to_evaluate_on_is_an_error_that_names_the_option(arguments, monkeypatch, capsys):
    monkeypatch.setattr(ChatProcessor, "prompt", lengthened(lambda images: True))
    assert main(["train", *arguments("long-all", *ROOM)]) != 0
    assert "Raise --max-length or lower --max-tokens" in capsys.readouterr().err


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("long")
    micro_run.write_config(made / "micro.yaml")
    return made


def launch_long(folder: Path, which: str) -> Any:
    options = ["--config", str(folder / "micro.yaml"), "--out", str(folder), "--threads", "1", "--name", which, *ROOM]
    return run_group(2, "long_prompts", which, "train", *options)


@pytest.mark.integration
def test_two_processes_skip_different_tasks(folder):
    done = launch_long(folder, "half")
    assert done.returncode == 0, done.stderr
    rows = history(folder / "half")
    assert len(rows) == 3 and sum(row["tasks_skipped"] for row in rows) > 0


@pytest.mark.integration
def test_two_processes_end_together_if_one_has_nothing_to_play(folder):
    done = launch_long(folder, "rank1")
    assert done.returncode != 0 and "update 1 has no task to play" in done.stderr
    assert "Raise --max-length, lower --max-tokens" in done.stderr
