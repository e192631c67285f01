"""Counts of episodes that are alike, added up; see `codev_env.scoring.clusters`."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from codev_env.scoring.clusters import cluster_of, clusters_of
from codev_env.scoring.intervals import Counts

__all__ = ["cluster_of", "clustered", "clusters_of"]


def clustered(counts: Iterable[Counts], clusters: Iterable[Hashable]) -> list[Counts]:
    """Add up the counts of each cluster.

    Args:
        counts: Of each task.
        clusters: The cluster of each task, see `clusters_of`.
    """
    sums: dict[Hashable, Counts] = {}
    for (hits, count), cluster in zip(counts, clusters, strict=True):
        above, below = sums.get(cluster, (0.0, 0.0))
        sums[cluster] = above + hits, below + count
    return list(sums.values())
