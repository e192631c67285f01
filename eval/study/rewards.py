"""Rewards that the study compares with and that nobody should train on."""

from __future__ import annotations

from codev_env.rewards import Reward, Term, terms
from codev_env.types import Episode


def called(episode: Episode) -> float:
    """1 once the tool was called, whatever it showed, else 0."""
    return float(terms.calls(episode) > 0)


any_call = Reward(
    "any-call",
    (Term("outcome", terms.outcome, 1.0, why=terms.why_outcome), Term("call", called, 0.3, why=terms.why_calls)),
    tool_terms=("call",),
    source="what is left of a tool reward that does not look at what the tool showed",
)
