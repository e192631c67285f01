"""Credit assignment: from the rewards of a group's turns to advantages. Pure functions on tensors.

Every credit of `CREDITS` takes `rewards` `[trajectories, turns]` (0 beyond a trajectory's end), `turns`
`[trajectories]` (how many) and `groups` `[trajectories]` (trajectories of the same task share a number), and returns
advantages `[trajectories, turns]`, one for each turn, given to all tokens of that turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from codev_env.errors import ConfigError, unstopped
from codev_env.registry import Registry

EPSILON = 1e-6
"""Added to standard deviations."""
EQUAL_DECIMALS = 9
"""Rewards that agree to so many decimals are equal: the same terms added in another order differ by rounding."""


def trajectory(rewards: torch.Tensor, turns: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """GRPO as published: A = (R - mean(R)) / (std(R) + 1e-6) over the group, the same for every turn.

    R is the sum of a trajectory's rewards; std is the sample standard deviation. A group of one gets 0.
    Source: DeepSeekMath, arXiv 2402.03300, section 4.1; CodeV, arXiv 2511.19661.
    """
    return _by_trajectory(rewards, turns, groups, _standardise)


def trajectory_mean(rewards: torch.Tensor, turns: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """Dr. GRPO: A = R - mean(R) over the group, the same for every turn.

    Without the division by std, tasks that are almost always or almost never solved do not weigh more than others.
    Source: arXiv 2503.20783, section 3.
    """
    return _by_trajectory(rewards, turns, groups, _centre)


def turn(rewards: torch.Tensor, turns: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """Each turn by its own return: A_t = (G_t - mean(G_t)) / (std(G_t) + 1e-6), G_t the rewards from turn t on.

    Mean and sample standard deviation are over the group's trajectories that reached turn t. A turn that only one of
    them reached gets 0.
    """
    return _by_turn(rewards, turns, groups, _standardise)


def turn_mean(rewards: torch.Tensor, turns: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """Each turn by its own return, without the division by std: A_t = G_t - mean(G_t). See `turn`."""
    return _by_turn(rewards, turns, groups, _centre)


Scale = Callable[[torch.Tensor], torch.Tensor]
"""From the values of one group, two or more `[n]`, to their advantages `[n]`."""


def _centre(values: torch.Tensor) -> torch.Tensor:
    return values - values.mean()


def _standardise(values: torch.Tensor) -> torch.Tensor:
    return (values - values.mean()) / (values.std() + EPSILON)


def _by_trajectory(rewards: torch.Tensor, turns: torch.Tensor, groups: torch.Tensor, scale: Scale) -> torch.Tensor:
    advantage = _within_groups(rewards.sum(1), groups, scale)
    return advantage[:, None].expand_as(rewards) * _within(rewards, turns)


def _by_turn(rewards: torch.Tensor, turns: torch.Tensor, groups: torch.Tensor, scale: Scale) -> torch.Tensor:
    within = _within(rewards, turns)
    returns = (rewards * within).flip(1).cumsum(1).flip(1)
    advantages = torch.zeros_like(rewards)
    for t in range(rewards.shape[1]):
        reached = within[:, t] > 0
        if reached.any():
            advantages[reached, t] = _within_groups(returns[reached, t], groups[reached], scale)
    return advantages


def _within(rewards: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    return (torch.arange(rewards.shape[1], device=rewards.device)[None] < turns[:, None]).to(rewards.dtype)


def _within_groups(values: torch.Tensor, groups: torch.Tensor, scale: Scale) -> torch.Tensor:
    """Scale `values` `[n]` within each group; a group of one, and one of equal values, gets exactly 0."""
    out = torch.zeros_like(values)
    for group in groups.unique():
        rows = groups == group
        if differ(values[rows]):
            out[rows] = scale(values[rows])
    return out


def differ(values: torch.Tensor) -> bool:
    """Whether the rewards of a group, `[n]`, are not all equal; the division by their deviation magnifies rounding."""
    return len(values.round(decimals=EQUAL_DECIMALS).unique()) > 1


CreditFunction = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""From `rewards`, `turns` and `groups` to advantages, in the shapes above."""


@dataclass(frozen=True)
class Credit:
    """A way to assign credit.

    Attributes:
        function: Computes the advantages.
        divides_by_std: The function divides by a standard deviation, so that its advantages do not depend on the scale
            of the rewards; see `channel_factors`.
    """

    function: CreditFunction
    divides_by_std: bool = True

    def __call__(self, rewards: torch.Tensor, turns: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
        """Return the advantages `[trajectories, turns]`."""
        return self.function(rewards, turns, groups)


def combine(
    credit: Credit,
    rewards: torch.Tensor,
    turns: torch.Tensor,
    groups: torch.Tensor,
    weights: Sequence[float],
    kept: torch.Tensor,
    gate: tuple[int, int] | None = None,
) -> torch.Tensor:
    """Add the advantages of several channels: A = sum_c w_c * credit(rewards of c), each over its own trajectories.

    With one channel of weight 1 that keeps all trajectories, this is `credit(rewards[0], turns, groups)`.
    Source: HDPO, arXiv 2604.08545; TACO, arXiv 2606.30251.

    Args:
        credit: One of `CREDITS`, or one like them.
        rewards: `[channels, trajectories, turns]`.
        turns: `[trajectories]`.
        groups: `[trajectories]`.
        weights: One for each channel, see `channel_factors`.
        kept: `[channels, trajectories]`, bool: which trajectories a channel is normalised over; the others get 0 of it.
        gate: A channel, and the one whose rewards decide which turns get its advantages, see `route`.

    Returns:
        Advantages `[trajectories, turns]`.

    Raises:
        ConfigError: The credit gives advantages of another shape, or some that are not finite.
    """
    advantages = torch.zeros_like(rewards[0])
    for number, (channel, weight, rows) in enumerate(zip(rewards, weights, kept, strict=True)):
        if not rows.any():
            continue
        found = credit(channel[rows], turns[rows], groups[rows])
        called = getattr(credit.function, "__name__", credit.function)
        if found.shape != channel[rows].shape:
            raise ConfigError(
                f"credit {called} gave {[*found.shape]} advantages for {[*channel[rows].shape]} rewards; it must give "
                "one for each turn of each trajectory."
            )
        if not found[_within(found, turns[rows]) > 0].isfinite().all():
            raise ConfigError(
                f"credit {called} gave advantages that are not finite; a group may be of one trajectory, or of equal "
                "rewards."
            )
        if gate is not None and number == gate[0]:
            found = route(found, rewards[gate[1], rows], turns[rows])
        advantages[rows] += weight * found
    return advantages


def route(advantages: torch.Tensor, gains: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Outcome-gated advantage routing: praise goes to the calls that helped, blame to those that harmed.

    The last turn, which answers, keeps its advantage. A turn before it keeps a positive one if its call has gained the
    answer, and a negative one if its call has lost it; all others get 0.
    Source: the rule of TACO (arXiv 2606.30251) as its abstract and others describe it; no code is public.

    Args:
        advantages: Of the outcome, `[trajectories, turns]`.
        gains: `[trajectories, turns]`: how a call changed the probed answer, the reward of the turn after it.
        turns: `[trajectories]`.
    """
    change = torch.zeros_like(gains)
    change[:, :-1] = gains[:, 1:]
    answers = torch.arange(gains.shape[1], device=gains.device)[None] == turns[:, None] - 1
    return torch.where(answers | (advantages * change > 0), advantages, 0.0)


def channel_factors(name: str, weights: Sequence[float]) -> list[float]:
    """Return the factor of each channel in `combine` under the credit `name`: its weight.

    Rewards are weighted already; a credit that divides by the standard deviation takes that away, the others do not and
    get 1.
    """
    return list(weights) if get_credit(name).divides_by_std else [1.0] * len(weights)


CREDITS: Registry[Credit | CreditFunction] = Registry(
    "credit",
    {
        "trajectory": Credit(trajectory),
        "trajectory-mean": Credit(trajectory_mean, divides_by_std=False),
        "turn": Credit(turn),
        "turn-mean": Credit(turn_mean, divides_by_std=False),
    },
    expected="a function or a Credit",
)
"""The values of `--credit`, by name."""


def get_credit(name: str) -> Credit:
    """Return a credit by its name in `CREDITS` or the `"module:attribute"` path of a `Credit` or a function.

    A function counts as dividing by the standard deviation.

    Raises:
        ConfigError: There is none, or it cannot be called.
    """
    found = CREDITS.find(name)
    return found if isinstance(found, Credit) else Credit(found)


def check_credit(name: str) -> None:
    """Try a credit on two groups and a trajectory alone, so that one that cannot work is found before training.

    Raises:
        ConfigError: There is none, it fails, or it returns something else than one finite advantage for each turn.
    """
    rewards = torch.tensor([[0.0, 1.0], [0.5, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    turns, groups = torch.tensor([2, 1, 2, 2, 2]), torch.tensor([0, 0, 1, 1, 2])
    credit = get_credit(name)
    try:
        combine(credit, rewards[None], turns, groups, [1.0], torch.ones(1, len(turns), dtype=torch.bool))
    except ConfigError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {unstopped(error)}"
        raise ConfigError(f"credit {name!r} failed on five trajectories: {reason}.") from error
