"""95 % intervals: of a proportion, and of sums over groups of observations that belong together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Counts = tuple[float, float]
"""The counts of one episode or task for a share: hits, and the number that they are among."""
_Z95 = 1.959963984540054
RESAMPLES = 1000
_AT_ONCE = 1 << 20
"""Numbers that are drawn at once, which bounds the memory of resampling."""
SAME = 1e-9
"""Values nearer to each other than this differ by rounding alone."""


def wilson(hits: float, n: int) -> list[float] | None:
    """95 % score interval of a proportion (Wilson 1927), `None` for n = 0.

    With p = hits/n and z = 1.96: (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n).
    """
    if n == 0:
        return None
    p, z2 = hits / n, _Z95**2
    centre, half = p + z2 / (2 * n), _Z95 * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    low, high = (centre - half) / (1 + z2 / n), (centre + half) / (1 + z2 / n)
    # Rounding must not push the ends of 0/n and n/n off the estimate.
    return [0.0 if hits == 0 else low, 1.0 if hits == n else high]


def bootstrap(groups: Matrix, statistic: Callable[[Matrix], Any], seed: int) -> list[float] | None:
    """Return the 95 % percentile interval of a statistic of a sum over groups, by resampling whole groups.

    Args:
        groups: Shape (groups, ...): what each group adds to the sum, such as its matrix of counts.
        statistic: From sums of shape (resamples, ...) to values of shape (resamples,).
        seed: Seeds the resampling.

    Returns:
        Low and high; `None` for fewer than two groups, or where the statistic is not defined, or where no resample
        differs: groups that are all alike do not show how rare another group is.
    """
    if len(groups) < 2:
        return None
    rng, even = np.random.default_rng(seed), np.full(len(groups), 1 / len(groups))
    rows = max(1, _AT_ONCE // len(groups))
    sums = [
        np.tensordot(rng.multinomial(len(groups), even, min(rows, RESAMPLES - done)).astype(float), groups, axes=1)
        for done in range(0, RESAMPLES, rows)
    ]
    values = np.asarray(statistic(np.concatenate(sums)))
    values = values[np.isfinite(values)]
    if not len(values) or np.ptp(values) < SAME:
        return None
    return [float(end) for end in np.percentile(values, (2.5, 97.5))]


def share_interval(tasks: Sequence[Counts], seed: int = 0) -> list[float] | None:
    """Return the 95 % percentile interval of a share, by resampling whole tasks; `None` below two tasks that count.

    Where all tasks have the same share, which no resample changes, it is the Wilson interval of as many tasks.

    Args:
        tasks: For each task (hits, count), summed over its samples.
        seed: Seeds the resampling.
    """
    shares = [hits / count for hits, count in tasks if count]
    if len(shares) < 2:
        return None
    if max(shares) - min(shares) < SAME:
        return wilson(shares[0] * len(shares), len(shares))
    return mean_interval(tasks, seed)


def mean_interval(tasks: Sequence[Counts], seed: int = 0) -> list[float] | None:
    """Return the 95 % percentile interval of a mean over episodes, by resampling whole tasks; `None` below two tasks.

    It is `None`, too, where no resample differs, as where all tasks have the same mean; see `bootstrap`.

    Args:
        tasks: For each task (sum of its episodes' values, number of episodes).
        seed: Seeds the resampling.
    """
    return bootstrap(np.array(tasks, float).reshape(-1, 2), lambda sums: share_of(sums[..., 0], sums[..., 1]), seed)


def share_of(above: Any, below: Any) -> Any:
    """Divide; NaN for x/0."""
    return np.divide(above, below, out=np.full(np.shape(below), np.nan), where=np.asarray(below) != 0)
