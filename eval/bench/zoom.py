"""The zooming gap of ZoomBench: how much more often a model is right if it is shown the published crop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from codev_env.scoring.clusters import clusters_of
from codev_env.trajectory import Trajectory
from codev_env.types import TaskSet
from codev_eval.bench.clusters import clustered
from codev_eval.bench.measures import sample_of
from codev_eval.bench.paired import difference_interval, share

WHOLE, CROP = "zoombench", "zoombench-crop"
"""The benchmarks that ask the same questions about whole images and about crops."""


def zooming_gap(
    episodes: Mapping[str, Sequence[Trajectory]], tasks: Mapping[str, TaskSet], seed: int = 0
) -> dict[str, Any] | None:
    """Return accuracy on crops, minus accuracy on whole images, over the questions that were asked about both.

    Args:
        episodes: The plain episodes of each benchmark.
        tasks: Their tasks.
        seed: Seeds the resampling of questions, of those about one image together.

    Returns:
        `n` (questions), `accuracy_whole`, `accuracy_crop`, `gap` and `gap_ci95`; `None` unless both benchmarks have
        episodes of some question, and of generated scenes, of which there are no crops.
    """
    if any(bench not in tasks or tasks[bench].source != "real" for bench in (WHOLE, CROP)):
        return None
    whole, crop = (_by_question(episodes.get(bench, ())) for bench in (WHOLE, CROP))
    asked = [question for question in whole if question in crop]
    if not asked:
        return None
    a, b = ([_counts(found[question]) for question in asked] for found in (whole, crop))
    on_whole, on_crop = share(a), share(b)
    clusters = clusters_of([next(iter(whole[question].values())) for question in asked])
    assert on_whole is not None and on_crop is not None
    return {
        "n": len(asked),
        "accuracy_whole": on_whole,
        "accuracy_crop": on_crop,
        "gap": on_crop - on_whole,
        "gap_ci95": difference_interval(clustered(a, clusters), clustered(b, clusters), seed),
    }


def _by_question(episodes: Sequence[Trajectory]) -> dict[str, dict[int, Trajectory]]:
    """Group episodes by what follows the benchmark's name in the task's id, then by sample."""
    found: dict[str, dict[int, Trajectory]] = {}
    for t in episodes:
        question = t.task_id.removeprefix(f"{CROP}-").removeprefix(f"{WHOLE}-")
        found.setdefault(question, {})[sample_of(t)] = t
    return found


def _counts(samples: Mapping[int, Trajectory]) -> tuple[float, float]:
    return float(sum(t.is_correct for t in samples.values())), float(len(samples))
