"""Agreement of two raters: shares, Cohen's kappa and intervals that respect which ratings belong together."""

from __future__ import annotations

from typing import Any

import numpy as np

from codev_env.scoring.intervals import Matrix, bootstrap, share_of

__all__ = ["accuracy", "bootstrap", "kappa"]


def accuracy(counts: Matrix) -> Any:
    """Return the share of equal ratings, NaN without any.

    Args:
        counts: Shape (..., k, k): how often one rater said i and the other j.
    """
    return share_of(np.trace(counts, axis1=-2, axis2=-1), counts.sum((-2, -1)))


def kappa(counts: Matrix, linear: bool = False) -> Any:
    """Return Cohen's kappa (1960): 1 - Σ w·observed / Σ w·expected, by chance given how often each says what.

    Args:
        counts: Shape (..., k, k): how often one rater said i and the other j.
        linear: w = |i - j| for levels in order (Cohen 1968); otherwise w = 1 for i ≠ j and 0 for i = j.

    Returns:
        Shape (...): 1 for full agreement, 0 for as much as by chance, NaN where both always say the same one thing.
    """
    index = np.arange(counts.shape[-1])
    distance = np.abs(index[:, None] - index[None, :])
    weights = distance if linear else (distance > 0)
    total = counts.sum((-2, -1))
    expected = counts.sum(-1)[..., :, None] * counts.sum(-2)[..., None, :]
    observed, by_chance = (counts * weights).sum((-2, -1)), share_of((expected * weights).sum((-2, -1)), total)
    return 1 - share_of(observed, by_chance)
