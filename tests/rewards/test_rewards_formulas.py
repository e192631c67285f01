"""The published formulas against values computed by hand; CodeVision's and those of groups have files of their own."""

from __future__ import annotations

import dataclasses

import pytest
from reward_episodes import answer, episode, error, invalid, look, region, task, unknown_region

from codev_env.rewards import get_reward
from codev_env.types import Code, Episode, Step, StepScore

T = task()
CROP = region((10, 10, 30, 30))


def paid(name: str, played: Episode) -> dict[str, float]:
    return get_reward(name).value(played)


def test_tapo_is_the_published_sum() -> None:
    # Scores 1 and 0.25 have the mean 0.625; the third call had nothing to judge.
    played = episode(T, look(CROP, value=1.0), look(CROP, value=0.25), look(CROP), answer())
    assert paid("tapo", played) == {"outcome": 1.0, "format": 0.3, "tool": 0.5 * 0.625}
    assert paid("outcome", played) == {"outcome": 1.0}


def test_tapo_charges_for_an_error() -> None:
    # (1 - 0.5) / 2
    assert paid("tapo", episode(T, look(CROP, value=1.0), error(), answer()))["tool"] == 0.5 * 0.25


def test_no_tool_no_tool_reward() -> None:
    assert paid("tapo", episode(T, answer())) == {"outcome": 1.0, "format": 0.3, "tool": 0.0}
    assert paid("tapo-released", episode(T, answer())) == {"outcome": 1.0, "format": 0.3, "tool": 0.0}


@pytest.mark.parametrize("broken", [Step("", Code("a", ("several code blocks",))), invalid()])
def test_one_flawed_turn_costs_the_format_reward(broken: Step) -> None:
    played = episode(T, broken, answer())
    assert paid("tapo", played)["format"] == 0.0
    assert paid("deepeyes", played)["format"] == -0.2


def test_a_flawed_answer_costs_the_format_reward() -> None:
    played = episode(T, answer("several answers"))
    assert (paid("tapo", played)["format"], paid("deepeyes", played)["format"]) == (0.0, -0.2)


@pytest.mark.parametrize("stop", ["max_turns", "max_length"])
def test_ending_without_an_answer_costs_the_format_reward(stop: str) -> None:
    played = episode(T, look(CROP), stop=stop)
    assert (paid("tapo", played)["format"], paid("deepeyes", played)["format"]) == (0.0, -0.2)
    going_on = episode(T, look(CROP))
    assert (paid("tapo", going_on)["format"], paid("deepeyes", going_on)["format"]) == (0.3, 0.0)


@pytest.mark.parametrize(
    ("values", "level"),
    [
        ([1.0], 1.0),
        ([0.9], 1.0),
        ([0.87], 0.75),
        ([0.5], 0.5),
        ([0.125], 0.25),
        ([0.0], 0.25),  # an image that holds nothing of it
        ([-0.5], 0.25),  # never negative
        ([-0.5, 0.6, 0.2], 0.5),  # the best of them
        ([0.0, 0.0, 0.0, 1.0], 0.25),  # the fourth image is not looked at
        ([None], 0.0),  # nothing to judge
    ],
)
def test_tapo_released_has_five_levels_of_the_best_of_three_images(values: list[float | None], level: float) -> None:
    played = episode(T, *(look(CROP, value=value) for value in values), answer())
    assert paid("tapo-released", played) == {"outcome": 1.0, "format": 0.3, "tool": 0.5 * level}


def test_tapo_released_counts_images_not_calls() -> None:
    three = look(CROP, CROP, CROP, value=0.0)
    assert paid("tapo-released", episode(T, three, look(CROP, value=1.0), answer()))["tool"] == 0.5 * 0.25
    # Calls that return no image use up none of the three.
    played = episode(T, error(), error(), error(), look(CROP, value=1.0), answer())
    assert paid("tapo-released", played)["tool"] == 0.5


def test_deepeyes() -> None:
    seen = episode(T, look(CROP), answer())
    assert paid("deepeyes", seen) == {"outcome": 0.8, "format": 0.0, "tool": 1.2}
    wrong = episode(T, look(CROP), answer(), correct=False)
    assert paid("deepeyes", wrong) == {"outcome": 0.0, "format": 0.0, "tool": 0.0}
    assert paid("deepeyes", episode(T, answer())) == {"outcome": 0.8, "format": 0.0, "tool": 0.0}


@pytest.mark.parametrize(
    ("shown", "seen"),
    [
        (region(), True),  # the whole image is an image: the formula asks no more
        (region(share=0.5), True),
        (region(share=0.49), False),  # mostly drawn
        (unknown_region(), False),
    ],
)
def test_what_deepeyes_counts_as_seen(shown, seen: bool) -> None:
    assert paid("deepeyes", episode(T, look(shown), answer()))["tool"] == 1.2 * seen


def test_pixelreasoner_charges_for_every_call_after_the_first() -> None:
    for count, charge in ((0, 0.0), (1, 0.0), (2, -0.05), (4, -0.15)):
        played = episode(T, *[look(CROP)] * count, answer())
        assert paid("pixelreasoner", played) == pytest.approx({"outcome": 1.0, "overuse": charge, "curiosity": 0.0})
    # A call that failed was a call.
    assert paid("pixelreasoner", episode(T, look(CROP), error(), answer()))["overuse"] == pytest.approx(-0.05)


def test_the_released_pixelreasoner_takes_the_outcome_after_a_failed_call() -> None:
    assert paid("pixelreasoner-released", episode(T, look(CROP), error(), answer()))["outcome"] == 0.0
    assert paid("pixelreasoner-released", episode(T, error(), look(CROP), answer()))["outcome"] == 1.0
    assert paid("pixelreasoner-released", episode(T, answer())) == {"outcome": 1.0, "overuse": 0.0, "curiosity": 0.0}


def probed(before: bool, after: bool) -> Step:
    return dataclasses.replace(look(CROP), probed=(before, after))


def test_taco_pays_what_calls_did_to_the_answer() -> None:
    # +1 for the call that brought the answer, 0 for the one that changed nothing, -1 for the one that lost it.
    gained, same, lost = probed(False, True), probed(True, True), probed(True, False)
    assert paid("taco", episode(T, gained, answer())) == {"outcome": 1.0, "gain": 0.15}
    assert paid("taco", episode(T, gained, same, answer()))["gain"] == 0.15
    assert paid("taco", episode(T, gained, lost, gained, answer()))["gain"] == 0.15
    assert paid("taco", episode(T, lost, answer(), correct=False)) == {"outcome": 0.0, "gain": -0.15}
    assert paid("taco", episode(T, look(CROP), answer())) == {"outcome": 1.0, "gain": 0.0}, "nobody asked"


def test_hdpo_pays_for_few_calls_if_the_answer_is_right() -> None:
    for count, share in ((0, 1.0), (1, 0.5), (3, 0.25)):
        played = episode(T, *[look(CROP)] * count, answer())
        assert paid("hdpo", played) == {"outcome": 0.9, "format": 0.1, "efficiency": pytest.approx(0.15 * share)}
        wrong = episode(T, *[look(CROP)] * count, answer(), correct=False)
        assert paid("hdpo", wrong) == {"outcome": 0.0, "format": 0.1, "efficiency": 0.0}


def test_scores_of_turns_that_are_no_calls_do_not_count() -> None:
    odd = Step("", invalid().turn, score=StepScore(1.0))
    assert paid("tapo", episode(T, odd, answer()))["tool"] == 0.0
