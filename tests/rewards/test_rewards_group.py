"""Terms that compare the rollouts of a task, against values computed by hand."""

from __future__ import annotations

import pytest
from reward_episodes import answer, episode, error, look, region, task, unknown_region

from codev_env.rewards import get_reward
from codev_env.types import Episode

T = task()


def looked(correct: bool) -> Episode:
    return episode(T, look(region((10, 10, 30, 30))), answer(), correct=correct)


def blind(correct: bool) -> Episode:
    return episode(T, answer(), correct=correct)


def group(name: str, term: str, *episodes: Episode) -> list[float]:
    return [values[term] for values in get_reward(name).group_value(episodes)]


def test_curiosity_pays_those_who_look_while_few_do() -> None:
    # RaPR 1/8: 0.5 * (0.3 - 0.125)
    found = group("pixelreasoner", "curiosity", looked(False), *[blind(True)] * 7)
    assert found == pytest.approx([0.0875] + [0.0] * 7)
    # RaPR 2/4 is above H.
    assert group("pixelreasoner", "curiosity", looked(True), looked(True), blind(True), blind(True)) == [0.0] * 4
    assert group("pixelreasoner", "curiosity", *[blind(True)] * 4) == [0.0] * 4


@pytest.mark.parametrize("steps", [[error()], [look(unknown_region())], [look(region(share=0.1))], [look()]])
def test_calls_that_show_nothing_of_the_original_are_not_looking(steps) -> None:
    idle = episode(T, *steps, answer())
    assert group("pixelreasoner", "curiosity", idle, *[blind(True)] * 7) == [0.0] * 8


def test_necessity_is_what_looking_was_worth() -> None:
    # acc 2/3 with, 1/3 without: 0.2 * 1/3 for each that looked and was right.
    rollouts = [looked(True), blind(False), looked(True), blind(True), looked(False), blind(False)]
    found = group("codevision-paper", "necessity", *rollouts)
    assert found == pytest.approx([1 / 15, 0, 1 / 15, 0, 0, 0])


def test_necessity_goes_to_those_who_made_the_crop_that_is_needed() -> None:
    small = task("crop", targets=[(10, 10, 30, 30)])
    hit = episode(small, look(region((10, 10, 30, 30))), answer())
    missed = episode(small, look(region((60, 40, 80, 60))), answer())
    found = group("codevision-paper", "necessity", hit, missed, episode(small, answer(), correct=False))
    assert found == pytest.approx([0.2, 0, 0])


def test_the_released_curiosity_is_relative_to_the_rate() -> None:
    # RaPR 1/8: (0.3 - 0.125) / 2 / 0.125 * 0.25
    found = group("pixelreasoner-released", "curiosity", looked(False), *[blind(True)] * 7)
    assert found == pytest.approx([0.175] + [0.0] * 7)
    assert group("pixelreasoner-released", "curiosity", looked(True), blind(True)) == [0.0, 0.0]
    assert group("pixelreasoner-released", "curiosity", blind(True)) == [0.0]


@pytest.mark.parametrize(
    "rollouts",
    [
        [looked(True)] * 4,  # nothing to compare with
        [blind(True)] * 4,
        [looked(False), blind(True)],  # looking harmed: not negative
        [looked(True), blind(True)],
        [looked(True), blind(True), blind(True), blind(False)],  # two were right without
    ],
)
def test_no_necessity(rollouts: list[Episode]) -> None:
    assert group("codevision-paper", "necessity", *rollouts) == [0.0] * len(rollouts)


def test_rewards_without_group_terms_pay_a_group_nothing() -> None:
    assert get_reward("tapo").group_value([looked(True), blind(True)]) == [{}, {}]
