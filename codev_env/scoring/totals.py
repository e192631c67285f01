"""Totals of a benchmark, as its authors report them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from statistics import fmean

from codev_env.benches import benches_scored_by, scoring_of
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
    - `"tir"`, `"treevgr"`, `"insight-o3"`, `"mathruler"`, `"relaxed"` and `"llm"` (VisualProbe): as `"vstar"`;
      TIR-Bench and ChartQAPro count parts of a point (`Score.share`).
    - `"blink-eval"`: each category (the subtasks), and as `overall` the mean over the categories, not the questions.
    - `"mme"`: `overall` over all questions, and one for each task (`Perception`, `Reasoning`), for each of its subtasks
      (`Perception/Remote Sensing`) and, where the data name them, categories.
    - `"charxiv-reasoning"`, `"charxiv-templates"`: `overall`, and as `field/value` one for each `answer_type` and
      `source`, or for each `category` and `question` (number of the template), and for both `subject`, `year` and
      `subplots`.
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
        raise unknown("benchmark", bench, benches_scored_by())
    pairs = _values(scored)
    if not pairs:
        raise ConfigError(f"benchmark {bench!r}: there are no scored tasks. Score at least one.")
    if scoring == "hrbench":
        return _cycles(bench, pairs)
    groups: defaultdict[str, list[float]] = defaultdict(list)
    for task, value in pairs:
        for name in _GROUPS.get(scoring, _category)(task):
            groups[name].append(value)
    groups.pop("", None)
    means = _means(groups)
    macro = scoring == "blink-eval" and means
    return {"overall": fmean(means.values()) if macro else fmean(value for _, value in pairs), **means}


def _values(scored: Iterable[Scored]) -> list[tuple[Task, float]]:
    return [(task, score.points if isinstance(score, Score) else float(score)) for task, score in scored]


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


def _category(task: Task) -> Iterator[str]:
    yield task.category


def _mme_groups(task: Task) -> Iterator[str]:
    """Yield task, subtask and category; the task is part of the category (TSV) or of the id (JSONL)."""
    first, _, rest = task.category.partition("/")
    if not rest:
        first, rest = task.task_id.removeprefix(f"{task.meta.get('bench', '')}-").partition("/")[0], task.category
    name = next((known for known in _MME_TASKS if known.lower().startswith(first.lower())), "") if first else ""
    if not name:
        yield task.category
        return
    yield name
    yield f"{name}/{rest}"
    detail = str(task.meta.get("l2-category") or "").lower()
    if "attribute" in detail:
        detail = f"{detail.split('/')[0]}/attribute"
    if detail:
        yield f"{name}/{rest}/{detail}"


def _charxiv_groups(task: Task) -> Iterator[str]:
    meta = task.meta
    for field, value, names in (
        ("answer_type", task.category, _CHARXIV_ANSWERS),
        ("source", meta.get("qa_source"), _CHARXIV_SOURCES),
        ("subject", meta.get("subject"), _CHARXIV_SUBJECTS),
        ("year", meta.get("year"), _CHARXIV_YEARS),
    ):
        if str(value) in names:
            yield f"{field}/{names[str(value)]}"
    subplots = meta.get("num_subplots")
    if isinstance(subplots, int) and subplots > 0:
        yield f"subplots/{'1 Subplot' if subplots == 1 else '2-4 Subplots' if subplots < 5 else '5+ Subplots'}"


def _charxiv_descriptive_groups(task: Task) -> Iterator[str]:
    if "qid" in task.meta:
        yield f"category/{task.category}"
        yield f"question/Q{task.meta['qid']}"
        yield from _charxiv_groups(replace(task, category=""))


_MME_TASKS = ("Perception", "Reasoning")
_CHARXIV_ANSWERS = {"1": "Text-in-Chart", "2": "Text-in-General", "3": "Number-in-Chart", "4": "Number-in-General"}
_CHARXIV_SOURCES = {"1": "GPT-Sourced", "2": "GPT-Inspired", "3": "Completely Human"}
_CHARXIV_SUBJECTS = {
    "cs": "Computer Science",
    "econ": "Economics",
    "eess": "Electrical Engineering and Systems Science",
    "math": "Mathematics",
    "physics": "Physics",
    "q-bio": "Quantitative Biology",
    "q-fin": "Quantitative Finance",
    "stat": "Statistics",
}
_CHARXIV_YEARS = {"20": "2020", "21": "2021", "22": "2022", "23": "2023"}
_GROUPS: dict[str, Callable[[Task], Iterator[str]]] = {
    "mathvista": _mathvista_groups,
    "mme": _mme_groups,
    "charxiv-reasoning": _charxiv_groups,
    "charxiv-templates": _charxiv_descriptive_groups,
}


def _means(groups: dict[str, list[float]]) -> dict[str, float]:
    return {name: fmean(values) for name, values in sorted(groups.items())}
