"""The measurements of a study: one number for each measure and run, and means over seeds with intervals."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codev_env.errors import ConfigError
from codev_env.scoring.metrics import UNVERSIONED
from codev_eval.bench.folder import read_metrics
from codev_eval.report.training import read_history
from codev_eval.study.jobs import EVALUATED, NO_CUE, SUMMARY, Run, start_of

LEVEL, WINDOW = 0.9, 5
"""Faithful-tool rate that counts as learned, and the updates it is averaged over."""

# 97.5 % points of Student's t by degrees of freedom from 1.
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


@dataclass(frozen=True)
class Measure:
    """A number that describes a run.

    Attributes:
        key: Its name in files.
        title: Its name on pages.
        meaning: Its meaning, in a line.
        read: Takes it from the metrics of the two evaluations; raises `KeyError` or `TypeError` where there is none.
        share: It is a share or a difference of shares, shown in percent.
        signed: It may be below 0, as a difference.
    """

    key: str
    title: str
    meaning: str
    read: Callable[[Mapping[str, Any], Mapping[str, Any]], float]
    share: bool = True
    signed: bool = False


MEASURES = (
    Measure("accuracy", "accuracy", "right answers, the cue as in training", lambda m, _: m["accuracy"]),
    Measure("faithful", "faithful", "episodes with a crop that shows the target", lambda m, _: m["faithful"]),
    Measure(
        "faithful_given_correct",
        "faithful given correct",
        "the same among right answers",
        lambda m, _: m["faithful_given_correct"],
    ),
    Measure("tool_calls", "tool calls", "per episode", lambda m, _: m["tool_calls"], share=False),
    Measure("lazy", "lazy crops", "crops of more than 90 % of the image", lambda m, _: m["lazy_crops"] or 0.0),
    Measure(
        "no_cue", "cue-free accuracy", "right answers where only the target shows them", lambda _, n: n["accuracy"]
    ),
    Measure("no_cue_faithful", "cue-free faithful", "faithful there", lambda _, n: n["faithful"]),
    Measure(
        "evidence",
        "visual evidence gain",
        "accuracy lost, cue-free, where the tool shows another place instead",
        lambda _, n: n["perturbed"]["other"]["visual_evidence_gain"],
        signed=True,
    ),
    Measure(
        "evidence_cue",
        "the same with the cue",
        "accuracy lost, the cue as in training, where the tool shows another place instead",
        lambda m, _: m["perturbed"]["other"]["visual_evidence_gain"],
        signed=True,
    ),
    Measure("blind", "accuracy without tool", "the same tasks, no tool", lambda m, _: m["dual"]["accuracy_without"]),
    Measure(
        "tool_gain", "gain by the tool", "accuracy with minus without", lambda m, _: m["dual"]["gain"], signed=True
    ),
    Measure("call_gain", "call gain", "gained where the call was made", lambda m, _: m["dual"]["call_gain"]),
    Measure("schema_gain", "schema gain", "gained without a call", lambda m, _: m["dual"]["schema_gain"]),
    Measure("call_harm", "call harm", "lost where the call was made", lambda m, _: m["dual"]["call_harm"]),
    Measure("schema_harm", "schema harm", "lost without a call", lambda m, _: m["dual"]["schema_harm"]),
    Measure(
        "at_once", "accuracy at once", "made to answer before it looks", lambda m, _: m["at_once"]["accuracy_without"]
    ),
    Measure("look_gain", "gain by looking", "accuracy minus that", lambda m, _: m["at_once"]["gain"], signed=True),
    Measure(
        "no_cue_at_once",
        "cue-free accuracy at once",
        "made to answer before it looks, where only the target shows the answer",
        lambda _, n: n["at_once"]["accuracy_without"],
    ),
    Measure(
        "no_cue_look_gain",
        "cue-free gain by looking",
        "cue-free accuracy minus that",
        lambda _, n: n["at_once"]["gain"],
        signed=True,
    ),
    Measure(
        "turned",
        "turned: accuracy",
        "mean over source, three rotations and two flips",
        lambda m, _: m["suites"]["orientation"]["mean"]["accuracy"],
    ),
    Measure(
        "turned_faithful",
        "turned: faithful",
        "mean over the same",
        lambda m, _: m["suites"]["orientation"]["mean"]["faithful"],
    ),
)


CURVES = {
    "faithful": "faithful-tool rate while training",
    "accuracy": "accuracy while training, each on its own tasks",
}
"""Numbers of the training history that figures show over time, and their titles."""


@dataclass(frozen=True)
class Found:
    """The measurements of one run.

    Attributes:
        run: The run.
        values: By key of the measure; measures without a value are missing.
        history: By name of `CURVES`: the number after each update. Empty for a start.
        episodes: Episodes of each update.
        seconds: Duration of training; 0 for a start.
        learned: Episodes until the faithful-tool rate, over `WINDOW` updates, reached `LEVEL`, or infinity.
        start: Digest of its first weights; runs of one seed can be compared if it is the same.
        machine: The machine that it ran on.
        definition: The definition of *faithful* by which it was evaluated; empty if no call was judged.
    """

    run: Run
    values: Mapping[str, float]
    history: Mapping[str, Sequence[float]]
    episodes: int
    seconds: float
    learned: float
    start: str
    machine: str
    definition: str = UNVERSIONED


def learned_after(faithful: Sequence[float], episodes: int) -> float:
    """Return the episodes until the mean of `WINDOW` updates reached `LEVEL`, or infinity.

    Args:
        faithful: The faithful-tool rate of each update.
        episodes: Episodes of an update.
    """
    for end in range(WINDOW, len(faithful) + 1):
        if sum(faithful[end - WINDOW : end]) >= LEVEL * WINDOW:
            return float(end * episodes)
    return math.inf


def this_machine() -> str:
    """Return a description of the machine, in a few words."""
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def read_run(out: Path, run: Run) -> Found | None:
    """Return the measurements of a run; `None` if it is not done."""
    folder = run.folder(out)
    try:
        plain, without = (next(iter(read_metrics(folder / name)["benches"].values())) for name in (EVALUATED, NO_CUE))
    except FileNotFoundError:
        return None
    values = {}
    for measure in MEASURES:
        try:
            values[measure.key] = float(measure.read(plain, without))
        except (KeyError, TypeError):
            continue
    start = _digest(start_of(out, run.setting.start, run.seed))
    definition = str(plain.get("faithful_definition", UNVERSIONED) or "")
    if run.method is None:
        return Found(run, values, {}, 0, 0.0, math.inf, start, this_machine(), definition)
    summary = json.loads((folder / SUMMARY).read_text("utf-8"))
    options = summary["options"]
    episodes = options["prompts"] * options["group"]
    rows = read_history(folder / "history.jsonl")
    # Null: nothing of that update was judged.
    history = {name: [math.nan if row[name] is None else float(row[name]) for row in rows] for name in CURVES}
    seconds = summary["seconds"].get("training", 0.0)
    learned = learned_after(history["faithful"], episodes)
    return Found(run, values, history, episodes, seconds, learned, start, this_machine(), definition)


def check_definitions(found: Sequence[Found]) -> None:
    """Raise `ConfigError` if runs were evaluated by different definitions of *faithful*, whose rates do not compare."""
    runs = {one.definition: one.run for one in found if one.definition}
    if len(runs) > 1:
        listed = "; ".join(f"{name} (such as {run.folder(Path())})" for name, run in sorted(runs.items()))
        raise ConfigError(
            f"the runs were evaluated by different definitions of faithful: {listed}. Give another --out, or remove "
            "the evaluations of the older ones, so that they are made again; leave out a study.json of --also that has "
            "others."
        )


@functools.cache
def _digest(model: Path | None) -> str:
    """Return a short digest of a model's weights; empty if its files are gone."""
    files = sorted(model.glob("*.safetensors")) if model else []
    digest = hashlib.blake2b(digest_size=8)
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest() if files else ""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its 95 % interval (Student's t); without one for a single seed."""

    mean: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate | None:
        """Make it from one value for each seed; `None` from none."""
        n = len(values)
        if not n:
            return None
        mean = math.fsum(values) / n
        if n == 1:
            return cls(mean, -math.inf, math.inf, 1)
        deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
        half = _t(n - 1) * deviation / math.sqrt(n)
        return cls(mean, mean - half, mean + half, n)


class Results:
    """All measurements of a study.

    Args:
        found: The runs that are done.
    """

    def __init__(self, found: Sequence[Found]) -> None:
        self.found = found

    def values(self, setting: str, method: str | None, key: str) -> dict[int, float]:
        """Return a measure by seed; of the start if `method` is `None`."""
        return {
            f.run.seed: f.values[key]
            for f in self.found
            if f.run.setting.name == setting and _name(f.run) == method and key in f.values
        }

    def estimate(self, setting: str, method: str | None, key: str) -> Estimate | None:
        """Return the mean over seeds."""
        return Estimate.of([*self.values(setting, method, key).values()])

    def difference(self, setting: str, method: str | None, other: str | None, key: str) -> Estimate | None:
        """Return the mean of `method` minus `other`, over the seeds that both have."""
        a, b = self.values(setting, method, key), self.values(setting, other, key)
        return Estimate.of([a[seed] - b[seed] for seed in sorted(a) if seed in b])

    def runs(self, setting: str, method: str | None) -> list[Found]:
        """Return the runs of a method, by seed."""
        chosen = [f for f in self.found if f.run.setting.name == setting and _name(f.run) == method]
        return sorted(chosen, key=lambda f: f.run.seed)


def _t(degrees: int) -> float:
    """Return the 97.5 % point of Student's t; beyond the table its expansion in 1 / degrees, right to 3 decimals."""
    if degrees <= len(_T):
        return _T[degrees - 1]
    z = 1.95996
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def _name(run: Run) -> str | None:
    return run.method.name if run.method else None
