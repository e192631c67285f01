from __future__ import annotations

import dataclasses
import re

import pytest
from gymnasium.wrappers import TimeLimit
from hypothesis import given
from hypothesis import strategies as st
from small_tasks import SmallTasks

from codev_agents import (
    SCRIPTED,
    Agent,
    LazyCrop,
    NoTool,
    Oracle,
    RandomCrop,
    expand_box,
    run_episode,
)
from codev_agents.scripted import grow_box
from codev_env.dialects import get_dialect
from codev_env.envs.image_tool import ImageToolEnv
from codev_env.errors import ConfigError
from codev_env.scoring.metrics import summarize
from codev_env.trajectory import read_trajectories, write_trajectories
from codev_env.types import Code, Task


@pytest.fixture(scope="module")
def env():
    made = ImageToolEnv(SmallTasks(), split="test")
    yield made
    made.close()


class Says:
    """Says its lines, whatever it sees."""

    name = "says"

    def __init__(self, *lines: str) -> None:
        self.lines = lines
        self.seen: list[dict] = []
        self.meta = {"tokens": 3}

    def reset(self, env) -> None:
        self.seen = []

    def act(self, observation) -> str:
        self.seen.append(observation)
        return self.lines[len(self.seen) - 1]


def test_the_name_of_a_task_may_be_any_text():
    class HalfNamed(SmallTasks):
        def __getitem__(self, index: int) -> Task:
            return dataclasses.replace(super().__getitem__(index), task_id=f"\ud83d{index}")

    half = ImageToolEnv(HalfNamed())
    assert run_episode(half, Oracle(), options={"index": 1}).is_faithful
    half.close()


def test_oracle_is_right_and_faithful_and_its_record_is_complete(env, tmp_path):
    found = run_episode(env, Oracle(), seed=5, options={"index": 2})
    task = SmallTasks()[2]
    assert (found.is_correct, found.is_faithful, found.stop_reason) == (True, True, "answer")
    assert (found.task_id, found.index, found.split, found.seed, found.agent) == ("t2", 2, "test", 5, "oracle")
    assert (found.answer, found.final_answer, found.choices, found.targets) == (
        "green",
        "green",
        task.choices,
        task.targets,
    )
    assert (found.dialect, found.reward_name, found.env_id) == ("codev", "tapo", "ImageToolEnv")
    assert found.prompt.startswith("<image>") and "Which colour?" in found.prompt and found.system_prompt
    assert found.images[0].tobytes() == task.image.tobytes()
    look, say = found.turns
    assert (look.kind, look.score_value, look.faithful, look.stop) == ("code", 0.75, True, "ok")
    assert look.crop_boxes == (expand_box(task.targets[0], (160, 120), 0.25),)
    assert look.images[0].tobytes() == task.image.crop(look.crop_boxes[0]).tobytes()
    assert look.observation.count("<image>") == 1 and look.code in look.action
    assert (say.kind, say.code, say.images) == ("answer", None, ())
    assert found.total_reward == pytest.approx(1.0 + 0.3 + 0.5 * 0.75)
    for turn in found.turns:
        assert sum(turn.reward_terms.values()) == pytest.approx(turn.reward)
    write_trajectories(tmp_path, [found])
    assert read_trajectories(tmp_path) == [found]


def test_texts_of_the_expert_are_constant_up_to_coordinates_and_answer(env):
    agent = Oracle(snap=10)
    actions = [[turn.action for turn in run_episode(env, agent, options={"index": i}).turns] for i in range(3)]
    assert len({re.sub(r"\d+", "#", look) for look, _ in actions}) == 1
    assert actions[0] == [
        "<think>I need a closer look.</think>\n<code>\n```python\n"
        'image = Image.open("input.png")\ncrop = image.crop((30, 20, 80, 70))\n'
        'crop.save("crop.png")\nprint("crop.png")\n```\n</code>',
        "<think>Now I can see it.</think>\n<answer>red</answer>",
    ]


def test_oracle_can_look_at_more_targets(env):
    found = run_episode(env, Oracle(crops=2), options={"index": 0})
    assert [turn.kind for turn in found.turns] == ["code", "code", "answer"]
    assert [turn.score_value for turn in found.turns] == [0.75, 1.0, None]


def test_baselines(env):
    lazy = run_episode(env, LazyCrop(), options={"index": 1})
    assert (
        lazy.turns[0].crop_boxes == ((0, 0, 160, 120),) and not lazy.is_faithful and lazy.turns[0].score_value == -0.5
    )
    none = run_episode(env, NoTool(), options={"index": 1})
    assert [turn.kind for turn in none.turns] == ["answer"]
    boxes = set()
    for seed in range(5):
        found = run_episode(env, RandomCrop(seed), options={"index": 1})
        assert found.final_answer in found.choices
        boxes.add(found.turns[0].crop_boxes)
    assert len(boxes) == 5
    summary = summarize([lazy, none])
    assert (summary["lazy"], summary["tool_calls"]) == (0.5, 0.5)


def test_play_does_not_depend_on_the_order_of_episodes(env):
    agent = RandomCrop(3)

    def actions(index):
        return [turn.action for turn in run_episode(env, agent, options={"index": index}).turns]

    forward = [actions(i) for i in range(4)]
    assert [actions(i) for i in reversed(range(4))] == forward[::-1]
    assert len({found[0] for found in forward}) == 4


def test_failed_and_invalid_turns_are_recorded_and_an_agents_meta_is_kept(env):
    dialect = get_dialect("codev")
    agent = Says("what?", dialect.write(Code("print(3)\n1 / 0")), "<answer>A</answer>")
    found = run_episode(env, agent, options={"task_id": "t0"})
    assert [turn.kind for turn in found.turns] == ["invalid", "code", "answer"]
    broken = found.turns[1]
    assert broken.stop == "error" and "ZeroDivisionError" in broken.error and broken.stdout.strip() == "3"
    assert broken.error in broken.observation and broken.score_value == -0.5
    assert agent.seen[1]["text"] == found.turns[0].observation
    assert found.meta == {"agent": {"tokens": 3}}


def test_an_episode_that_a_wrapper_ends_is_recorded_and_rewarded_as_one_out_of_turns():
    code = "<code>show(image.crop((0, 0, 40, 40)))</code>"
    own = run_episode(ImageToolEnv(SmallTasks(), max_turns=2), Says(code, code), options={"index": 0})
    wrapped = TimeLimit(ImageToolEnv(SmallTasks()), max_episode_steps=2)
    record = run_episode(wrapped, Says(code, code), options={"index": 0})
    assert record.stop_reason == own.stop_reason == "max_turns"
    assert [turn.reward_terms for turn in record.turns] == [turn.reward_terms for turn in own.turns]


def test_episode_ends_with_the_turn_budget():
    env = ImageToolEnv(SmallTasks(), max_turns=2)
    found = run_episode(env, Says("a", "b", "c"), options={"index": 0})
    assert (len(found.turns), found.stop_reason, found.final_answer) == (2, "max_turns", None)
    env.close()


@given(
    st.tuples(st.integers(0, 90), st.integers(0, 90)),
    st.tuples(st.integers(1, 60), st.integers(1, 60)),
    st.floats(0, 2),
    st.none() | st.integers(1, 64),
)
def test_expand_box_holds_the_box_and_stays_inside(corner, sides, margin, snap):
    box = (*corner, min(100, corner[0] + sides[0]), min(100, corner[1] + sides[1]))
    x1, y1, x2, y2 = expand_box(box, (100, 100), margin, snap)
    assert 0 <= x1 <= box[0] and 0 <= y1 <= box[1] and box[2] <= x2 <= 100 and box[3] <= y2 <= 100
    grid = snap or 1
    assert all(value % grid == 0 or value == 100 for value in (x1, y1, x2, y2))


def test_scripted_agents_are_agents_and_refuse_nonsense():
    for name, agent in SCRIPTED.items():
        assert isinstance(agent(), Agent) and agent().name == name
    for bad in (lambda: Oracle(margin=-1), lambda: Oracle(snap=0), lambda: RandomCrop(side=2)):
        with pytest.raises(ConfigError, match="need"):
            bad()


@pytest.mark.parametrize(
    ("box", "grown"),
    [
        ((10, 10, 50, 50), (10, 10, 50, 50)),
        ((10, 10, 20, 50), (0, 10, 31, 50)),
        ((90, 95, 100, 100), (69, 69, 100, 100)),
        ((40, 40, 41, 41), (25, 25, 56, 56)),
    ],
)
def test_small_boxes_are_grown_within_the_image(box, grown):
    assert grow_box(box, (100, 100), 31) == grown


def test_a_box_grows_to_the_whole_width_of_a_narrow_image():
    assert grow_box((2, 40, 9, 46), (20, 100), 31) == (0, 28, 20, 59)


def test_the_expert_shows_small_targets_in_a_dialect_that_refuses_small_boxes():
    env = ImageToolEnv(SmallTargets(), dialect="deepeyes")
    found = run_episode(env, Oracle(margin=0), options={"index": 0})
    assert found.turns[0].error is None and found.turns[0].images[0].size == (31, 31)
    env.close()


class SmallTargets(SmallTasks):
    """The targets have sides of 6 pixels."""

    def __getitem__(self, index):
        task = super().__getitem__(index)
        return dataclasses.replace(task, targets=((40, 40, 46, 46),))


@pytest.mark.parametrize("bench", ["treebench", "mme-realworld-lite", "blink", "tirbench", "vstar"])
@pytest.mark.parametrize("scorer", ["official", "vlmevalkit"])
def test_scripted_agents_name_options_as_the_scorer_reads_them(bench, scorer):
    class Colours(SmallTasks):
        def __getitem__(self, index: int) -> Task:
            task, choices = super().__getitem__(index), ("above", "blue", "bad", "Z")
            return dataclasses.replace(task, choices=choices, answer=choices[index], meta={"bench": bench})

    tasks = Colours()
    base = ImageToolEnv(tasks, scorer=scorer)
    for index in range(3):
        assert run_episode(base, Oracle(), options={"index": index}).is_correct
    guesses = [run_episode(base, NoTool(seed), options={"index": 1}).final_answer for seed in range(30)]
    assert {base.scorer(tasks[1], guess or "").extracted for guess in guesses} == set(tasks[1].choices)
    base.close()
