"""Statistics of tasks with several samples, or of two runs: pass@k, intervals over tasks, McNemar's test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb
from typing import Any

import numpy as np

from codev_env.scoring.clusters import clusters_of
from codev_env.scoring.intervals import Counts, bootstrap, share_interval, share_of
from codev_env.trajectory import Trajectory
from codev_eval.bench.clusters import clustered


def difference_interval(a: Sequence[Counts], b: Sequence[Counts], seed: int = 0) -> list[float] | None:
    """Return the 95 % percentile interval of share(b) - share(a) over the same tasks, by resampling pairs.

    It is `None` where no resample differs, as where all pairs are equal; see `bootstrap`.

    Args:
        a: For each task (hits, count).
        b: The same tasks in the same order.
        seed: Seeds the resampling.
    """
    pairs = np.concatenate([np.array(a, float).reshape(-1, 2), np.array(b, float).reshape(-1, 2)], axis=1)
    return bootstrap(pairs, lambda s: share_of(s[..., 2], s[..., 3]) - share_of(s[..., 0], s[..., 1]), seed)


def share(tasks: Sequence[Counts]) -> float | None:
    """Return the sum of hits over the sum of counts, `None` where nothing is counted."""
    below = sum(count for _, count in tasks)
    return sum(hits for hits, _ in tasks) / below if below else None


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
    tail = ways = 1
    for k in range(min(only_a, only_b)):
        ways = ways * (n - k) // (k + 1)  # comb(n, k + 1), which is slow to compute anew for each k
        tail += ways
    return min(1.0, 2 * tail / 2**n)


def sign_flip(differences: Sequence[int]) -> float:
    """Return the exact two-sided p-value of a sum of differences, each of which may as well have the other sign.

    With differences of -1, 0 and 1 it is McNemar's test. Others are those of questions with several tasks, such as the
    cycles of HR-Bench, whose answers depend on each other.

    Args:
        differences: For each question, how many more of its tasks the second run has right than the first.

    Returns:
        How likely a sum at least this far from 0 is where both runs are equally good.
    """
    sizes = [abs(difference) for difference in differences if difference]
    if max(sizes, default=0) <= 1:
        return mcnemar(sum(d < 0 for d in differences), sum(d > 0 for d in differences))
    reach, found = sum(sizes), abs(sum(differences))
    chances = np.zeros(2 * reach + 1)  # of each sum, from -reach
    chances[reach] = 1.0
    for size in sizes:
        chances = (np.roll(chances, size) + np.roll(chances, -size)) / 2
    return min(1.0, float(chances[np.abs(np.arange(-reach, reach + 1)) >= found].sum()))


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
        counts = clustered([(value, 1.0) for value in values], clusters_of([group[0] for group in groups.values()]))
        found[str(k)] = {
            "value": sum(values) / len(values),
            "ci95": share_interval(counts, seed),
        }
    return found
