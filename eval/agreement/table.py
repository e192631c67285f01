"""Agreement of two judges on crops of known kind: rates with intervals, by kind of crop, and as a table of text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from codev_env.judges.noisy import nearest_level
from codev_env.judges.rubrics import LEVELS
from codev_env.scoring.intervals import Matrix, bootstrap
from codev_eval.agreement.crops import KINDS
from codev_eval.agreement.judging import JudgedCrop
from codev_eval.bench import kappa

Statistics = Mapping[str, tuple[Matrix, Callable[[Any], Any]]]
"""By name, the addend of each scene to a sum, and the function of the sum."""

LEVEL_NAMES = ("< 0", *(f"{level:g}" for level in LEVELS))
"""Levels of a score: below 0 (red lines, which only a judge that knows where pixels come from can see), and the nearest
of 0, 0.25, 0.5, 0.75 and 1."""
SHOWN_FAILURES = 20


def summarize(scenes: Sequence[tuple[str, Sequence[JudgedCrop]]], seed: int = 0) -> dict[str, Any]:
    """Compute the content of agreement.json.

    Args:
        scenes: Task ids and crops. Intervals resample scenes, since the crops of one scene are not independent.
        seed: Seeds the bootstrap.

    Returns:
        JSON-able, without NaN. `"faithful"`: of the verdict whether a crop is faithful; `"score"`: of its level.
        Matrices have a row for each answer of the reference and a column for each of the judge.
    """
    judged = [[crop for crop in crops if not crop.failed] for _, crops in scenes]
    failures = [(task_id, crop) for task_id, crops in scenes for crop in crops if crop.failed]
    verdicts = np.array([_counts(crops, _verdicts, 2) for crops in judged])
    levels = np.array([_counts(crops, _levels, len(LEVEL_NAMES)) for crops in judged])
    gaps = np.array([[sum(map(_gap, crops)), len(crops)] for crops in judged], float)
    rates: dict[str, Statistics] = {
        "faithful": {"accuracy": (verdicts, kappa.accuracy), "kappa": (verdicts, kappa.kappa)},
        "score": {
            "accuracy": (levels, kappa.accuracy),
            "kappa": (levels, kappa.kappa),
            "weighted_kappa": (levels, partial(kappa.kappa, linear=True)),
            "mean_abs_difference": (gaps, _mean),
        },
    }
    found: dict[str, Any] = {name: _measure(statistics, seed) for name, statistics in rates.items()}
    found["faithful"]["matrix"] = verdicts.sum(0).astype(int).tolist()
    found["score"] |= {"levels": LEVEL_NAMES, "matrix": levels.sum(0).astype(int).tolist()}
    return {
        "n_scenes": len(scenes),
        "n_crops": sum(map(len, judged)),
        **found,
        "kinds": {kind: row for kind in KINDS if (row := _kind(kind, scenes))},
        "failures": {
            "total": len(failures),
            **{who: sum(crop.failed == who for _, crop in failures) for who in ("program", "reference", "judge")},
            "first": [{"task": task_id, **crop.row()} for task_id, crop in failures[:SHOWN_FAILURES]],
        },
    }


def _verdicts(crop: JudgedCrop) -> tuple[int, int]:
    """The verdicts of reference and judge: 1 for faithful."""
    assert crop.reference is not None and crop.judge is not None
    return int(crop.reference.faithful), int(crop.judge.faithful)


def _values(crop: JudgedCrop) -> tuple[float, float]:
    assert crop.reference is not None and crop.judge is not None
    assert crop.reference.value is not None and crop.judge.value is not None
    return crop.reference.value, crop.judge.value


def _levels(crop: JudgedCrop) -> tuple[int, int]:
    """The scores of reference and judge as indices of `LEVEL_NAMES`."""
    right, score = (0 if value < 0 else 1 + LEVELS.index(nearest_level(value)) for value in _values(crop))
    return right, score


def _gap(crop: JudgedCrop) -> float:
    right, score = _values(crop)
    return abs(score - right)


def _mean(sums: Any) -> Any:
    """Means of (sum, number) pairs in the last axis."""
    return sums[..., 0] / np.where(sums[..., 1] == 0, np.nan, sums[..., 1])


def _counts(crops: Sequence[JudgedCrop], read: Callable[[JudgedCrop], tuple[int, int]], size: int) -> Matrix:
    counts = np.zeros((size, size))
    for crop in crops:
        counts[read(crop)] += 1
    return counts


def _measure(statistics: Statistics, seed: int) -> dict[str, Any]:
    values = {name: _number(statistic(groups.sum(0))) for name, (groups, statistic) in statistics.items()}
    intervals = {name: bootstrap(groups, statistic, seed) for name, (groups, statistic) in statistics.items()}
    return {**values, "ci95": {name: intervals[name] if values[name] is not None else None for name in values}}


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _kind(kind: str, scenes: Sequence[tuple[str, Sequence[JudgedCrop]]]) -> dict[str, Any]:
    """One row of the table by kind; empty if there was no such crop."""
    crops = [crop for _, crops in scenes for crop in crops if crop.kind == kind]
    judged = [crop for crop in crops if not crop.failed]
    if not crops:
        return {}
    row: dict[str, Any] = {"n": len(judged), "failed": len(crops) - len(judged), "faithful_by_kind": KINDS[kind]}
    if judged:
        columns = np.array([_values(crop) for crop in judged])
        row |= {"reference_mean": float(columns[:, 0].mean()), "judge_mean": float(columns[:, 1].mean())}
        row["reference_faithful"] = sum(_verdicts(crop)[0] for crop in judged)
        row |= {"faithful": _directions(judged, _verdicts), "score": _directions(judged, _levels)}
    return row


def _directions(crops: Sequence[JudgedCrop], read: Callable[[JudgedCrop], tuple[int, int]]) -> dict[str, int]:
    """Count the crops that the judge scores as the reference does, higher and lower."""
    signs = [score - right for right, score in map(read, crops)]
    return {"agree": signs.count(0), "too_high": sum(s > 0 for s in signs), "too_low": sum(s < 0 for s in signs)}


def text_table(record: Mapping[str, Any]) -> str:
    """Return the content of agreement.json as text for a terminal."""
    failed = record["failures"]["total"]
    lines = [
        f"{record['judge']} against {record['against']}: {record['n_crops']} crops of {record['n_scenes']} scenes "
        f"({', '.join(record['scenes'])}); {failed} more could not be judged",
        "",
        f"{'':<28} {'value':>6}   95 % interval",
    ]
    for part in ("faithful", "score"):
        for name, interval in record[part]["ci95"].items():
            bracket = f"[{interval[0]:.3f}, {interval[1]:.3f}]" if interval else ""
            value = record[part][name]
            shown = "–" if value is None else f"{value:.3f}"
            lines.append(f"{part + ': ' + name.replace('_', ' '):<28} {shown:>6}   {bracket}".rstrip())
    lines += ["", *_kinds_lines(record["kinds"]), "", *_matrix_lines(record["score"])]
    return "\n".join(lines)


def _kinds_lines(kinds: Mapping[str, Any]) -> list[str]:
    counts = " agree too high too low"
    lines = [
        f"{'':<20} | {'faithful':^14} | {'mean score':^11} | {'judge on faithful':^23} | judge on level of score",
        f"{'kind of crop':<13} {'n':>6} | by kind  right | right judge |{counts} |{counts}",
    ]
    for kind, row in kinds.items():
        if not row["n"]:
            lines.append(f"{kind:<13} {0:>6} | all {row['failed']} failed")
            continue
        by_kind = {True: "yes", False: "no", None: "open"}[row["faithful_by_kind"]]
        cells = [
            f"{kind:<13} {row['n']:>6}",
            f"{by_kind:>7} {row['reference_faithful']:>6}",
            f"{row['reference_mean']:>5.2f} {row['judge_mean']:>5.2f}",
            *(f"{r['agree']:>5} {r['too_high']:>8} {r['too_low']:>7}" for r in (row["faithful"], row["score"])),
        ]
        lines.append(" | ".join(cells))
    return lines


def _matrix_lines(score: Mapping[str, Any]) -> list[str]:
    head = f"{'right level':<12}" + "".join(f"{name:>7}" for name in score["levels"]) + "   <- judge"
    rows = zip(score["levels"], score["matrix"], strict=True)
    return [head, *(f"{name:<12}" + "".join(f"{count:>7}" for count in counts) for name, counts in rows)]
