"""Which tasks are played: curricula, what they remember, and groups that are played again for want of a signal."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from micro_run import history, same_weights, untimed
from test_train_run import interrupting

from codev_agents.rollout.player import Rollout
from codev_env.app.cli import main
from codev_env.errors import ConfigError
from codev_train import experiment
from codev_train.learn.curriculum import PLAYED, TaskChooser, Visit, get_curriculum, success_band, uniform
from codev_train.learn.resample import play_with_signal, with_signal


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


# --- curricula ---


def test_uniform_is_the_plain_draw():
    assert uniform(rng(), 1000, 5, {}) == rng().integers(1000, size=5).tolist()


def test_success_band_plays_half_again_where_the_policy_is_neither_always_nor_never_right():
    visits = {1: Visit(1, 0, 8), 2: Visit(1, 8, 8), 3: Visit(2, 4, 8), 4: Visit(3, 2, 8), 5: Visit(3, 6, 8)}
    chosen = success_band(rng(), 10**9, 4, visits)
    assert len(chosen) == 4 and len({*chosen[:2]} & {3, 4, 5}) == 2
    assert not {*chosen[2:]} & {*visits}, "the others are drawn from all tasks"


def test_success_band_draws_uniformly_where_nothing_is_in_the_band():
    assert success_band(rng(), 50, 4, {1: Visit(1, 0, 8)}) == uniform(rng(), 50, 4, {})


@given(
    st.dictionaries(st.integers(0, 30), st.tuples(st.integers(0, 8), st.just(8)), max_size=20),
    st.integers(1, 12),
)
def test_success_band_gives_as_many_as_are_wanted_and_each_old_one_once(seen, count):
    visits = {index: Visit(1, *result) for index, result in seen.items()}
    chosen = success_band(rng(), 31, count, visits)
    assert len(chosen) == count and all(0 <= index < 31 for index in chosen)
    in_band = sum(0.2 <= visit.success <= 0.8 for visit in visits.values())
    again = chosen[: min(count // 2, in_band)]
    assert len(again) == len({*again}) and all(0.2 <= visits[index].success <= 0.8 for index in again)


def test_unknown_curricula_are_refused():
    with pytest.raises(ConfigError, match="Did you mean 'success-band'"):
        get_curriculum("sucess-band")
    with pytest.raises(ConfigError, match="module:attribute"):
        get_curriculum("micro_run:no_such")
    with pytest.raises(ConfigError, match="must be a function"):
        get_curriculum("micro_run:CONFIG")


# --- what is remembered ---


def next_ones(generator: Any, size: int, count: int, visits: Any) -> list[int]:
    """The tasks after the last ones that were played: depends on what is remembered, and on nothing else."""
    newest = max((visit.step for visit in visits.values()), default=0)
    start = max((index + 1 for index, visit in visits.items() if visit.step == newest), default=0)
    return [(start + n) % size for n in range(count)]


def outside(generator: Any, size: int, count: int, visits: Any) -> list[int]:
    return [size] * count


NEXT = f"{__name__}:next_ones"


def test_a_chooser_remembers_the_last_visit_and_reads_it_back(tmp_path):
    chooser = TaskChooser(NEXT, 10, tmp_path)
    assert chooser.choose(rng(), 2) == [0, 1]
    chooser.note(1, [(0, 1, 4), (1, 4, 4)])
    chooser.note(2, [(1, 0, 4), (7, 2, 4)])
    assert chooser.choose(rng(), 2) == [8, 9]
    assert TaskChooser(NEXT, 10, tmp_path, done=2).choose(rng(), 2) == [8, 9]
    lines = (tmp_path / PLAYED).read_text().splitlines()
    assert json.loads(lines[0]) == {"step": 1, "tasks": [[0, 1, 4], [1, 4, 4]]}


def test_what_came_after_the_checkpoint_and_a_torn_line_are_dropped(tmp_path):
    chooser = TaskChooser(NEXT, 10, tmp_path)
    for step in (1, 2, 3):
        chooser.note(step, [(step, 0, 4)])
    with (tmp_path / PLAYED).open("a") as file:
        file.write('{"step": 4, "tas')
    again = TaskChooser(NEXT, 10, tmp_path, done=2)
    assert again.choose(rng(), 1) == [3]
    assert [json.loads(line)["step"] for line in (tmp_path / PLAYED).read_text().splitlines()] == [1, 2]
    # Another process of the run reads, but leaves the file alone.
    before = (tmp_path / PLAYED).read_text()
    other = TaskChooser(NEXT, 10, tmp_path, done=1, writes=False)
    other.note(2, [(5, 0, 4)])
    assert other.choose(rng(), 1) == [6] and (tmp_path / PLAYED).read_text() == before


def test_uniform_leaves_no_file(tmp_path):
    TaskChooser("uniform", 10, tmp_path).note(1, [(0, 1, 4)])
    assert not list(tmp_path.iterdir())


def test_a_curriculum_that_chooses_what_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"chose 3 tasks, among them 10; it must choose 3 from 0 to 9"):
        TaskChooser(f"{__name__}:outside", 10, tmp_path).choose(rng(), 3)


# --- groups without signal ---


def rollout(right: bool, group: int, failed: bool = False) -> Rollout:
    trajectory: Any = SimpleNamespace(is_correct=right, judge_failed=failed)
    return Rollout(trajectory, None, group)  # type: ignore[arg-type]


def play_by(outcomes: dict[int, list[bool]]):
    """Plays each task with given outcomes, and remembers which ones were asked for."""
    asked: list[list[int]] = []

    def play(indices):
        asked.append(list(indices))
        return [rollout(right, number) for number, index in enumerate(indices) for right in outcomes[index]]

    return play, asked


MIXED, RIGHT, WRONG = [True, False], [True, True], [False, False]


def test_groups_of_equal_outcomes_are_replaced_until_none_is_left():
    play, asked = play_by({0: RIGHT, 1: MIXED, 2: WRONG, 3: WRONG, 4: MIXED, 5: MIXED})
    tasks = iter(range(6))
    found = play_with_signal(play, lambda n: [next(tasks) for _ in range(n)], 3, rounds=9)
    assert asked == [[0, 1, 2], [3, 4], [5]]
    assert [r.group for r in found.rollouts] == [0, 0, 1, 1, 2, 2]
    assert [r.trajectory.is_correct for r in found.rollouts] == MIXED * 3
    assert found.played == [(0, 2, 2), (1, 1, 2), (2, 0, 2), (3, 0, 2), (4, 1, 2), (5, 1, 2)]


def test_the_number_of_rounds_is_bounded_and_what_is_left_is_known():
    play, asked = play_by({0: MIXED, 1: WRONG, 2: RIGHT})
    tasks = iter([0, 1, 1, 2])
    found = play_with_signal(play, lambda n: [next(tasks) for _ in range(n)], 2, rounds=2)
    assert asked == [[0, 1], [1], [2]]
    assert [r.trajectory.is_correct for r in found.rollouts] == MIXED + RIGHT
    assert with_signal(found.rollouts).tolist() == [True, True, False, False]


def test_without_rounds_every_group_is_kept():
    play, asked = play_by({0: WRONG, 1: RIGHT})
    found = play_with_signal(play, lambda n: list(range(n)), 2, rounds=0)
    assert asked == [[0, 1]] and len(found.rollouts) == 4


def test_an_outcome_that_was_not_judged_is_no_signal():
    assert with_signal([rollout(True, 0), rollout(False, 0, failed=True)]).tolist() == [False, False]


# --- in a run ---


@pytest.mark.integration
def test_a_run_that_resamples_with_a_curriculum_goes_on_as_if_never_stopped(arguments, runs, monkeypatch):
    more = ["--curriculum", NEXT, "--resample", "1"]
    assert main(["train", *arguments("chosen", *more)]) == 0
    rows = history(runs / "chosen")
    # A policy of random weights is never right: both groups are played twice, and nothing is learned from them.
    assert [row["groups_played"] for row in rows] == [4, 4, 4]
    assert [row["update/grad_norm"] for row in rows] == [0, 0, 0]
    played = [json.loads(line)["tasks"] for line in (runs / "chosen" / PLAYED).read_text().splitlines()]
    assert [[index for index, *_ in tasks] for tasks in played] == [[0, 1, 0, 1], [2, 3, 2, 3], [4, 5, 4, 5]]

    with monkeypatch.context() as patch:
        patch.setattr(experiment, "Monitor", interrupting(1))
        assert main(["train", *arguments("chosen-stopped", *more)]) == 130
    assert main(["train", "--resume", str(runs / "chosen-stopped")]) == 0
    assert untimed(history(runs / "chosen-stopped")) == untimed(rows)
    assert (runs / "chosen-stopped" / PLAYED).read_text() == (runs / "chosen" / PLAYED).read_text()
    assert same_weights(runs / "chosen-stopped" / "model", runs / "chosen" / "model")
