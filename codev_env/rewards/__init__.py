"""Rewards by name: tables of weighted terms. Scores of single terms stay apart until the very end."""

from __future__ import annotations

from collections.abc import Mapping

from codev_env.errors import ConfigError
from codev_env.rewards import codev, codevision, group, terms
from codev_env.rewards.functions import RewardFunction, from_function
from codev_env.rewards.reward import OUTCOME, Channel, GroupTerm, Reward, Term, change
from codev_env.rewards.table import REWARDS

__all__ = [
    "OUTCOME",
    "REWARDS",
    "Channel",
    "GroupTerm",
    "Reward",
    "RewardFunction",
    "Term",
    "change",
    "codev",
    "codevision",
    "get_reward",
    "group",
    "terms",
]


def get_reward(reward: str | Reward | RewardFunction, weights: Mapping[str, float] | None = None) -> Reward:
    """Return a reward.

    Args:
        reward: A name in `REWARDS`, a `Reward`, a function from the `Episode` so far to a number or to a dict of names
            and numbers, or the `"module:attribute"` path of one of the two.
        weights: Weights to use instead of the table's, by term.

    Raises:
        ConfigError: If there is no such reward or term, or the function cannot be used.
    """
    found = REWARDS.find(reward) if isinstance(reward, str) else reward
    if not isinstance(found, Reward):
        if not callable(found):
            raise ConfigError(f"reward is a {type(found).__name__}; it must be a name or {REWARDS.expected}.")
        found = from_function(found, name=reward if isinstance(reward, str) else "")
    return found.with_weights(weights) if weights else found
