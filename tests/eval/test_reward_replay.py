"""Rewards computed again from recorded episodes: the same, to the turn and the term."""

from __future__ import annotations

import gymnasium as gym
import pytest

import codev_env  # noqa: F401 - registers the environments
from codev_agents import LazyCrop, NoTool, Oracle, run_episode
from codev_env.rewards import REWARDS, get_reward
from codev_env.rewards.codevision import needed_operations
from codev_env.trajectory import Trajectory, read_trajectories, write_trajectories
from codev_env.types import Answer, Code, Execution, Step
from codev_eval.bench.replay import episode_of, matches, turn_rewards


class Restless:
    """Turns, crops, fails, writes what cannot be read, and never answers."""

    name = "restless"
    turns = (
        "<code>\n```python\nshow(image.rotate(90, expand=True).crop((0, 0, 60, 60)))\n```\n</code>",
        "<code>\n```python\n1/0\n```\n</code>",
        "what now?",
        "<code>\n```python\nshow(image)\nshow(image.crop((10, 10, 60, 60)).resize((200, 200)))\n```\n</code>",
    )

    def reset(self, env) -> None:
        self.left = list(self.turns)

    def act(self, observation) -> str:
        return self.left.pop(0)


def record(tmp_path, name: str, agent) -> Trajectory:
    env = gym.make("CodeV-VStar-v0", data="synthetic", scenes="toy", reward=name, max_turns=4)
    write_trajectories(tmp_path, [run_episode(env, agent, options={"index": 5})])
    return read_trajectories(tmp_path)[0]


@pytest.mark.parametrize("name", sorted(REWARDS))
@pytest.mark.parametrize("agent", [Oracle(), LazyCrop(), NoTool(), Restless()], ids=lambda a: a.name)
def test_a_file_is_enough_to_compute_any_reward_again(tmp_path, name: str, agent) -> None:
    trajectory = record(tmp_path, name, agent)
    rows = turn_rewards(get_reward(name), episode_of(trajectory))
    assert matches(get_reward(name), trajectory, rows)
    assert sum(row.total for row in rows) == pytest.approx(trajectory.total_reward, abs=1e-9)


def test_the_episode_is_the_recorded_one(tmp_path) -> None:
    trajectory = record(tmp_path, "tapo", Restless())
    episode = episode_of(trajectory)
    assert [type(step.turn).__name__ for step in episode.steps] == ["Code", "Code", "Invalid", "Code"]
    assert [len(step.regions) for step in episode.steps] == [1, 0, 0, 2]
    assert episode.steps[1].execution.error and episode.steps[1].score == trajectory.turns[1].score
    assert episode.stop_reason == "max_turns" and episode.answer is None and not episode.is_correct
    assert episode.task.targets == trajectory.targets and episode.task.images[0].size == trajectory.image_size


def test_the_episode_of_a_video_knows_the_seconds_of_its_frames(tmp_path) -> None:
    env = gym.make("CodeV-Video-v0", data="synthetic")
    write_trajectories(tmp_path, [run_episode(env, Oracle(), options={"index": 0})])
    task, recorded = env.unwrapped.task, episode_of(read_trajectories(tmp_path)[0]).task
    assert recorded.times == task.times and len(recorded.times) == len(task.images) > 1
    assert [image.size for image in recorded.shown_images] == [image.size for image in task.shown_images]


def test_an_answer_is_what_was_read_from_the_turn(tmp_path) -> None:
    trajectory = record(tmp_path, "tapo", Oracle())
    assert episode_of(trajectory).steps[-1].turn.text == trajectory.final_answer != trajectory.turns[-1].action


def test_other_weights_and_other_rewards_do_not_match(tmp_path) -> None:
    trajectory = record(tmp_path, "tapo", Oracle())
    for reward in (get_reward("tapo", {"tool": 0.4}), get_reward("outcome"), get_reward("hdpo")):
        assert not matches(reward, trajectory, turn_rewards(reward, episode_of(trajectory)))


def test_a_probe_is_paid_with_the_next_turn() -> None:
    turns = (
        Step("", Code("x"), Execution(), probed=(False, True)),
        Step("", Code("x"), Execution(), probed=(True, True)),
        Step("red", Answer("red")),
    )
    trajectory = Trajectory("t", turns=turns, answer="red", final_answer="red", is_correct=True, stop_reason="answer")
    rows = turn_rewards(get_reward("taco"), episode_of(trajectory))
    assert [row.terms for row in rows] == [
        {"outcome": 0.0, "gain": 0.0},
        {"outcome": 0.0, "gain": 0.15},
        {"outcome": 1.0, "gain": 0.0},
    ]


def test_the_needs_of_a_task_are_read_off_the_record() -> None:
    trajectory = Trajectory("t", transform=("rotate_90",), meta={"task": {"transform": ["crop", "rotate_90"]}})
    assert needed_operations(episode_of(trajectory).task) == {"crop", "rotate_270"}
