"""Episodes that are alike, which intervals have to resample together, and rates with such intervals."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from codev_env.benches import BENCHES
from codev_env.scoring.intervals import Counts, mean_interval, share_interval, wilson
from codev_env.scoring.metrics import MEANS, SHARES, counts_of, judged_episodes, summarize, task_meta_of
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


def summarize_clusters(episodes: Sequence[Trajectory], seed: int = 0, boxless: bool | None = None) -> dict[str, Any]:
    """Return the rates of `summarize`, with intervals over clusters (`by_cluster`) if some have several episodes."""
    found = summarize(episodes, seed, boxless)
    groups = list(by_cluster(episodes).values())
    if len(groups) == len(episodes):
        return found
    intervals = {
        # A share is undefined, too, where calls were judged by several definitions.
        name: None if found[name] is None else share_interval(cluster_counts(name, episodes, boxless), seed)
        for name in SHARES
    }
    for name, value_of in MEANS.items():
        intervals[name] = mean_interval([(sum(map(value_of, group)), len(group)) for group in groups], seed)
    return found | {"ci95": intervals}


def cluster_counts(name: str, episodes: Sequence[Trajectory], boxless: bool | None = None) -> list[Counts]:
    """Return the counts of each cluster for the share `name`, in the order of `by_cluster`; see `counts_of`."""
    judged = set(map(id, judged_episodes(episodes, boxless)))
    return [counts_of(name, group, [t for t in group if id(t) in judged]) for group in by_cluster(episodes).values()]


def cluster_interval(counts: Sequence[Counts], episodes: int, seed: int = 0) -> list[float] | None:
    """Return the 95 % interval of a share: Wilson's if each cluster is one episode, else by resampling clusters.

    Args:
        counts: Of each cluster, see `cluster_counts`.
        episodes: How many there are.
        seed: Seeds the resampling.
    """
    if len(counts) < episodes:
        return share_interval(counts, seed)
    return wilson(sum(hits for hits, _ in counts), int(sum(count for _, count in counts)))
