"""Rates over trajectories, each with its 95 % interval.

Definitions, after the CodeV evaluation protocol (arXiv 2511.19661): a tool call is *faithful* if it clearly shows any
target as its main content; an episode is faithful if any of its tool calls is, and it has not shown too much else
(docs/rewards.md). Judged from where the pixels come from, not from the code. Episodes that were judged by different
definitions have no common rate: the faithful shares are `None` then.

| name | meaning |
| --- | --- |
| `n` | episodes |
| `n_judged` | those whose tool calls were all judged, see `judged_episodes`; faithful shares are among these |
| `accuracy` | share with the right answer |
| `faithful` | share with a faithful crop |
| `faithful_given_correct` | share with a faithful crop among the correct ones; `None` if none is correct |
| `faithful_and_correct` | share that is both |
| `faithful_calls` | share of the tool calls, not of the episodes, that showed a target |
| `any_crop` | share with a crop that, judged alone, shows a target: the papers' criterion |
| `any_crop_and_correct` | share that is both |
| `faithful_definition` | the definition by which the calls were judged; `None` if none was |
| `lazy` | share with a crop whose box covers more than 90 % of its image |
| `tool_calls` | programs run per episode |
| `crops` | images returned per episode whose place in the original is known |
| `invalid_turns` | turns per episode that could not be parsed |
| `errors` | programs per episode that ended with an error |
| `turns` | turns per episode |
| `reward_mean` | reward per episode |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from codev_env.benches import scoring_of
from codev_env.errors import ConfigError
from codev_env.geometry import area, image_of
from codev_env.scoring.intervals import RESAMPLES, SAME, Counts, share_interval, wilson
from codev_env.scoring.scorer import Score
from codev_env.scoring.totals import aggregate
from codev_env.scoring.written_boxes import written_iou
from codev_env.trajectory import Trajectory
from codev_env.types import Box, Step, Task

LAZY_SHARE = 0.9
UNVERSIONED = "unversioned"
"""The definition of calls that record none: judged before definitions had versions, or by a judge without one."""
FAITHFUL_SHARES = (
    "faithful",
    "faithful_given_correct",
    "faithful_and_correct",
    "faithful_calls",
    "any_crop",
    "any_crop_and_correct",
)
"""The shares that depend on the definition of *faithful*."""
SHARES = ("accuracy", *FAITHFUL_SHARES, "lazy")
GIVEN = "any_crop_given_correct"
"""The papers' rate among the right answers: share of them with a crop that, judged alone, shows a target."""
MEANS: Mapping[str, Callable[[Trajectory], float]] = {
    "tool_calls": lambda t: sum(turn.kind == "code" for turn in t.turns),
    "crops": lambda t: sum(box is not None for turn in t.turns for box in turn.crop_boxes),
    "invalid_turns": lambda t: sum(turn.kind == "invalid" for turn in t.turns),
    "errors": lambda t: sum(turn.kind == "code" and turn.error is not None for turn in t.turns),
    "turns": lambda t: len(t.turns),
    "reward_mean": lambda t: t.total_reward,
}
"""The values that each episode adds to the means of the table above."""


def summarize(trajectories: Sequence[Trajectory], seed: int = 0, boxless: bool | None = None) -> dict[str, Any]:
    """Compute all rates and means of the table above.

    Args:
        trajectories: Finished episodes.
        seed: Seeds the bootstrap of the means' intervals.
        boxless: For a part of an evaluation, `judges_boxless` of all its episodes; `None`: these are all.

    Returns:
        JSON-able, without NaN: each name with its value (`None` where undefined), and `"ci95"` with
        `{name: [low, high] or None}`: Wilson intervals for shares of episodes, percentile bootstrap over episodes (1000
        resamples) for means and for the share of calls. A mean of equal values has none: no resample differs, so they
        say nothing about other values.
    """
    episodes = list(trajectories)
    judged = judged_episodes(episodes, boxless)
    calls = [calls_of(t) for t in judged]
    shares = {name: counts_of(name, episodes, judged) for name in SHARES}
    definitions = definitions_of(judged)
    if len(definitions) > 1:
        shares |= dict.fromkeys(FAITHFUL_SHARES, (0, 0))
        calls = []
    means = {name: [value_of(t) for t in episodes] for name, value_of in MEANS.items()}
    values: dict[str, Any] = {"n": len(episodes), "n_judged": len(judged)}
    values["faithful_definition"] = definition_text(definitions)
    values |= {name: hits / n if n else None for name, (hits, n) in shares.items()}
    values |= {name: sum(column) / len(column) if column else None for name, column in means.items()}
    intervals: dict[str, list[float] | None] = {name: wilson(hits, int(n)) for name, (hits, n) in shares.items()}
    intervals["faithful_calls"] = share_interval(calls, seed)  # The calls of an episode are alike.
    intervals |= _bootstrap(means, seed)
    return values | {"ci95": intervals}


def counts_of(name: str, episodes: Sequence[Trajectory], judged: Sequence[Trajectory]) -> Counts:
    """Return the counts of episodes for a share: hits, and the number that they are among.

    Args:
        name: One of `SHARES`, or `GIVEN`.
        episodes: All of them.
        judged: Those of them whose tool calls were all judged.
    """
    correct = [t for t in judged if t.is_correct]
    if name == "accuracy":
        return sum(t.is_correct for t in episodes), len(episodes)
    if name == "lazy":
        return sum(map(is_lazy, episodes)), len(episodes)
    if name == "faithful":
        return sum(t.is_faithful for t in judged), len(judged)
    if name == "faithful_given_correct":
        return sum(t.is_faithful for t in correct), len(correct)
    if name == "faithful_and_correct":
        return sum(t.is_faithful for t in correct), len(judged)
    if name == "any_crop":
        return sum(map(shows_target, judged)), len(judged)
    if name == "any_crop_and_correct":
        return sum(map(shows_target, correct)), len(judged)
    if name == GIVEN:
        return sum(map(shows_target, correct)), len(correct)
    if name == "faithful_calls":
        calls = [calls_of(t) for t in judged]
        return sum(hits for hits, _ in calls), sum(n for _, n in calls)
    raise KeyError(name)


def calls_of(trajectory: Trajectory) -> tuple[int, int]:
    """Return how many tool calls of an episode showed a target, and how many there are."""
    calls = [turn for turn in trajectory.turns if turn.kind == "code"]
    return sum(turn.faithful for turn in calls), len(calls)


def shows_target(trajectory: Trajectory) -> bool:
    """Whether some crop of an episode, judged alone, shows a target: the papers' criterion."""
    return any(turn.any_crop for turn in trajectory.turns)


def definitions_of(trajectories: Sequence[Trajectory]) -> tuple[str, ...]:
    """Return the definitions of *faithful* by which tool calls were judged, in alphabetical order."""
    scores = [turn.score for t in trajectories for turn in t.turns if turn.kind == "code"]
    return tuple(sorted({score.definition or UNVERSIONED for score in scores if score and score.value is not None}))


def definition_text(definitions: Sequence[str]) -> str | None:
    """Return definitions as one text, which says so if there are several; `None` if there is none."""
    return f"mixed: {' | '.join(definitions)}" if len(definitions) > 1 else next(iter(definitions), None)


def judges_boxless(episodes: Sequence[Trajectory]) -> bool:
    """Whether calls on tasks without target boxes were judged, as a vision-language judge does."""
    return any(turn.score_value is not None for turn in _boxless_calls(episodes))


def leaves_unjudged(episodes: Sequence[Trajectory]) -> bool:
    """Whether calls on tasks without target boxes were left without a score, by a judge that did not fail."""
    return any(turn.score_value is None and not turn.judge_failed for turn in _boxless_calls(episodes))


def _boxless_calls(episodes: Sequence[Trajectory]) -> Iterator[Step]:
    return (turn for t in episodes if not t.targets for turn in t.turns if turn.kind == "code")


def judged_episodes(episodes: Sequence[Trajectory], boxless: bool | None = None) -> list[Trajectory]:
    """Return the episodes whose tool calls were all judged, which faithful shares are computed over.

    A call that was not judged is not an unfaithful one. An episode without a call is unfaithful if a call could have
    been judged: the task has target boxes, or calls on tasks without were judged.

    Args:
        episodes: Finished episodes.
        boxless: For a part of an evaluation, `judges_boxless` of all its episodes: a part without any call does not
            show what its judge can do. `None`: these are all.
    """
    if boxless is None:
        boxless = judges_boxless(episodes)
    kept = []
    for t in episodes:
        calls = [turn for turn in t.turns if turn.kind == "code"]
        if all(turn.score_value is not None for turn in calls) and (calls or t.targets or boxless):
            kept.append(t)
    return kept


def summarize_groups(
    trajectories: Sequence[Trajectory],
    seed: int = 0,
    rates: Callable[[Sequence[Trajectory], int, bool | None], dict[str, Any]] = summarize,
    boxless: bool | None = None,
) -> dict[str, dict[str, Any]]:
    """Compute the rates of each part of the data.

    Args:
        trajectories: Finished episodes.
        seed: As for `summarize`.
        rates: Computes those of a part.
        boxless: As for `summarize`; `None`: the episodes given are all.

    Returns:
        `"by_category"` and, where tasks are under transforms, `"by_variant"`, each with `{name: rates(…)}`, in the
        order in which they occur; a grouping that no episode has is left out.
    """
    groupings = {
        "by_category": [t.category for t in trajectories],
        "by_variant": [str(task_meta_of(t).get("variant", "")) for t in trajectories],
    }
    boxless = judges_boxless(trajectories) if boxless is None else boxless
    found: dict[str, dict[str, Any]] = {}
    for grouping, names in groupings.items():
        groups: dict[str, list[Trajectory]] = {}
        for name, trajectory in zip(names, trajectories, strict=True):
            groups.setdefault(name, []).append(trajectory)
        groups.pop("", None)
        if groups:
            found[grouping] = {name: rates(group, seed, boxless) for name, group in groups.items()}
    return found


def published_score(bench: str, trajectories: Sequence[Trajectory]) -> dict[str, float] | None:
    """Return the totals of a benchmark as its authors report them; see `codev_env.scoring.aggregate`.

    Args:
        bench: The benchmark.
        trajectories: Finished episodes.

    Returns:
        `"overall"` and its parts, or `None` where no such totals are defined. For TreeBench also `"mIoU"`, the mean of
        `written_iou` over the texts of the episodes.
    """
    try:
        found = aggregate(bench, map(scored_task, trajectories))
    except ConfigError:  # another benchmark, or generated scenes of another kind in its place
        return None
    if scoring_of(bench) == "treevgr":
        found["mIoU"] = fmean(written_iou("\n".join(turn.action for turn in t.turns), t.targets) for t in trajectories)
    return found


def scored_task(trajectory: Trajectory) -> tuple[Task, Score]:
    """Return an episode as `codev_env.scoring.aggregate` takes it: its task, without images, and its score."""
    t = trajectory
    task = Task(t.task_id, (), t.question, t.answer, t.choices, category=t.category, meta=task_meta_of(t))
    return task, Score(t.is_correct, share=t.share)


def task_meta_of(trajectory: Trajectory) -> Mapping[str, Any]:
    """Return the task's metadata, as `codev_agents.EpisodeRecorder` records it."""
    told = trajectory.meta.get("task")
    return told if isinstance(told, Mapping) else {}


def is_lazy(trajectory: Trajectory) -> bool:
    """Whether some returned image shows more than 90 % of the area of the input image that it is a part of."""
    boxes = (box for turn in trajectory.turns for box in turn.crop_boxes if box is not None)
    return any(is_lazy_crop(trajectory, box) for box in boxes)


def is_lazy_crop(trajectory: Trajectory, box: Box) -> bool:
    """Whether a crop shows more than 90 % of the area of the input image that it is a part of."""
    size = trajectory.size_of(image_of(box))
    return size is not None and area(box) > LAZY_SHARE * size[0] * size[1]


def _bootstrap(columns: dict[str, list[float]], seed: int) -> dict[str, list[float] | None]:
    """Percentile intervals of the means; all columns share the resamples. `None` where all values are equal."""
    table = np.array(list(columns.values()), dtype=float).T
    if len(table) < 2:
        return dict.fromkeys(columns)
    rng = np.random.default_rng(seed)
    means = np.stack([table[rng.integers(0, len(table), len(table))].mean(0) for _ in range(RESAMPLES)])
    low, high = np.percentile(means, (2.5, 97.5), axis=0)
    varied = np.ptp(table, axis=0) > SAME
    return {
        name: [float(a), float(b)] if differ else None
        for name, a, b, differ in zip(columns, low, high, varied, strict=True)
    }
