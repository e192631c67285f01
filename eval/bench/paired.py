"""Statistics of tasks with several samples, or of two runs: pass@k, intervals over tasks, McNemar's test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb
from typing import Any

import numpy as np

from codev_env.scoring.metrics import wilson
from codev_env.trajectory import Trajectory
from codev_eval.bench.kappa import SAME, bootstrap

Counts = tuple[float, float]
"""The counts of one episode or task for a share: hits, and the number that they are among."""


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
    return bootstrap(np.array(tasks, float).reshape(-1, 2), lambda sums: _share(sums[..., 0], sums[..., 1]), seed)


def difference_interval(a: Sequence[Counts], b: Sequence[Counts], seed: int = 0) -> list[float] | None:
    """Return the 95 % percentile interval of share(b) - share(a) over the same tasks, by resampling pairs.

    It is `None` where no resample differs, as where all pairs are equal; see `bootstrap`.

    Args:
        a: For each task (hits, count).
        b: The same tasks in the same order.
        seed: Seeds the resampling.
    """
    pairs = np.concatenate([np.array(a, float).reshape(-1, 2), np.array(b, float).reshape(-1, 2)], axis=1)
    return bootstrap(pairs, lambda s: _share(s[..., 2], s[..., 3]) - _share(s[..., 0], s[..., 1]), seed)


def share(tasks: Sequence[Counts]) -> float | None:
    """Return the sum of hits over the sum of counts, `None` where nothing is counted."""
    below = sum(count for _, count in tasks)
    return sum(hits for hits, _ in tasks) / below if below else None


def _share(above: Any, below: Any) -> Any:
    return np.divide(above, below, out=np.full(np.shape(below), np.nan), where=np.asarray(below) != 0)


def mcnemar(only_a: int, only_b: int) -> float:
    """Return the exact two-sided p-value of McNemar's test.

    Args:
        only_a: Tasks that only the first run has right.
        only_b: Tasks that only the second run has right.

    Returns:
        How likely a split at least this uneven is where both are equally good: a binomial test with p = 1/2; 1 where
        the runs never disagree.
    """
    n = only_a + only_b
    tail = sum(comb(n, k) for k in range(min(only_a, only_b) + 1))
    return min(1.0, 2 * tail / 2**n)


def pass_at(k: int, correct: int, samples: int) -> float:
    """Return the unbiased estimate of pass@k: 1 - C(n-c, k) / C(n, k) (Chen et al., arXiv 2107.03374).

    Args:
        k: How many samples are drawn; at most `samples`.
        correct: How many of the samples are right, c.
        samples: Number of samples, n.
    """
    return 1.0 - comb(samples - correct, k) / comb(samples, k)


def pass_rates(groups: Mapping[str, Sequence[Trajectory]], seed: int = 0) -> dict[str, dict[str, Any]]:
    """Return pass@1, pass@2, pass@4 … up to the samples that every task has, each with its 95 % interval.

    Args:
        groups: The samples of each task.
        seed: Seeds the resampling of tasks.
    """
    least = min((len(group) for group in groups.values()), default=0)
    ks = sorted({*(2**i for i in range(least.bit_length()) if 2**i <= least), least} - {0})
    found = {}
    for k in ks:
        values = [pass_at(k, sum(t.is_correct for t in group), len(group)) for group in groups.values()]
        found[str(k)] = {
            "value": sum(values) / len(values),
            "ci95": share_interval([(value, 1.0) for value in values], seed),
        }
    return found
