"""The terms of the released CodeV code, against values computed by hand from its rules."""

from __future__ import annotations

import dataclasses

import pytest
from reward_episodes import answer, episode, error, look, region, task

from codev_env.rewards import get_reward
from codev_env.types import Answer, Code, Episode, Invalid, Step

CODE = "<think>a</think><code>x</code>"
CROP = region((10, 10, 30, 30))


def paid(played: Episode) -> dict[str, float]:
    return get_reward("tapo-released").value(played)


def about(source: str):
    return dataclasses.replace(task(), category=source)


@pytest.mark.parametrize(
    ("actions", "formed"),
    [
        ([CODE, "<think>b</think><answer>red</answer>"], True),
        ([CODE, "<think>b</think><answer>red"], True),  # cut at the stop string
        (["<answer>red</answer>"], True),
        (["<think>a</think> so \\boxed{red}"], True),  # one boxed answer is an answer
        (["<think>a</think> \\boxed{blue} or \\boxed{red}"], False),
        ([CODE, "<think>b</think> \\boxed{red}"], False),  # code after the last </answer>, of which there is none
        (["<think>a<think>b</think><answer>red</answer>"], False),
        (["<think>a</think></think><answer>red</answer>"], False),
        (["<think>a</think><answer>blue</answer><answer>red</answer>"], False),
        (["<think>a <answer>blue</answer></think><answer>red</answer>"], True),  # only what follows </think> counts
        (["<think>a</think><answer>red</answer><code>x</code>"], False),
        (["<think>a</think><code>x</code><code>y</code>", "<think>b</think><answer>red</answer>"], True),
        (["<think>a</think><code>x</code></code>", "<think>b</think><answer>red</answer>"], False),
        (["<think>a</think> red"], False),
        # An end tag is put back where generation stopped at it, and nowhere else.
        (["<think>a</think><code>x<code>y</code>", "<think>b</think><answer>red</answer>"], False),
        (["<think>a</think><answer>blue<answer>red</answer>"], False),
        # As many of both, but the last one is not closed.
        (["<think>a</think></answer><answer>red</answer><answer>"], False),
        (["<think>a</think></answer>\\boxed{red}<answer>"], True),
    ],
)
def test_format(actions: list[str], formed: bool) -> None:
    steps = [Step(action, Answer("red") if "answer>" in action else Code("x")) for action in actions]
    assert paid(Episode(task(), steps, "red", True, "answer"))["format"] == 0.3 * formed


def test_format_of_an_episode_without_an_answer() -> None:
    running = Episode(task(), [Step(CODE, Code("x"))])
    assert paid(running)["format"] == 0.3
    running.stop_reason = "max_turns"
    assert paid(running)["format"] == 0.0


@pytest.mark.parametrize("source", ["GeoQA", "Geometry3K", "TabMWP", "ScienceQA", "FigureQA", "thinklite_eureka"])
def test_calculation_needs_no_code(source: str) -> None:
    what = about(source)
    assert paid(episode(what, answer()))["tool"] == 0.5
    assert paid(episode(what, answer(), correct=False))["tool"] == 0.5 * 0.25
    for values, correct, level in (
        ([1.0], False, 1.0),
        ([0.8], True, 1.0),
        ([0.8], False, 0.75),
        ([0.5, 0.2], True, 0.5),
        ([0.3], True, 0.25),
        ([0.0], True, 0.0),  # prints the answer only
    ):
        played = episode(what, *(look(value=value) for value in values), answer(), correct=correct)
        assert paid(played)["tool"] == 0.5 * level
    assert paid(episode(what, error(), look(value=0.1), answer()))["tool"] == 0.5 * 0.5, "failed, then repaired"
    assert paid(episode(what, error(), answer()))["tool"] == 0.0


def test_counting_needs_code() -> None:
    what = about("IconQA")
    assert paid(episode(what, answer()))["tool"] == 0.0
    for value, level in ((1.0, 1.0), (0.8, 0.75), (0.5, 0.5), (0.3, 0.25), (0.0, 0.0)):
        assert paid(episode(what, look(value=value), answer()))["tool"] == 0.5 * level


@pytest.mark.parametrize("source", ["vstar", "chart", "high_res", "direct_attributes", ""])
def test_search_is_the_best_of_three_images(source: str) -> None:
    what = about(source)
    assert paid(episode(what, answer()))["tool"] == 0.0
    assert paid(episode(what, look(CROP, value=0.0), answer()))["tool"] == 0.5 * 0.25


@pytest.mark.parametrize(("text", "formed"), [("\\boxed{", False), ("\\boxed{}", False), ("\\boxed{" * 9 + "}", False)])
def test_repeated_boxes_are_read_in_linear_time(text: str, formed: bool) -> None:
    """In quadratic time this would take minutes."""
    played = episode(task(), Step(text * (400_000 // len(text)), Invalid("no answer")), stop="max_turns")
    assert paid(played)["format"] == 0.3 * formed
