"""Which tasks are played: curricula, what they remember, and groups that are played again for want of a signal."""

from __future__ import annotations

import gc
import itertools
import json
import weakref
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from micro_run import history, same_weights, untimed
from test_train_resumed import interrupting

from codev_agents.rollout.player import Group, PromptTooLong, Rollout
from codev_agents.rollout.selection import PlayedGroup, Selection
from codev_env.app.cli import main
from codev_env.errors import ConfigError
from codev_train import experiment
from codev_train.learn.curriculum import PLAYED, TaskChooser, Visit, get_curriculum, success_band, uniform
from codev_train.learn.resample import SPARE, draw_groups, most_varied, with_signal
from codev_train.learn.update import Updater


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
    chooser.note(1, [PlayedGroup(0, 1, 4), PlayedGroup(1, 4, 4)])
    chooser.note(2, [PlayedGroup(1, 0, 4), PlayedGroup(7, 0, 0)])
    assert chooser.choose(rng(), 2) == [8, 9]
    assert TaskChooser(NEXT, 10, tmp_path, done=2).choose(rng(), 2) == [8, 9]
    lines = (tmp_path / PLAYED).read_text().splitlines()
    assert json.loads(lines[0]) == {"step": 1, "tasks": [[0, 1, 4], [1, 4, 4]]}


def test_what_came_after_the_checkpoint_and_a_torn_line_are_dropped(tmp_path):
    chooser = TaskChooser(NEXT, 10, tmp_path)
    for step in (1, 2, 3):
        chooser.note(step, [PlayedGroup(step, 0, 4)])
    with (tmp_path / PLAYED).open("a") as file:
        file.write('{"step": 4, "tas')
    again = TaskChooser(NEXT, 10, tmp_path, done=2)
    assert again.choose(rng(), 1) == [3]
    assert [json.loads(line)["step"] for line in (tmp_path / PLAYED).read_text().splitlines()] == [1, 2]
    # Another process of the run reads, but leaves the file alone.
    before = (tmp_path / PLAYED).read_text()
    other = TaskChooser(NEXT, 10, tmp_path, done=1, writes=False)
    other.note(2, [PlayedGroup(5, 0, 4)])
    assert other.choose(rng(), 1) == [6] and (tmp_path / PLAYED).read_text() == before


def test_uniform_leaves_no_file(tmp_path):
    TaskChooser("uniform", 10, tmp_path).note(1, [PlayedGroup(0, 1, 4)])
    assert not list(tmp_path.iterdir())


def test_a_curriculum_that_chooses_what_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"chose 3 tasks, among them 10; it must choose 3 from 0 to 9"):
        TaskChooser(f"{__name__}:outside", 10, tmp_path).choose(rng(), 3)


# --- groups without signal ---


def rollout(right: bool, group: int, failed: bool = False) -> Rollout:
    trajectory: Any = SimpleNamespace(is_correct=right, judge_failed=failed)
    return Rollout(trajectory, None, group)  # type: ignore[arg-type]


MIXED, RIGHT, WRONG = [True, False], [True, True], [False, False]


def played_by(selection: Selection, outcomes: dict[int, list[bool] | None], order: Sequence[int] = ()) -> list[int]:
    """Play each task with given outcomes, None for a prompt that is too long; returns the tasks that were drawn.

    All groups that can be drawn are under way; they end in draw order, or in the order of the groups' numbers given.
    """
    drawn: list[Group] = []
    ends = iter(order)
    while not selection.enough:
        while group := selection.draw():
            drawn.append(group)
        left = [group for group in drawn if group.number not in selection._ended]
        if not left:
            break
        ending = drawn[number] if (number := next(ends, None)) is not None else left[0]
        outcome = outcomes[ending.index]
        if outcome is None:
            selection.skip(ending, PromptTooLong(f"t{ending.index}", 99, 50))
        else:
            selection.end(ending, [rollout(right, ending.number) for right in outcome])
    return [group.index for group in drawn]


def one_after_the_other(count: int):
    """Chooses the next tasks from 0."""
    tasks = iter(range(count))
    return lambda n: [next(tasks) for _ in range(n)]


def none(count: int) -> list[int]:
    raise AssertionError("no task is skipped")


def outcome_of(found: Selection) -> list[tuple[int, int, int]]:
    return [(group.index, group.right, group.episodes) for group in found.played]


def test_groups_of_equal_outcomes_give_way_to_the_next_ones():
    found = draw_groups(one_after_the_other(9), none, 3, times=2)
    drawn = played_by(found, {0: RIGHT, 1: MIXED, 2: WRONG, 3: MIXED, 4: MIXED, 5: MIXED, 6: RIGHT, 7: RIGHT, 8: RIGHT})
    assert drawn == list(range(9)), "free places are filled with as many as may be played"
    assert [r.group for r in found.rollouts] == [0, 0, 1, 1, 2, 2]
    assert [r.trajectory.is_correct for r in found.rollouts] == MIXED * 3
    assert outcome_of(found) == [(0, 2, 2), (1, 1, 2), (2, 0, 2), (3, 1, 2), (4, 1, 2)], "not those given up"
    assert found.under_way


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_groups_are_kept_in_draw_order_whichever_ends_first(order):
    """Group 3 has signal and may be the first to end; the longer ones before it are waited for all the same."""
    found = draw_groups(one_after_the_other(4), none, 2, times=1)
    played_by(found, {0: WRONG, 1: MIXED, 2: [False, True], 3: [True, True, False]}, order)
    assert [r.trajectory.is_correct for r in found.rollouts] == [True, False, False, True]
    assert outcome_of(found) == [(0, 0, 2), (1, 1, 2), (2, 1, 2)]


def test_the_number_of_groups_is_bounded_and_what_is_left_is_known():
    found = draw_groups(one_after_the_other(6), none, 2, times=2)
    assert played_by(found, dict.fromkeys(range(6), WRONG) | {4: MIXED}) == list(range(6))
    assert [r.trajectory.is_correct for r in found.rollouts] == WRONG + MIXED
    assert with_signal(found.rollouts).tolist() == [False, False, True, True]
    assert len(found.played) == 6 and not found.under_way


def test_without_replacements_every_group_is_kept():
    found = draw_groups(one_after_the_other(2), none, 2, times=0)
    assert played_by(found, {0: WRONG, 1: RIGHT}, [1, 0]) == [0, 1]
    assert [r.trajectory.is_correct for r in found.rollouts] == WRONG + RIGHT


def test_a_task_that_is_skipped_gives_way_to_another_one():
    found = draw_groups(one_after_the_other(2), lambda n: [7, 8], 2, times=0)
    assert played_by(found, {0: None, 1: WRONG, 7: None, 8: RIGHT}) == [0, 1, 7, 8]
    assert [r.trajectory.is_correct for r in found.rollouts] == WRONG + RIGHT
    assert outcome_of(found) == [(0, 0, 0), (1, 0, 2), (7, 0, 0), (8, 2, 2)]
    assert [(task.index, task.task_id, task.tokens) for task in found.skipped] == [(0, "t0", 99), (7, "t7", 99)]


def test_a_data_set_of_prompts_that_are_too_long_is_not_searched_for_ever():
    found = draw_groups(one_after_the_other(2), lambda n: [0] * n, 2, times=0)
    assert len(played_by(found, {0: None, 1: None})) == 2 + 2 + SPARE
    assert found.rollouts == [] and len(found.skipped) == len(found.played) == 2 + 2 + SPARE


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


def test_groups_that_are_not_learned_from_are_gone_when_the_policy_is_updated(arguments, monkeypatch):
    played: list[weakref.ref] = []
    alive: list[int] = []

    def noting(selection, group, rollouts):
        played.extend(weakref.ref(rollout.tokens) for rollout in rollouts)
        return end(selection, group, rollouts)

    def updating(*given, **more):
        gc.collect()
        alive.append(sum(tokens() is not None for tokens in played))
        return update(*given, **more)

    end, update = Selection.end, Updater.update
    monkeypatch.setattr(Selection, "end", noting)
    monkeypatch.setattr(Updater, "update", updating)
    more = ["--curriculum", NEXT, "--resample", "1", "--steps", "1", "--eval.episodes", "1"]
    assert main(["train", *arguments("chosen-freed", *more)]) == 0
    assert len(played) >= 8 and alive == [4], "two groups of two"


@pytest.mark.parametrize("count", [2, 3, 4, 9])
def test_the_rollouts_that_are_learned_from_have_the_greatest_variance(count):
    rng = np.random.default_rng(count)
    for _ in range(100):
        rewards = torch.tensor(rng.choice([0.0, 0.3, 0.8, 1.0, 1.8], 12))
        groups, kept = torch.tensor(rng.integers(0, 3, 12)), torch.tensor(rng.random(12) < 0.8)
        chosen = most_varied(rewards, groups, kept, count)
        assert not (chosen & ~kept).any()
        for group in groups.unique():
            rows = (kept & (groups == group)).nonzero()[:, 0].tolist()
            found = rewards[chosen & (groups == group)]
            assert len(found) == min(count, len(rows))
            subsets = itertools.combinations(rows, len(found))
            best = max((float(rewards[list(subset)].var(correction=0)) for subset in subsets if subset), default=0.0)
            assert not len(found) or float(found.var(correction=0)) == pytest.approx(best)
