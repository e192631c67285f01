"""A reward and a judge for comparison in the study, not for training."""

from __future__ import annotations

from codev_env.judges import GroundTruthJudge, NoisyJudge
from codev_env.rewards import Reward, Term, terms
from codev_env.types import Episode


def erring_judge() -> NoisyJudge:
    """Make a judge that counts pixels as the toy policy sees them and errs in a tenth of its calls."""
    return NoisyJudge(GroundTruthJudge(view_pixels=4900, detail_power=4, detail_margin=2.25), 0.1)


def called(episode: Episode) -> float:
    """1 if the tool was called, whatever it showed, else 0."""
    return float(terms.calls(episode) > 0)


any_call = Reward(
    "any-call",
    (Term("outcome", terms.outcome, 1.0, why=terms.why_outcome), Term("call", called, 0.3, why=terms.why_calls)),
    tool_terms=("call",),
    source="a tool reward that ignores the output of the tool",
)
