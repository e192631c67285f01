"""No cheat earns tool reward, or counts as faithful, under a reward that claims to be robust."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from cheat_episodes import ROBUST, bounds, played, tell

from codev_agents import Oracle, run_episode
from codev_agents.cheats import CHEATS, FAMILIES, BlindCrop, CheatingAgent, cheat, programs
from codev_env.envs.image_tool import ImageToolEnv
from codev_env.errors import ConfigError
from codev_env.rewards import get_reward
from codev_eval.rewards.redteam import FAITHFUL, SLACK, RedTeamTasks, measure, tool_reward

MEASURES = {reward.name: reward for reward in ROBUST} | {FAITHFUL: None}

OPEN: dict[tuple[str, str], str] = {}
"""Cheats that succeed, by name and measure, and why."""


def cases(luck: bool) -> list:
    """Every cheat under every measure, all as integration tests; without that every third, with luck every sixth.

    The measures of one cheat follow each other, so that it is played once.
    """
    chosen = [name for name, known in CHEATS.items() if known.luck == luck]
    return [
        _case(name, key, reward, number % (6 if luck else 3) != 0)
        for number, name in enumerate(chosen)
        for key, reward in MEASURES.items()
    ]


def _case(name: str, key: str, reward, slow: bool):
    reason = OPEN.get((name, key))
    marks = [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
    marks += [pytest.mark.integration] if slow else []
    return pytest.param(name, reward, id=f"{name}-{key}", marks=marks)


SHARES = pytest.mark.parametrize(
    "share", [0.25, pytest.param(1.0, marks=pytest.mark.integration)], ids=["quarter", "all"]
)
"""Share of a cheat's tasks that it is played on."""


@SHARES
@pytest.mark.parametrize(("name", "reward"), cases(luck=False))
def test_a_cheat_without_luck_earns_nothing_on_any_task(name, reward, share):
    for one in played(name, share):
        assert measure(reward, one.episode) <= SLACK, f"{CHEATS[name].tries}\n{tell(one)}"


@SHARES
@pytest.mark.parametrize(("name", "reward"), cases(luck=True))
def test_a_cheat_with_luck_earns_no_more_than_honest_crops_at_random_places(name, reward, share):
    episodes = played(name, share)
    earned = [measure(reward, one.episode) for one in episodes]
    bound = bounds().of(CHEATS[name], episodes, reward)
    best = episodes[int(np.argmax(earned))]
    assert np.mean(earned) <= bound + SLACK, f"{CHEATS[name].tries}: {np.mean(earned):.3f} > {bound:.3f}\n{tell(best)}"


@pytest.mark.parametrize("reward", MEASURES.values(), ids=MEASURES)
def test_an_honest_look_at_a_wrong_place_earns_nothing_and_at_the_right_one_much(reward):
    assert all(measure(reward, episode) <= SLACK for episode in bounds().wrong)
    env = ImageToolEnv(RedTeamTasks(4))
    for index in range(4):
        run_episode(env, Oracle(), options={"index": index})
        assert measure(reward, env.episode) > 0.1
    env.close()


def test_tasks_ask_for_attributes_relations_counts_and_words_on_turned_pages():
    tasks = [RedTeamTasks(4)[index] for index in range(4)]
    assert [task.category for task in tasks][::2] == ["direct_attributes", "relative_position"]
    assert tasks[1].transform and tasks[3].question.startswith("How many")
    assert len({task.task_id for task in tasks}) == 4
    assert [RedTeamTasks(4).index_of(task.task_id) for task in tasks] == [0, 1, 2, 3]


def test_blind_crops_are_judged_without_a_sandbox_as_they_are_with_one():
    tasks, reward = RedTeamTasks(2), get_reward("tapo")
    env = ImageToolEnv(tasks)
    for index in range(2):
        agent = BlindCrop(seed=3, calls=2, side=0.3)
        run_episode(env, agent, options={"index": index})
        boxes = [step.regions[0].box for step in env.episode.steps if step.regions]
        alone = bounds()._cropped(tasks[index], boxes)
        assert len(boxes) == 2
        assert tool_reward(reward, alone) == pytest.approx(tool_reward(reward, env.episode), abs=1e-6)
        assert alone.is_faithful == env.episode.is_faithful
    env.close()


def test_cheats_see_what_a_model_sees():
    class Spy:
        name, informed = "spy", False

        @staticmethod
        def plan(task, dialect, rng):
            seen.append(task)
            return []

    seen = []
    env = ImageToolEnv(RedTeamTasks(1))
    env.reset(options={"index": 0})
    for informed in (False, True):
        Spy.informed = informed
        CheatingAgent(Spy).reset(env)
    blind, sighted = seen
    assert (blind.answer, blind.targets, blind.transform, dict(blind.meta)) == ("", (), (), {})
    assert (sighted.answer, sighted.targets) == ("", env.unwrapped.task.targets)
    assert blind.question == env.unwrapped.task.question and blind.choices == env.unwrapped.task.choices
    env.close()


def test_the_table_has_every_family_and_dialect_and_refuses_a_name_twice():
    assert len(CHEATS) >= 45
    assert {cheat.family for cheat in CHEATS.values()} == set(FAMILIES)
    assert {cheat.dialect for cheat in CHEATS.values()} == {"codev", "codevision", "deepeyes", "pyvision", "thyme"}
    for name, family in (("whole-image", "claims"), ("new", "no such family")):
        with pytest.raises(ConfigError, match="must be new"):
            cheat(name, "again", family)(programs("pass"))
    assert "new" not in CHEATS


def test_a_right_answer_that_was_known_without_a_look_ends_every_cheat():
    assert all(one.episode.is_correct for one in played("whole-image"))


def test_the_example_of_the_docs_runs(capsys):
    text = (Path(__file__).parents[2] / "docs" / "redteam.md").read_text("utf-8")
    (block,) = re.findall(r"```python\n(.*?)```\n", text, re.DOTALL)
    known = dict(CHEATS)
    try:
        exec(compile(block, "redteam.md", "exec"), {})
        rows = capsys.readouterr().out
        assert all(f"| {name} " in rows for name in CHEATS.keys() - known.keys()) and len(CHEATS) == len(known) + 2
    finally:
        CHEATS.clear()
        CHEATS.update(known)
