"""Measures of an evaluation beyond the rates of `codev_env.scoring.metrics`: how the model looked, and its effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from codev_env.benches import scoring_of
from codev_env.geometry import area, image_of, iou, overlap
from codev_env.judges.ground_truth import DEFINITION
from codev_env.scoring.clusters import by_cluster, cluster_counts, cluster_interval, clusters_of, summarize_clusters
from codev_env.scoring.intervals import SAME, Counts, bootstrap
from codev_env.scoring.med import TERMS, Scored, by_task, tool_effect
from codev_env.scoring.metrics import (
    GIVEN,
    is_lazy_crop,
    judged_episodes,
    judges_boxless,
    published_score,
    scored_task,
    summarize_groups,
    task_meta_of,
)
from codev_env.trajectory import Trajectory
from codev_eval.bench.clusters import clustered
from codev_eval.bench.kappa import accuracy, kappa
from codev_eval.bench.paired import difference_interval, pass_rates, share
from codev_eval.bench.replay import FROM_RECORD, judged_again
from codev_eval.bench.suspicions import SUSPICIONS, hallucinates_tool_use, suspicions
from codev_eval.bench.usage import usage

BINS = 10


def measure(
    episodes: Sequence[Trajectory],
    bench: str,
    seed: int = 0,
    provenance: bool = False,
    boxless: bool | None = None,
) -> dict[str, Any]:
    """Return all measures of the plain episodes of one benchmark.

    Args:
        episodes: Finished episodes, all samples of all tasks.
        bench: The benchmark, for its authors' own totals.
        seed: Seeds resampling.
        provenance: Also judge the recorded crops by the target boxes, and compare with the evaluation's judge.
        boxless: `judges_boxless` of the whole evaluation; `None`: these are all its episodes.

    Returns:
        JSON-able: the results of `summarize` and `summarize_groups`, and the entries that docs/evaluation.md lists.
    """
    boxless = judges_boxless(episodes) if boxless is None else boxless
    groups = by_task(episodes)
    samples = max((len(group) for group in groups.values()), default=0)
    found = rates(episodes, seed, boxless)
    found |= {"tasks": len(groups), "samples": samples}
    found["n_cut"] = sum(t.stop_reason == "max_length" for t in episodes)
    if samples > 1:
        found["pass_at"] = pass_rates(groups, seed)
    found |= looks(episodes, boxless)
    claimed = [(sum(map(hallucinates_tool_use, group)), len(group)) for group in by_cluster(episodes).values()]
    found["ci95"]["hallucinated_tool_use"] = cluster_interval(claimed, len(episodes), seed)
    parts = summarize_groups(episodes, seed, rates, boxless)
    for name, part in parts.get("by_category", {}).items():
        part["confusion"] = confusion([t for t in episodes if t.category == name], boxless)
    found |= parts
    score = published_score(bench, episodes)
    if score is not None:
        found["score"] = score
        found["score_ci95"] = score_interval(bench, episodes, score["overall"], found, seed)
    if provenance:
        found["provenance"] = by_provenance(episodes)
        found["provenance_definition"] = f"{DEFINITION}, {FROM_RECORD}"
    return found


def rates(episodes: Sequence[Trajectory], seed: int = 0, boxless: bool | None = None) -> dict[str, Any]:
    """Return the rates of `summarize_clusters`, and `GIVEN`."""
    found = summarize_clusters(episodes, seed, boxless)
    given = cluster_counts(GIVEN, episodes, boxless) if found["any_crop"] is not None else []
    return found | {GIVEN: share(given), f"{GIVEN}_ci95": cluster_interval(given, len(episodes), seed)}


def score_interval(
    bench: str, episodes: Sequence[Trajectory], overall: float, found: Mapping[str, Any], seed: int = 0
) -> list[float] | None:
    """Return the 95 % interval of the total of a benchmark's authors, by resampling whole questions.

    Where the total is the accuracy, it is that one's interval; `None` below two questions, or where no resample
    differs.

    Args:
        bench: The benchmark.
        episodes: All samples of all tasks.
        overall: The total of these episodes.
        found: Their `accuracy` and its interval, as `rates` returns them.
        seed: Seeds the resampling.
    """
    if abs(overall - found["accuracy"]) < SAME:
        return found["ci95"]["accuracy"]
    groups = list(by_cluster(episodes).values())
    parts = {part: i for i, part in enumerate(dict.fromkeys(_part(bench, t) for t in episodes))}
    table = np.zeros((len(groups), len(parts), 2))
    for row, group in zip(table, groups, strict=True):
        for t in group:
            row[parts[_part(bench, t)]] += scored_task(t)[1].points, 1
    if abs(_mean_of_parts(table.sum(0)) - overall) > SAME:
        return None  # A total of another kind: no interval is better than a wrong one.
    return bootstrap(table, _mean_of_parts, seed)


def _part(bench: str, t: Trajectory) -> tuple[str, str]:
    """Return the part of a benchmark whose mean its total is the mean of; the same for all tasks where it has none."""
    meta, scoring = task_meta_of(t), scoring_of(bench)
    variant = str(meta.get("variant", ""))
    if scoring == "hrbench":
        return variant, str(meta.get("cycle_category"))
    return variant, t.category if scoring == "blink-eval" and not variant else ""


def _mean_of_parts(sums: Any) -> Any:
    """Return the mean over parts of their means, given sums and counts of shape (..., parts, 2)."""
    counts = sums[..., 1]
    return np.nanmean(np.divide(sums[..., 0], counts, out=np.full(counts.shape, np.nan), where=counts > 0), axis=-1)


def looks(episodes: Sequence[Trajectory], boxless: bool | None = None) -> dict[str, Any]:
    """Return how the episodes looked: confusion, shares of crops, distributions, signs of pretence, usage."""
    crops = [(t, box) for t in episodes for turn in t.turns for box in turn.crop_boxes if box is not None]
    lazy = sum(is_lazy_crop(t, box) for t, box in crops)
    claims = sum(map(hallucinates_tool_use, episodes))
    signs = [suspicions(t) for t in episodes]
    return {
        "confusion": confusion(episodes, boxless),
        "lazy_crops": lazy / len(crops) if crops else None,
        "hallucinated_tool_use": claims / len(episodes) if episodes else None,
        "coverage": distribution(best_overlaps(episodes, lambda box, target: overlap(box, target) / area(target))),
        "iou": distribution(best_overlaps(episodes, iou)),
        "suspected": {name: sum(name in found for found in signs) for name in SUSPICIONS},
        "usage": usage(episodes),
    }


def confusion(episodes: Sequence[Trajectory], boxless: bool | None = None) -> dict[str, int]:
    """Count faithful × correct among the episodes whose tool calls were all judged."""
    judged = judged_episodes(episodes, boxless)
    return {
        f"{'faithful' if faithful else 'unfaithful'}_{'correct' if correct else 'wrong'}": sum(
            t.is_faithful == faithful and t.is_correct == correct for t in judged
        )
        for faithful in (True, False)
        for correct in (True, False)
    }


def best_overlaps(
    episodes: Sequence[Trajectory], measure: Callable[[tuple[int, ...], tuple[int, ...]], float]
) -> list[float]:
    """Return, for each episode that has targets and a crop of known place, the best value of any crop and target."""
    found = []
    for t in episodes:
        boxes = [box for turn in t.turns for box in turn.crop_boxes if box is not None]
        targets = [target for target in t.targets if area(target)]
        if boxes and targets:
            pairs = ((box, target) for box in boxes for target in targets)
            found.append(max(measure(a, b) if image_of(a) == image_of(b) else 0.0 for a, b in pairs))
    return found


def distribution(values: Sequence[float]) -> dict[str, Any]:
    """Return number, mean, quartiles, and counts in ten equal bins from 0 to 1; `None` for what no value defines."""
    if not values:
        return {"n": 0, "mean": None, "quartiles": None, "bins": [0] * BINS}
    bins, _ = np.histogram(np.clip(values, 0, 1), bins=BINS, range=(0, 1))
    quartiles = [float(q) for q in np.percentile(values, (25, 50, 75))]
    return {"n": len(values), "mean": float(np.mean(values)), "quartiles": quartiles, "bins": bins.tolist()}


def by_provenance(episodes: Sequence[Trajectory]) -> dict[str, Any]:
    """Judge the recorded crops by the target boxes, and compare with the evaluation's judge.

    Returns:
        `n` (judged episodes with target boxes, by which they can be judged again), `faithful`,
        `faithful_given_correct`, `faithful_and_correct` by the boxes, and of the two judges `agreement` and Cohen's
        `kappa`; `None` where undefined.
    """
    both_judges = ((t, judged_again(t)) for t in judged_episodes(episodes) if t.targets)
    # An episode about frames that are not recorded is returned as it is: the judge would be compared with itself.
    pairs = [(t, again) for t, again in both_judges if again is not t and judged_episodes([again])]
    n, correct = len(pairs), sum(t.is_correct for t, _ in pairs)
    both = sum(again.is_faithful and t.is_correct for t, again in pairs)
    table = np.zeros((2, 2))
    for t, again in pairs:
        table[int(again.is_faithful), int(t.is_faithful)] += 1
    return {
        "n": n,
        "faithful": sum(again.is_faithful for _, again in pairs) / n if n else None,
        "faithful_given_correct": both / correct if correct else None,
        "faithful_and_correct": both / n if n else None,
        "agreement": _number(accuracy(table)),
        "kappa": _number(kappa(table)),
    }


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


@dataclass(frozen=True)
class Guess:
    """Whether the answer to a task is right that a model gives if it is made to answer at once."""

    task_id: str
    is_correct: bool


def dual(with_tool: Sequence[Trajectory], without: Sequence[Scored], seed: int = 0) -> dict[str, Any]:
    """Return the effect of having the tool: the terms of `codev_env.scoring.med`, and the interval of the gain.

    Args:
        with_tool: Episodes in which code may run.
        without: Episodes of the same tasks without, or answers at once.
        seed: Seeds the resampling of tasks.
    """
    free, tooled = by_task(without), by_task(with_tool)
    names = [name for name in tooled if name in free]
    found = tool_effect(with_tool, without)
    a = [(_mean_correct(free[name]), 1.0) for name in names]
    b = [(_mean_correct(tooled[name]), 1.0) for name in names]
    clusters = clusters_of([tooled[name][0] for name in names])
    return {
        "n": sum(len(tooled[name]) for name in names),
        "tasks": len(names),
        "accuracy_without": share(a),
        "accuracy_with": share(b),
        "gain": found.get("tool_gain"),
        "gain_ci95": difference_interval(clustered(a, clusters), clustered(b, clusters), seed),
        **{term: found.get(term) for term in TERMS},
    }


def evidence_gain(plain: Sequence[Trajectory], perturbed: Sequence[Trajectory], seed: int = 0) -> dict[str, Any]:
    """Return how much the answers depend on the tool's output: accuracy, minus that with other outputs.

    Args:
        plain: Episodes as they were.
        perturbed: The same tasks and samples with each output replaced; of plain episodes that returned no image there
            is none, because nothing would differ.
        seed: Seeds the resampling of tasks.

    Returns:
        Over all plain episodes `accuracy`, `accuracy_perturbed` and their difference `visual_evidence_gain`; among the
        episodes that were played again (`n_looked`) `gain_looked`, and `answer_changed`.
    """
    again = {(t.task_id, sample_of(t)): t for t in perturbed}
    a: list[Counts] = []
    b: list[Counts] = []
    looked = []
    for group in by_cluster(plain).values():
        # An episode that failed when it was run again is left out on both sides.
        kept = [t for t in group if key_of(t) in again or not returned_image(t)]
        if not kept:
            continue
        others = [again.get(key_of(t), t) for t in kept]
        a.append((sum(t.is_correct for t in others), len(kept)))
        b.append((sum(t.is_correct for t in kept), len(kept)))
        looked += [(t, again[key_of(t)]) for t in kept if key_of(t) in again]
    real, other = share(b), share(a)
    n = len(looked)
    drop = sum(t.is_correct - o.is_correct for t, o in looked)
    changed = sum(plain_answer(t.final_answer) != plain_answer(o.final_answer) for t, o in looked)
    return {
        "n": sum(int(count) for _, count in b),
        "n_looked": n,
        "accuracy": real,
        "accuracy_perturbed": other,
        "visual_evidence_gain": None if real is None or other is None else real - other,
        "visual_evidence_gain_ci95": difference_interval(a, b, seed),
        "gain_looked": drop / n if n else None,
        "answer_changed": changed / n if n else None,
    }


def suite_table(
    source: Sequence[Trajectory], variants: Sequence[Trajectory], seed: int = 0, boxless: bool | None = None
) -> dict[str, Any]:
    """Return accuracy and faithfulness of every variant, the source included, and their mean over variants.

    Args:
        source: Plain episodes of the tasks that were varied.
        variants: The episodes under transforms or corruptions.
        seed: Seeds intervals.
        boxless: As for `measure`.

    Returns:
        `variants` with the rates of each, and `mean`; of `faithful` it is `None` where variants were judged by
        different definitions.
    """
    groups: dict[str, list[Trajectory]] = {"source": list(source)}
    for t in variants:
        groups.setdefault(str(t.meta.get("task", {}).get("variant", "")), []).append(t)
    boxless = judges_boxless([*source, *variants]) if boxless is None else boxless
    rows = {name: rates(group, seed, boxless) for name, group in groups.items()}
    kept = ("n", "n_judged", "accuracy", "faithful", "faithful_given_correct", "faithful_definition", "ci95")
    table = {name: {key: row[key] for key in kept} for name, row in rows.items()}
    for row in table.values():
        row["ci95"] = {name: row["ci95"][name] for name in ("accuracy", "faithful", "faithful_given_correct")}
    means: dict[str, float | None] = {}
    for name in ("accuracy", "faithful"):
        values = [row[name] for row in table.values() if row[name] is not None]
        means[name] = sum(values) / len(values) if values else None
    if len({row["faithful_definition"] for row in table.values()} - {None}) > 1:
        means["faithful"] = None
    return {"variants": table, "mean": means}


def returned_image(t: Trajectory) -> bool:
    """Whether some program of an episode returned an image."""
    return any(turn.kind == "code" and len(turn.images) for turn in t.turns)


def sample_of(t: Trajectory) -> int:
    """Return the number of an episode among the samples of its task, from 0."""
    extras = t.meta.get("eval")
    return int(extras.get("sample", 0)) if isinstance(extras, Mapping) else 0


def bench_of(t: Trajectory) -> str:
    """Return the benchmark of an episode; empty if it does not say."""
    extras = t.meta.get("eval")
    return str(extras.get("bench", "")) if isinstance(extras, Mapping) else ""


def key_of(t: Trajectory) -> tuple[str, int]:
    """Return the key of an episode within a benchmark: task and sample."""
    return t.task_id, sample_of(t)


def _mean_correct(episodes: Sequence[Scored]) -> float:
    return sum(t.is_correct for t in episodes) / len(episodes)


def plain_answer(answer: str | None) -> str:
    """Return an answer normalised: without case, spaces and a full stop at the end."""
    return " ".join((answer or "").lower().split()).rstrip(".")
