"""Credit assignment against hand-computed values, and what must not change it."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from codev_env.errors import ConfigError
from codev_train.learn.credit import CREDITS, Credit, channel_factors, check_credit, combine, get_credit, route

ROOT_HALF = math.sqrt(0.5)


def advantages(name: str, rewards: list[list[float]], turns: list[int], groups: list[int]) -> list[list[float]]:
    table = torch.tensor(rewards, dtype=torch.float64)
    return CREDITS[name](table, torch.tensor(turns), torch.tensor(groups)).tolist()


def close(found: list[list[float]], wanted: list[list[float]]) -> bool:
    return torch.allclose(torch.tensor(found), torch.tensor(wanted), atol=1e-4)


def test_trajectory_gives_every_turn_the_normalised_return():
    # Returns 1 and 3: mean 2, sample standard deviation sqrt(2).
    found = advantages("trajectory", [[0.0, 1.0], [1.0, 2.0]], [2, 2], [0, 0])
    assert close(found, [[-ROOT_HALF] * 2, [ROOT_HALF] * 2])


def test_trajectory_mean_only_centres():
    # Returns 1 and 3: mean 2.
    assert advantages("trajectory-mean", [[0.0, 1.0], [1.0, 2.0]], [2, 2], [0, 0]) == [[-1, -1], [1, 1]]
    # Returns 0, 1, 5 and, in a group of its own, 7: mean 2.
    found = advantages("trajectory-mean", [[0.0], [1.0], [5.0], [7.0]], [1] * 4, [4, 4, 4, 2])
    assert found == [[-2], [-1], [3], [0]]


def test_turn_mean_only_centres_the_rewards_from_that_turn_on():
    # Returns to go: [2, 1], [4, 4] and [1]; the second turn was reached by two.
    found = advantages("turn-mean", [[1.0, 1.0], [0.0, 4.0], [1.0, 0.0]], [2, 2, 1], [0, 0, 0])
    assert close(found, [[-1 / 3, -1.5], [5 / 3, 1.5], [-4 / 3, 0]])


def test_equal_rewards_that_cannot_be_summed_exactly_give_nothing():
    for name in CREDITS:
        assert advantages(name, [[0.1]] * 6, [1] * 6, [0] * 6) == [[0]] * 6


def test_trajectory_of_three():
    # Returns 0, 1, 5: mean 2, sample variance (4 + 1 + 9) / 2 = 7.
    found = advantages("trajectory", [[0.0], [1.0], [5.0]], [1, 1, 1], [4, 4, 4])
    assert close(found, [[-2 / math.sqrt(7)], [-1 / math.sqrt(7)], [3 / math.sqrt(7)]])


def test_turns_beyond_the_end_get_nothing():
    found = advantages("trajectory", [[1.0, 0.0, 0.0], [0.0, 0.0, 3.0]], [1, 3], [0, 0])
    assert close(found, [[-ROOT_HALF, 0, 0], [ROOT_HALF] * 3])


def test_turn_uses_the_rewards_from_that_turn_on():
    # Returns to go: [2, 1] and [4, 4] -> normalised column by column.
    found = advantages("turn", [[1.0, 1.0], [0.0, 4.0]], [2, 2], [0, 0])
    assert close(found, [[-ROOT_HALF] * 2, [ROOT_HALF] * 2])
    # A late reward is not the merit of a turn after it.
    found = advantages("turn", [[1.0, 1.0], [4.0, 1.0]], [2, 2], [0, 0])
    assert close(found, [[-ROOT_HALF, 0], [ROOT_HALF, 0]])


def test_turn_compares_only_trajectories_that_reached_it():
    found = advantages("turn", [[3.0, 0.0], [0.0, 1.0], [0.0, 2.0]], [1, 2, 2], [0, 0, 0])
    assert close(found, [[1.0, 0], [-1.0, -ROOT_HALF], [0, ROOT_HALF]])


def test_a_turn_that_one_trajectory_reached_gets_nothing():
    found = advantages("turn", [[1.0, 9.0], [0.0, 0.0]], [2, 1], [0, 0])
    assert found[0][1] == 0 and found[0][0] == pytest.approx(ROOT_HALF, abs=1e-4)


@pytest.mark.parametrize("name", CREDITS)
def test_a_group_of_one_gets_nothing(name):
    assert advantages(name, [[5.0, 1.0], [0.0, 1.0]], [2, 2], [0, 1]) == [[0, 0], [0, 0]]


@pytest.mark.parametrize("name", CREDITS)
def test_equal_rewards_give_nothing(name):
    assert advantages(name, [[0.25, 0.5]] * 4, [2] * 4, [0] * 4) == [[0, 0]] * 4


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[list[float]], list[int], list[int]]:
    """Rewards in steps of 1/8, so that a group's rewards are either equal or far apart."""
    rows, width = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    turns = draw(st.lists(st.integers(1, width), min_size=rows, max_size=rows))
    groups = draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows))
    value = st.integers(-16, 16).map(lambda x: x / 8)
    rewards = [[draw(value) if t < turn else 0.0 for t in range(width)] for turn in turns]
    return rewards, turns, groups


@pytest.mark.parametrize("name", CREDITS)
@given(table=tables())
def test_no_turn_beyond_the_end_and_centred_groups(name, table):
    rewards, turns, groups = table
    found = advantages(name, rewards, turns, groups)
    assert all(a == 0 for row, end in zip(found, turns, strict=True) for a in row[end:])
    for group in set(groups):
        rows = [i for i, g in enumerate(groups) if g == group]
        # "trajectory" centres whole trajectories, "turn" each turn over those that reached it.
        for t in range(len(rewards[0]) if name.startswith("turn") else 1):
            assert sum(found[i][t] for i in rows) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("name", CREDITS)
@given(table=tables(), shift=st.integers(-8, 8), scale=st.sampled_from([0.5, 2.0, 4.0]))
def test_invariances(name, table, shift, scale):
    """A group's advantages are its own: no bonus at the end, other groups or order; nor, with std, the scale."""
    rewards, turns, groups = table
    base = advantages(name, rewards, turns, groups)

    scaled = [[scale * r for r in row] for row in rewards]
    factor = scale if name.endswith("-mean") else 1.0
    assert close(advantages(name, scaled, turns, groups), [[factor * a for a in row] for row in base])

    bonus = [[r + shift * (t == end - 1) for t, r in enumerate(row)] for row, end in zip(rewards, turns, strict=True)]
    assert close(advantages(name, bonus, turns, groups), base)

    order = list(reversed(range(len(rewards))))
    turned = advantages(name, [rewards[i] for i in order], [turns[i] for i in order], [groups[i] for i in order])
    assert close(turned, [base[i] for i in order])

    for group in set(groups):
        rows = [i for i, g in enumerate(groups) if g == group]
        alone = advantages(name, [rewards[i] for i in rows], [turns[i] for i in rows], [7] * len(rows))
        assert close(alone, [base[i] for i in rows])


def combined(name: str, channels: list[list[list[float]]], turns, groups, weights, kept=None) -> torch.Tensor:
    rewards = torch.tensor(channels, dtype=torch.float64)
    rows = torch.ones(rewards.shape[:2], dtype=torch.bool) if kept is None else torch.tensor(kept)
    return combine(CREDITS[name], rewards, torch.tensor(turns), torch.tensor(groups), weights, rows)


@pytest.mark.parametrize("name", CREDITS)
@given(table=tables())
def test_one_channel_is_the_plain_credit_to_the_bit(name, table):
    rewards, turns, groups = table
    assert combined(name, [rewards], turns, groups, [1.0]).tolist() == advantages(name, rewards, turns, groups)


def test_channels_are_normalised_apart_and_added():
    # Outcome 1, 0: +-1/sqrt(2). Gain 0, 1, whatever its scale: -+1/sqrt(2), times 0.15.
    for scale in (1.0, 0.001):
        found = combined("trajectory", [[[1.0], [0.0]], [[0.0], [scale]]], [1, 1], [0, 0], [1.0, 0.15])
        assert found[:, 0].tolist() == pytest.approx([0.85 * ROOT_HALF, -0.85 * ROOT_HALF], abs=1e-3)


def test_the_weight_of_a_channel_counts_once():
    # Two channels of weights 1 and 0.5, the rewards weighted already: +-0.5 and -+0.25 after centring.
    channels = [[[1.0], [0.0]], [[0.0], [0.5]]]
    factors = channel_factors("trajectory-mean", [1.0, 0.5])
    assert combined("trajectory-mean", channels, [1, 1], [0, 0], factors).tolist() == [[0.25], [-0.25]]
    # With std the scale of the rewards is gone, and the weight gives it back.
    factors = channel_factors("trajectory", [1.0, 0.5])
    found = combined("trajectory", channels, [1, 1], [0, 0], factors)[:, 0].tolist()
    assert found == pytest.approx([0.5 * ROOT_HALF, -0.5 * ROOT_HALF], abs=1e-4)


def test_praise_goes_to_the_calls_that_helped_and_blame_to_those_that_harmed():
    # Four turns: three calls, of which the first gained the answer, the second lost it, the third changed nothing.
    gains = [[0.0, 0.15, -0.15, 0.0]] * 2
    advantages = torch.tensor([[1.0] * 4, [-1.0] * 4])
    assert route(advantages, torch.tensor(gains), torch.tensor([4, 4])).tolist() == [[1, 0, 0, 1], [0, -1, 0, -1]]


def test_an_answer_without_a_call_is_never_gated():
    advantages = torch.tensor([[0.5, 0.0, 0.0], [-0.5, -0.5, 0.0]])
    found = route(advantages, torch.zeros(2, 3), torch.tensor([1, 2]))
    assert found.tolist() == [[0.5, 0, 0], [0, -0.5, 0]]


def test_the_outcome_is_routed_and_the_gain_is_not():
    outcome = [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    gains = [[0.0, 0.0, 0.0], [0.0, 0.15, 0.0]]
    rewards = torch.tensor([outcome, gains])
    rows, turns, groups = torch.ones(2, 2, dtype=torch.bool), torch.tensor([3, 3]), torch.tensor([0, 0])
    credit = CREDITS["trajectory-mean"]
    found = combine(credit, rewards, turns, groups, [1.0, 1.0], rows, gate=(0, 1))
    assert found[0].tolist() == pytest.approx([-0.075, -0.075, 0.425])  # nothing gained: the answer alone is praised
    assert found[1].tolist() == pytest.approx([0.075, 0.075, -0.425])  # a call that gained is not blamed
    assert torch.equal(combine(credit, rewards, turns, groups, [1.0, 1.0], rows)[0], torch.full((3,), 0.425))


def last_turn(rewards: torch.Tensor, turns: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    return rewards[:, -1:].expand_as(rewards)


LAST_TURN = Credit(last_turn, divides_by_std=False)


def test_a_credit_says_itself_whether_it_divides_by_the_standard_deviation():
    divides = {name: credit.divides_by_std for name, credit in CREDITS.items()}
    assert divides == {"trajectory": True, "trajectory-mean": False, "turn": True, "turn-mean": False}
    assert channel_factors(f"{__name__}:LAST_TURN", [1.0, 0.5]) == [1.0, 1.0]
    # A plain function is taken to divide.
    assert get_credit(f"{__name__}:last_turn") == Credit(last_turn)
    assert channel_factors(f"{__name__}:last_turn", [1.0, 0.5]) == [1.0, 0.5]


def test_a_channel_leaves_out_what_its_mask_leaves_out():
    # Two correct rollouts, efficiency 1 and 1/2: +-1/sqrt(2); the wrong one gets the outcome's advantage only.
    outcome, efficiency = [[1.0], [1.0], [0.0]], [[1.0], [0.5], [0.0]]
    kept = [[True] * 3, [True, True, False]]
    found = combined("trajectory", [outcome, efficiency], [1] * 3, [0] * 3, [1.0, 0.15], kept)[:, 0]
    # Outcome: mean 2/3, sample variance 1/3.
    up, down = (1 / 3) / math.sqrt(1 / 3), (-2 / 3) / math.sqrt(1 / 3)
    assert found.tolist() == pytest.approx([up + 0.15 * ROOT_HALF, up - 0.15 * ROOT_HALF, down], abs=1e-4)


@pytest.mark.parametrize("name", CREDITS)
def test_a_trajectory_left_out_of_all_channels_changes_nothing_for_the_others(name):
    rewards, turns = [[1.0, 0.0], [0.0, 9.0], [0.0, 2.0]], [2, 2, 2]
    found = combined(name, [rewards], turns, [0] * 3, [1.0], [[True, False, True]])
    alone = advantages(name, [rewards[0], rewards[2]], turns[:2], [0, 0])
    assert found.tolist() == [alone[0], [0.0, 0.0], alone[1]]


@pytest.mark.parametrize("name", CREDITS)
def test_a_channel_that_keeps_nobody_gives_nothing(name):
    assert combined(name, [[[1.0], [2.0]]], [1, 1], [0, 0], [1.0], [[False, False]]).tolist() == [[0.0], [0.0]]


def median(rewards: torch.Tensor, turns: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    total = rewards.sum(1)
    return (total - torch.stack([total[groups == group].median() for group in groups]))[:, None].expand_as(rewards)


def test_a_credit_is_not_asked_about_a_channel_that_keeps_nobody():
    """The function stacks a list, which must not be empty; in `hdpo` a channel keeps the right answers alone."""
    kept = [[True, True], [False, False]]
    credit, numbers = Credit(median), torch.tensor([1, 1])
    found = combine(credit, torch.ones(2, 2, 1), numbers, numbers, [1.0, 1.0], torch.tensor(kept))
    assert found.tolist() == [[0.0], [0.0]]


@pytest.mark.parametrize("name", [*CREDITS, f"{__name__}:median", f"{__name__}:LAST_TURN"])
def test_credits_that_work_pass_the_check(name):
    check_credit(name)


def number(rewards: torch.Tensor, turns: torch.Tensor, groups: torch.Tensor) -> float:
    return 1.0


def by_trajectory(rewards: torch.Tensor, turns: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    return rewards.sum(1)


def alone_is_nan(rewards: torch.Tensor, turns: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    spread = torch.stack([rewards[groups == group].sum(1).std() for group in groups])
    return rewards / (1 + spread[:, None])


@pytest.mark.parametrize(
    ("name", "said"),
    [("number", "failed on five"), ("by_trajectory", r"gave \[5\] advantages"), ("alone_is_nan", "not finite")],
)
def test_a_credit_that_cannot_work_is_refused_before_it_is_used(name, said):
    with pytest.raises(ConfigError, match=said):
        check_credit(f"{__name__}:{name}")


@pytest.mark.parametrize("name", ["trajectory", "trajectory-mean", "turn", "turn-mean"])
def test_rewards_that_differ_by_rounding_alone_are_equal(name):
    """The same reward, earned in other steps: added up, the sums differ in the last bit."""
    rewards = [[0.1 + 0.2, 0.0], [0.3, 0.0]]
    assert sum(rewards[0]) != sum(rewards[1])
    assert advantages(name, rewards, [1, 1], [0, 0]) == [[0, 0], [0, 0]]
    found = advantages(name, [[0.3 + 1e-6, 0.0], [0.3, 0.0]], [1, 1], [0, 0])
    assert found[0][0] > 0 > found[1][0]
