"""Each wrong argument of an environment is one clear error when it is made."""

from __future__ import annotations

import copy
import re
import sys
from types import SimpleNamespace

import gymnasium as gym
import pytest
from gymnasium.error import ResetNeeded
from PIL import Image

import codev_env  # noqa: F401 - registers the environments
from codev_env.dialects.codev import CodeVDialect
from codev_env.errors import ConfigError
from codev_env.sandbox import Sandbox
from codev_env.scoring import Score
from codev_env.types import StepScore

CODE = "<think>look</think>\n<code>\n```python\nshow(image)\n```\n</code>"


class Floating:
    """Returns a float."""

    name = "floating"

    def score(self, task, step, history):
        return 0.5


class Nameless:
    """Has no name."""

    def score(self, task, step, history):
        return StepScore(0.5)


class Listed:
    """Returns one given score after the other."""

    name = "listed"

    def __init__(self, scores):
        self.scores = scores

    def score(self, task, step, history):
        return self.scores.pop(0)


def truth(task, answer):
    return True


def plain_number(task, answer):
    return 1.0


def judge(*arguments):
    return 0.5


class Scoring:
    """A class of scorers."""

    def __call__(self, task, answer):
        return True


NAMES = {"Floating": Floating(), "Nameless": Nameless(), "truth": truth, "plain_number": plain_number, "judge": 0.5}


class Scored:
    """A judge whose score has any value."""

    name = "scored"

    def __init__(self, value):
        self.value = value

    def score(self, task, step, history):
        return StepScore(self.value)


class Unnamed(Scored):
    name = None


class NamelessDialect(CodeVDialect):
    name = ""


def make(**arguments):
    return gym.make("CodeV-VStar-v0", data="synthetic", scenes="toy", **arguments)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("scorer", truth, "'truth' returned a bool .True.; it must return a codev_env.scoring.Score"),
        ("scorer", plain_number, "returned a float"),
        ("scorer", Scoring, r"scorer is the class Scoring; give an instance: Scoring\(\)"),
        ("scorer", Scoring(), "'Scoring' returned a bool"),
        ("scorer", 3, "scorer is a int; it must be a function"),
        ("judge", Floating(), "judge 'floating' returned a float .0.5.; it must return a codev_env.types.StepScore"),
        ("judge", Floating, r"judge is the class Floating; give an instance: Floating\(\)"),
        ("judge", Nameless(), "judge is a Nameless without 'name'"),
        ("judge", judge, "judge is a function; it must be a codev_env Judge"),
        (
            "judge",
            Scored(7.0),
            "'scored' returned a StepScore of the value 7.0; it must be a number from -1 to 1",
        ),
        ("judge", Scored(float("nan")), "'scored' returned a StepScore of the value nan"),
        ("judge", Scored("0.5"), "'scored' returned a StepScore of the value '0.5'"),
        ("judge", Unnamed(0.5), "judge Unnamed has the name None; its name must be a text"),
        ("dialect", NamelessDialect(), "dialect NamelessDialect has the name ''; its name must be a text"),
        ("scorer", lambda task, answer: Score("yes"), "a Score with correct='yes'; it must be True or False"),
        ("scorer", lambda task, answer: Score(True, share=50), "a Score with share=50; it must be from 0 to 1"),
        ("dialect", CodeVDialect, r"dialect is the class CodeVDialect; give an instance"),
        ("dialect", SimpleNamespace(), "dialect is a SimpleNamespace; it must be a codev_env Dialect"),
    ],
)
def test_objects_of_the_wrong_kind(name, value, words):
    with pytest.raises(ConfigError, match=words):
        make(**{name: value})


def test_a_value_that_rounding_takes_past_its_bound_is_no_error():
    """Sums and quotients of floats miss their value by a little: three times 0.1 is 0.30000000000000004."""
    above = 1 + 2**-52
    make(judge=Scored(above), scorer=lambda task, answer: Score(True, share=above)).close()
    with pytest.raises(ConfigError, match=r"value 1\.001; it must be a number from -1 to 1"):
        make(judge=Scored(1.001))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("sandbox", 3, "sandbox is a int; give a live codev_env.sandbox.Sandbox, or None"),
        ("sandbox", False, "sandbox is a bool"),
        ("sandbox", {"wall_s": 5}, "sandbox is a dict; .* limits={'wall_s': 5} changes the limits"),
        ("sandbox", Sandbox, r"sandbox is the class Sandbox; give an instance: Sandbox\(\)"),
        ("split", ["test"], r"split is \['test'\]; it must be the name of a split"),
        ("split", 3, "split is 3; it must be"),
        ("on_error", "mask", "unknown on_error 'mask'.*Known: raise, skip"),
        ("data", "", "data is empty; give a path"),
    ],
)
def test_values_of_the_wrong_kind(name, value, words):
    with pytest.raises(ConfigError, match=words):
        gym.make("CodeV-VStar-v0", **{"data": "synthetic", "scenes": "toy", name: value})


def test_names_of_a_reader_and_categories_of_data_without_any():
    rows = [{"image": Image.new("RGB", (90, 60)), "question": "?", "answer": "A"}]
    with pytest.raises(ConfigError, match=r"reader is \{3: 3\}; it must map options to values"):
        gym.make("CodeV-Dataset-v0", data=rows, reader={3: 3})
    with pytest.raises(ConfigError, match="split is 3; it must be"):
        gym.make("CodeV-Dataset-v0", data=rows, split=3)
    with pytest.raises(ConfigError, match="unknown category of dataset 'dogs'. Known: none.$"):
        gym.make("CodeV-Dataset-v0", data=rows, subset="dogs")


@pytest.mark.parametrize(
    ("name", "attribute", "words"),
    [
        ("scorer", "truth", "returned a bool"),
        ("scorer", "Scoring", "returned a bool"),
        ("judge", "Floating", "returned a float"),
        ("judge", "NAMELESS", "is a Nameless without 'name'"),
        ("dialect", "truth", "dialect"),
    ],
)
def test_paths_of_the_wrong_kind(name, attribute, words, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "NAMELESS", Nameless(), raising=False)
    with pytest.raises(ConfigError, match=words):
        make(**{name: f"{__name__}:{attribute}"})


def test_a_judge_is_tried_on_a_copy():
    scores = [StepScore(0.25), StepScore(0.75)]
    env = make(judge=Listed(scores)).unwrapped
    env.reset(seed=0)
    assert len(scores) == 2
    assert env.step(CODE)[4]["reward_terms"]["tool"] == pytest.approx(0.5 * 0.25)


def test_a_wrong_score_of_a_judge_that_was_not_tried_is_told_at_the_step():
    class Later(Floating):
        def __init__(self):
            self.model = object()

    env = make(judge=Later())
    env.reset(seed=0)
    with pytest.raises(ConfigError, match="judge 'floating' returned a float"):
        env.step(CODE)


def test_a_wrong_result_of_a_scorer_is_told_at_the_answer():
    env = make(scorer=lambda task, answer: task.meta["bench"] == "vstar")
    env.reset(seed=0)
    with pytest.raises(ConfigError, match="returned a bool"):
        env.step("<think>x</think>\n<answer>A</answer>")


@pytest.mark.parametrize(("given", "near"), [("scene", "scenes"), ("maxturns", "max_turns"), ("rewards", "reward")])
def test_an_unknown_argument_names_the_nearest(given, near):
    with pytest.raises(ConfigError, match=f"unknown argument of the environment '{given}'. Did you mean '{near}'"):
        make(**{given: "x"})


@pytest.mark.parametrize("given", ["corruption", "model", "severity"])
def test_an_unknown_argument_that_is_near_to_none_gets_no_suggestion(given):
    with pytest.raises(ConfigError, match=f"unknown argument of the environment '{given}'. Known: bench,"):
        make(**{given: "x"})


def test_an_unknown_argument_does_not_print_the_data():
    with pytest.raises(ConfigError, match="'dialekt'. Did you mean 'dialect'") as caught:
        gym.make("CodeV-Dataset-v0", data=[{"question": "a row of the data"}], dialekt="codev")
    assert "a row of the data" not in str(caught.value)


def test_an_option_of_the_reader_is_told_its_place():
    with pytest.raises(ConfigError, match=r"'seed': of episodes, give reset\(seed=…\); of a reader, give reader="):
        gym.make("codev_env:CodeV-VStar-v0", data="synthetic", seed=3)
    with pytest.raises(ConfigError, match=r"'boxes': of a reader, give reader=\{'boxes': …\}"):
        gym.make("CodeV-Dataset-v0", data=[{"question": "?"}], boxes="xyxy")


def test_a_copy_says_that_it_has_no_episode():
    env = make()
    env.reset(seed=0)
    with pytest.raises(ResetNeeded, match="A copied or unpickled environment starts without the running episode"):
        copy.deepcopy(env).step("hm")
    with pytest.raises(ResetNeeded, match=r"call reset\(\) first.$"):
        make().unwrapped.step("hm")


def test_the_registry_is_printed_under_the_package():
    assert "===== codev_env =====\nCodeV" in gym.pprint_registry(disable_print=True)


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("workers", 0, "workers is 0; it must be a number of threads, at least 1"),
        ("workers", -1, "workers is -1"),
        ("workers", "4", "workers is '4'"),
        ("autoreset_mode", "NextStepp", "Did you mean 'NextStep'"),
        ("num_envs", "2", "num_envs is '2'; a vector environment needs at least one environment"),
        ("num_envs", 2.5, "num_envs is 2.5"),
    ],
)
def test_arguments_of_a_vector_environment(option, value, says):
    with pytest.raises(ConfigError, match=re.escape(says)):
        gym.make_vec("CodeV-VStar-v0", **{"num_envs": 2, "data": "synthetic", "scenes": "toy", option: value})


def test_no_step_goes_on_after_close():
    """It would run without the files of the episode."""
    env = gym.make("CodeV-VStar-v0", data="synthetic", scenes="toy").unwrapped
    env.reset(seed=0)
    env.step(CODE)
    env.close()
    with pytest.raises(ResetNeeded, match="reset"):
        env.step(CODE)
    env.reset(seed=0)
    assert env.step(CODE)[0]["images"]
    env.close()
