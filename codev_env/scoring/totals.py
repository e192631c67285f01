"""Totals of a benchmark, as its authors report them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from statistics import fmean

from codev_env.benches import scored_benches, scoring_of
from codev_env.errors import ConfigError, unknown
from codev_env.scoring.scorer import Score
from codev_env.types import Task

_MATHVISTA_FIELDS = ("language", "source", "category", "task", "context", "grade", "skills")

Scored = tuple[Task, bool | Score]


def aggregate(bench: str, scored: Iterable[Scored]) -> dict[str, float]:
    """Return the accuracies of a benchmark, 0 to 1.

    By the row's `scoring` in `codev_env.benches`:

    - `"vstar"`: `overall` over all questions, and one for each category.
    - `"hrbench"`: accuracy per `meta["cycle_category"]` as `cycle/NAME`; `overall` and each category
      are the mean over the cycles, which is not the accuracy over all questions where cycles differ in size.
    - `"mathvista"`: `overall`, and as `field/value` one for each value of `question_type` and `answer_type` of `meta`,
      and of `language`, `source`, `category`, `task`, `context`, `grade` and `skills` of `meta["metadata"]`. A question
      with several skills counts for each.

    Of tasks under transforms (`meta["variant"]`), whatever the benchmark: each variant's `overall` as `variant/NAME`,
    and as `overall` the mean over the variants. For the suite `orientation` that is the average, the source included,
    that CodeVision reports (arXiv 2512.03746).

    Args:
        bench: A benchmark with a published scoring, or any benchmark where the tasks are under transforms: then
            `overall` of a variant is the accuracy over its questions.
        scored: Tasks with what a scorer said of the answer.

    Raises:
        ConfigError: An unknown benchmark, nothing to count, or a task of HR-Bench without its cycle.
    """
    scored = list(scored)
    by_variant: defaultdict[str, list[Scored]] = defaultdict(list)
    for task, score in scored:
        by_variant[str(task.meta.get("variant", ""))].append((task, score))
    if scored and "" not in by_variant:
        return _variants(bench, by_variant)
    scoring = scoring_of(bench)
    if scoring is None:
        raise unknown("benchmark", bench, scored_benches())
    pairs = _values(scored)
    if not pairs:
        raise ConfigError(f"benchmark {bench!r}: there are no scored tasks. Score at least one.")
    if scoring == "hrbench":
        return _cycles(bench, pairs)
    groups: defaultdict[str, list[float]] = defaultdict(list)
    for task, value in pairs:
        for name in _mathvista_groups(task) if scoring == "mathvista" else [task.category]:
            groups[name].append(value)
    groups.pop("", None)
    return {"overall": fmean(value for _, value in pairs), **_means(groups)}


def _values(scored: Iterable[Scored]) -> list[tuple[Task, float]]:
    return [(task, float(score.correct if isinstance(score, Score) else score)) for task, score in scored]


def _variants(bench: str, by_variant: Mapping[str, list[Scored]]) -> dict[str, float]:
    means = {}
    for name, scored in by_variant.items():
        pairs = _values(scored)
        overall = _cycles(bench, pairs)["overall"] if scoring_of(bench) == "hrbench" else fmean(v for _, v in pairs)
        means[f"variant/{name}"] = overall
    return {"overall": fmean(means.values()), **means}


def _cycles(bench: str, pairs: list[tuple[Task, float]]) -> dict[str, float]:
    cycles: defaultdict[str, list[float]] = defaultdict(list)
    categories: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for task, value in pairs:
        cycle = task.meta.get("cycle_category")
        if cycle in (None, ""):
            raise ConfigError(f"benchmark {bench!r}: task {task.task_id!r} has no meta['cycle_category']. Add it.")
        cycles[f"cycle/{cycle}"].append(value)
        if task.category:
            categories[task.category][str(cycle)].append(value)
    means = _means(cycles)
    by_category = {name: fmean(_means(values).values()) for name, values in sorted(categories.items())}
    return {"overall": fmean(means.values()), **by_category, **means}


def _mathvista_groups(task: Task) -> Iterator[str]:
    metadata = task.meta.get("metadata") or {}
    fields = {name: task.meta.get(name) for name in ("question_type", "answer_type")}
    fields |= {name: metadata.get(name) for name in _MATHVISTA_FIELDS}
    for name, value in fields.items():
        for one in value if isinstance(value, list | tuple) else [value]:
            if one not in (None, ""):
                yield f"{name}/{one}"


def _means(groups: dict[str, list[float]]) -> dict[str, float]:
    return {name: fmean(values) for name, values in sorted(groups.items())}
