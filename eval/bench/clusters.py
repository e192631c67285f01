"""Episodes that are alike, which intervals have to resample together."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from codev_env.benches import BENCHES
from codev_env.scoring.intervals import Counts
from codev_env.scoring.metrics import task_meta_of
from codev_env.tasks.readers.annotated import original_id
from codev_env.trajectory import ImageFiles, Trajectory


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


def clusters_of(episodes: Sequence[Trajectory]) -> list[Hashable]:
    """Return the cluster of each episode: episodes about one question (`cluster_of`) or about the same images share it.

    Images count for the real tasks of published benchmarks, in episodes that were read back. Your own data name their
    clusters themselves.
    """
    above: dict[Hashable, Hashable] = {}

    def top(key: Hashable) -> Hashable:
        while (up := above.setdefault(key, key)) != key:
            above[key] = above[up]
            key = up
        return key

    for t in episodes:
        if images := _shared_images(t):
            above[top(("images", images))] = top(("question", cluster_of(t)))
    return [top(("question", cluster_of(t))) for t in episodes]


def _shared_images(t: Trajectory) -> tuple[str, ...]:
    """Return the files of an episode's input images, named by their content; none where images make no cluster."""
    bench = BENCHES.get(str(task_meta_of(t).get("bench")))
    if t.source != "real" or bench is None or not bench.folder or not isinstance(t.images, ImageFiles):
        return ()
    return tuple(path.name for path in t.images.files)


def by_cluster(episodes: Sequence[Trajectory]) -> dict[Hashable, list[Trajectory]]:
    """Group episodes by `clusters_of`, in the order in which they occur."""
    groups: dict[Hashable, list[Trajectory]] = {}
    for cluster, episode in zip(clusters_of(episodes), episodes, strict=True):
        groups.setdefault(cluster, []).append(episode)
    return groups


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
