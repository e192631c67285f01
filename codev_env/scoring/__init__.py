"""Scorers: whether an answer is right, by the project's own rules or as others decide it. See docs/scorers.md."""

from __future__ import annotations

from codev_env.benches import benches_scored_by
from codev_env.scoring.registry import SCORERS, get_scorer
from codev_env.scoring.rules import is_correct, normalize, score_rules
from codev_env.scoring.scorer import Score, Scorer, ScorerError
from codev_env.scoring.totals import aggregate

BENCHES = benches_scored_by("vstar", "hrbench", "mathvista")
"""The benchmarks that all of `official`, `vlmevalkit` and `lmms` know."""

__all__ = [
    "BENCHES",
    "SCORERS",
    "Score",
    "Scorer",
    "ScorerError",
    "aggregate",
    "get_scorer",
    "is_correct",
    "normalize",
    "score_rules",
]
