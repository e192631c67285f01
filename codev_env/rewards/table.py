"""The rewards that come with the package, each a row of weighted terms; docs/rewards.md explains them."""

from __future__ import annotations

from codev_env.registry import Registry
from codev_env.rewards import codev, codevision, group, terms
from codev_env.rewards.functions import RewardFunction
from codev_env.rewards.reward import Channel, GroupTerm, Reward, Term

_CODEVISION = (
    Term("outcome", codevision.gated_outcome, 1.0, why=terms.why_outcome),
    Term("format", codevision.well_formed, 0.1, why=codevision.why_format),
    Term("must", codevision.must, 1.0, why=codevision.why_operations),
    Term("exact", codevision.exact, 0.1, why=codevision.why_operations),
    Term("emerge", codevision.emerge, 0.2, why=codevision.why_operations),
    Term("usage", codevision.usage, -0.5, why=terms.why_calls),
    Term("spurious", codevision.spurious, -0.5, why=codevision.why_operations),
)
_CODEVISION_TOOLS = ("must", "exact", "emerge", "usage", "spurious")

_BY_NAME: dict[str, Reward] = {
    reward.name: reward
    for reward in (
        Reward(
            "outcome",
            (Term("outcome", terms.outcome, 1.0, why=terms.why_outcome),),
            robust=True,
            source="accuracy alone",
        ),
        Reward(
            "tapo",
            (
                Term("outcome", terms.outcome, 1.0, why=terms.why_outcome),
                Term("format", terms.well_formed, 0.3, why=terms.why_format),
                Term("tool", terms.tool_mean, 0.5, why=terms.why_tool),
            ),
            tool_terms=("tool",),
            needs=("judge",),
            robust=True,
            source="CodeV, arXiv 2511.19661, the paper; weights of the released code",
            second_hand=("tool",),
        ),
        Reward(
            "tapo-released",
            (
                Term("outcome", terms.outcome, 1.0, why=terms.why_outcome),
                Term("format", codev.well_formed, 0.3, why=codev.why_format),
                Term("tool", codev.tool, 0.5, why=codev.why_tool),
            ),
            tool_terms=("tool",),
            needs=("judge",),
            source="CodeV, arXiv 2511.19661, the released code",
        ),
        Reward(
            "codevision",
            _CODEVISION,
            tool_terms=_CODEVISION_TOOLS,
            needs=("transform", "boxes"),
            source="CodeVision, arXiv 2512.03746, the released code",
        ),
        Reward(
            "codevision-paper",
            (
                *_CODEVISION,
                Term("improve", codevision.improve, 0.1, why=codevision.why_operations),
                Term("order", codevision.order, 0.1, why=codevision.why_operations),
            ),
            (GroupTerm("necessity", group.necessity, 0.2),),
            tool_terms=(*_CODEVISION_TOOLS, "improve", "order", "necessity"),
            needs=("transform", "boxes"),
            source="CodeVision, arXiv 2512.03746, the paper; necessity as in the released code",
            second_hand=("improve", "order"),
        ),
        Reward(
            "deepeyes",
            (
                Term("outcome", terms.outcome, 0.8, why=terms.why_outcome),
                Term("format", terms.format_error, -0.2, why=terms.why_format),
                Term("tool", terms.seen_and_correct, 1.2, why=terms.why_calls),
            ),
            tool_terms=("tool",),
            source="DeepEyes, arXiv 2505.14362, the released code",
        ),
        Reward(
            "pixelreasoner",
            (
                Term("outcome", terms.outcome, 1.0, why=terms.why_outcome),
                Term("overuse", terms.overuse, -0.05, why=terms.why_calls),
            ),
            (GroupTerm("curiosity", group.curiosity, 0.5),),
            tool_terms=("overuse", "curiosity"),
            source="Pixel-Reasoner, arXiv 2505.15966, the paper",
            second_hand=("overuse", "curiosity"),
        ),
        Reward(
            "pixelreasoner-released",
            (
                Term("outcome", terms.settled, 1.0, why=terms.why_outcome),
                Term("overuse", terms.overuse, -0.05, why=terms.why_calls),
            ),
            (GroupTerm("curiosity", group.curiosity_released, 0.125),),
            tool_terms=("overuse", "curiosity"),
            source="Pixel-Reasoner, arXiv 2505.15966, the released code, for images",
        ),
        Reward(
            "taco",
            (
                Term("outcome", terms.outcome, 1.0, why=terms.why_outcome),
                Term("gain", terms.gain, 0.15, Channel("gain"), terms.why_gain),
            ),
            tool_terms=("gain",),
            needs=("probing",),
            gate="gain",
            source="TACO, arXiv 2606.30251, the abstract",
            second_hand=("gain",),
        ),
        Reward(
            "hdpo",
            (
                Term("outcome", terms.outcome, 0.9, why=terms.why_outcome),
                Term("format", terms.well_formed, 0.1, why=terms.why_format),
                Term(
                    "efficiency", terms.efficiency, 0.15, Channel("efficiency", only_correct=True), why=terms.why_calls
                ),
            ),
            robust=True,
            source="HDPO, arXiv 2604.08545, the released code",
        ),
    )
}

REWARDS: Registry[Reward | RewardFunction] = Registry(
    "reward",
    _BY_NAME,
    accepts=lambda found: isinstance(found, Reward) or callable(found),
    expected="a function of an Episode or a codev_env Reward",
)
"""The rewards that come with the package, by name."""
