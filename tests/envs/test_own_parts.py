"""Scorers, judges, dialects and rewards of one's own that cannot work are refused when the environment is made."""

from __future__ import annotations

import gymnasium as gym
import pytest

import codev_env  # noqa: F401 - registers the environments
from codev_env.dialects.codev import CodeVDialect
from codev_env.errors import ConfigError
from codev_env.scoring import Score, ScorerError
from codev_env.tasks import load_tasks
from codev_env.types import Invalid, StepScore


class Judging:
    """A judge with a method of one's own."""

    name = "mine"

    def __init__(self):
        self.model = object()  # holds more than plain values, so it is not tried


class Selfish(Judging):
    def score(self):
        return StepScore(0.5)


class Open(Judging):
    def score(self, *anything):
        return StepScore(0.5)


class Silent(CodeVDialect):
    def system_prompt(self):
        return None


class Deaf(CodeVDialect):
    def parse(self, text):
        return None


class Failing(CodeVDialect):
    def parse(self, text):
        raise KeyError("code")


class Narrow(CodeVDialect):
    def parse(self):
        return Invalid("never")


class Mute(CodeVDialect):
    def first_message(self, task):
        return 3


def make(**arguments):
    return gym.make("CodeV-VStar-v0", data="synthetic", scenes="toy", **arguments)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("scorer", lambda x: 1.0, r"scorer '.*lambda.*' cannot be called as \(task, answer\): too many positional"),
        ("scorer", "json:dumps", r"scorer 'dumps' cannot be called as \(task, answer\)"),
        ("scorer", lambda: 1.0, "cannot be called as"),
        ("scorer", lambda task, answer, extra: 1.0, "missing a required argument: 'extra'"),
        ("judge", Selfish(), r"judge 'mine': its method score cannot be called as \(task, step, history\)"),
        ("dialect", Silent(), r"dialect 'Silent': system_prompt\(\) returned a NoneType .* must return a str"),
        ("dialect", Deaf(), r"dialect 'Deaf': parse\('x'\) returned a NoneType .* Code, Answer or Invalid"),
        ("dialect", Failing(), r"dialect 'Failing': parse\('x'\) raised KeyError\('code'\)"),
        ("dialect", Narrow(), r"dialect 'Narrow': parse\('x'\) raised TypeError"),
        ("dialect", Mute(), r"first_message\(task\) returned a int"),
        ("reward", lambda: 1, "cannot be called with an episode .*one argument, the Episode so far"),
        ("reward_weights", [1], r"reward_weights is \[1\]; it must map terms to weights, such as \{'outcome': 1.0\}"),
        ("view_pixels", "big", "view_pixels is 'big'; it must be a number of pixels"),
        ("view_pixels", float("nan"), "view_pixels is nan; it must be a number of pixels"),
        ("view_pixels", [4], r"view_pixels is \[4\]; it must be a number of pixels"),
    ],
)
def test_parts_that_cannot_work(name, value, words):
    with pytest.raises(ConfigError, match=words):
        make(**{name: value})


def test_parts_that_can_work():
    mine = type("Mine", (CodeVDialect,), {})()
    assert isinstance(make(scorer=lambda *given: Score(True), judge=Open(), dialect=CodeVDialect()), gym.Env)
    made = make(scorer=lambda task, answer, extra=3: Score(True), dialect=mine, view_pixels=784)
    assert made.unwrapped.dialect is mine


@pytest.mark.parametrize(
    "reward",
    [
        lambda episode: episode.steps[-1].score.value,
        lambda episode: 1 / len(episode.steps),
        lambda episode: float(episode.answer),
        lambda episode: len(episode.answer),
        lambda episode: max(step.probed is None for step in episode.steps),
    ],
)
def test_a_reward_that_needs_steps_is_advised_to_check_for_them(reward):
    with pytest.raises(ConfigError, match="without steps, which it must accept: begin it with `if not episode.steps"):
        make(reward=reward)


@pytest.mark.parametrize("reward", [lambda episode: episode.correct, lambda episode: undefined])  # noqa: F821
def test_another_failure_of_a_reward_is_only_reported(reward):
    with pytest.raises(ConfigError, match=r"(AttributeError|NameError).* An Episode has task, steps, answer") as caught:
        make(reward=reward)
    assert "if not episode.steps" not in str(caught.value)


@pytest.mark.parametrize("options", [3, [1], "index"])
def test_options_of_reset_are_a_mapping(options):
    with pytest.raises(ConfigError, match="options of reset is .*it must be a dict such as {'index': 0}"):
        make().unwrapped.reset(options=options)


# ---- rows in memory


@pytest.mark.parametrize("bench", ["Video", "VStar"])
def test_only_one_environment_takes_rows(bench):
    with pytest.raises(ConfigError, match=r"^data is \[.*only CodeV-Dataset-v0 takes rows in memory"):
        gym.make(f"CodeV-{bench}-v0", data=[{"video": "a.mp4"}])


def test_rows_are_offered_where_they_are_taken():
    with pytest.raises(ConfigError, match="or a list of dicts"):
        gym.make("CodeV-Dataset-v0")
    with pytest.raises(ConfigError, match="CodeV-Video-v0 is for data of your own") as caught:
        gym.make("CodeV-Video-v0")
    assert "list of dicts" not in str(caught.value)


def test_a_task_set_is_not_described():
    tasks = load_tasks("synthetic", "test")
    with pytest.raises(ConfigError, match="data is a TaskSet, which is taken as it is: give a TaskSet without scenes"):
        gym.make("CodeV-VStar-v0", data=tasks, scenes="toy")


class Late(CodeVDialect):
    """Fails on texts that the trial does not hold."""

    def parse(self, text):
        return super().parse(text) if len(text) < 9 else text.index("?") if "index" in text else None


@pytest.mark.parametrize(
    ("parts", "error", "words"),
    [
        (
            {"scorer": lambda task, answer: Score(1 / (answer == "A") > 0)},
            ScorerError,
            r"lambda.* failed on '.*': ZeroDivision",
        ),
        ({"scorer": lambda task, answer: Score(True) if answer == "A" else 1.0}, ConfigError, "returned a float"),
        ({"dialect": Late()}, ConfigError, "dialect 'Late': parse returned None for '<answer>B"),
        ({"dialect": Late()}, ConfigError, r"dialect 'Late': parse raised ValueError.*must return Code, Answer"),
    ],
)
def test_a_part_that_fails_later_is_named(parts, error, words):
    env = make(**parts)
    env.reset(seed=0)
    with pytest.raises(error, match=words):
        env.step("<answer>index</answer>" if "raised" in words else "<answer>B</answer>")
    env.reset(seed=0)
    env.close()
