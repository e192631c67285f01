"""Episodes that are alike, which intervals have to resample together."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from codev_env.benches import BENCHES
from codev_env.scoring.intervals import Counts
from codev_env.scoring.metrics import task_meta_of
from codev_env.tasks.readers.annotated import original_id
from codev_env.trajectory import Trajectory


def source_of(t: Trajectory) -> str:
    """Return the task of an episode; of a task under transforms, the one that was transformed."""
    return str(task_meta_of(t).get("source_task_id", t.task_id))


def cluster_of(t: Trajectory) -> Hashable:
    """Return the question that an episode is about, the same for all samples, variants, cycles and repeats of a task.

    HR-Bench asks each question in four orders of its options, its cycles. MME-RealWorld-Lite repeats rows. Tasks that
    name the same `meta["cluster"]` count as one question, as those that CharXiv asks about one figure.
    """
    meta = task_meta_of(t)
    if meta.get("cluster") not in (None, ""):
        return "cluster", str(meta["cluster"])
    if meta.get("cycle_category") is not None and t.choices:
        return t.question, tuple(sorted(t.choices)), t.answer
    bench = BENCHES.get(str(meta.get("bench")))
    repeats = bench is not None and bench.reader_options.get("repeats")
    return original_id(source_of(t)) if repeats else source_of(t)


def by_cluster(episodes: Sequence[Trajectory]) -> dict[Hashable, list[Trajectory]]:
    """Group episodes by `cluster_of`, in the order in which they occur."""
    groups: dict[Hashable, list[Trajectory]] = {}
    for episode in episodes:
        groups.setdefault(cluster_of(episode), []).append(episode)
    return groups


def clustered(counts: Iterable[Counts], clusters: Iterable[Hashable]) -> list[Counts]:
    """Add up the counts of each cluster.

    Args:
        counts: Of each task.
        clusters: `cluster_of` each task.
    """
    sums: dict[Hashable, Counts] = {}
    for (hits, count), cluster in zip(counts, clusters, strict=True):
        above, below = sums.get(cluster, (0.0, 0.0))
        sums[cluster] = above + hits, below + count
    return list(sums.values())
