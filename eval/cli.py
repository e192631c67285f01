"""`codev eval` and `codev report`."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import gymnasium as gym
import tyro
from tqdm import tqdm

from codev_env.errors import CodevError, ConfigError
from codev_env.metrics import published_score, summarize, summarize_groups
from codev_env.registration import env_id_of
from codev_env.trajectory import FILE_NAME as TRAJECTORIES
from codev_env.trajectory import IMAGE_DIR, Trajectory, TrajectoryWriter, read_trajectories
from codev_env.types import TaskSet
from codev_eval.choice import TaskChoice
from codev_eval.models import parse_model
from codev_eval.report import FILE_NAME as REPORT
from codev_eval.report import ReportError, write_report, write_run_report
from codev_eval.results import shown, text_table
from codev_eval.runner import Failure, Player, play

METRICS = "metrics.json"
SCHEMA = 1
SHOWN_FAILURES = 20


class EvaluationError(CodevError, RuntimeError):
    """Episodes that could not be evaluated."""


@dataclass(frozen=True, kw_only=True)
class EvalOptions(TaskChoice):
    """Play tasks with a model; write trajectories, metrics.json and report.html."""

    model: str
    """Who plays: `scripted:oracle|random|lazy|none`, or `URL#NAME`, a model behind an OpenAI-compatible server."""
    out: Path
    """Folder for the results."""
    scorer: str = "rules"
    """Who decides whether an answer is right: `rules`, `official`, `vlmevalkit`, `lmms`, `math-verify`, `answer`, or
    `URL#NAME`, a model."""
    judge: str = "auto"
    """Who scores tool calls: `auto` (the target boxes, where there are any), `ground_truth`, `none`, `URL#NAME`, a
    vision-language model, or JSON such as `{"name": "vlm", "model": "m", "cache": "judged"}`."""
    seed: int = 0
    """Seeds guesses, sampling and the bootstrap of intervals; the tasks do not depend on it."""
    dialect: str = "codev"
    """How the model talks."""
    max_turns: int = 6
    """Turns of an episode, the answer included."""
    temperature: float = 0.0
    """Sampling temperature (URL#NAME only)."""
    max_tokens: int = 2048
    """Tokens per turn (URL#NAME only)."""
    workers: int = 2
    """Episodes played at the same time."""
    overwrite: bool = False
    """Replace the results that `--out` holds."""


@dataclass(frozen=True)
class ReportOptions:
    """Make report.html again from what a training run or an evaluation wrote."""

    folder: Annotated[Path, tyro.conf.Positional]
    """The run's folder: it holds summary.json (`codev train`) or metrics.json (`codev eval`)."""


def evaluate(argv: Sequence[str]) -> int:
    """Run `codev eval` and return its exit code: 1 if any episode could not be evaluated."""
    options = tyro.cli(EvalOptions, args=list(argv), prog="codev eval")
    failures = run_eval(options)
    if not failures:
        return 0
    print(f"codev eval: {len(failures)} episodes could not be evaluated:", file=sys.stderr)
    for failure in failures[:SHOWN_FAILURES]:
        print(f"  task {failure.index}: {failure.reason}", file=sys.stderr)
    if len(failures) > SHOWN_FAILURES:
        print(f"  and {len(failures) - SHOWN_FAILURES} more, in {options.out / METRICS}", file=sys.stderr)
    return 1


def report(argv: Sequence[str]) -> int:
    """Run `codev report` and return its exit code."""
    folder = tyro.cli(ReportOptions, args=list(argv), prog="codev report").folder
    if (folder / METRICS).is_file():
        page = _report_again(folder)
    else:
        page = write_run_report(folder)
    print(page)
    return 0


def run_eval(options: EvalOptions) -> list[Failure]:
    """Evaluate, write the results and print the table.

    Returns:
        The episodes that could not be evaluated; the metrics are about the others.

    Raises:
        ConfigError: If an option cannot be used; nothing is written then.
        EvaluationError: If not a single episode could be evaluated.
    """
    _check(options)
    make_agent = parse_model(
        options.model, seed=options.seed, temperature=options.temperature, max_tokens=options.max_tokens
    )
    tasks = options.load()
    count = len(tasks) if options.n is None else options.n
    if count > len(tasks):
        raise ConfigError(f"--n is {count}, but {tasks.name} has {len(tasks)} tasks in split {options.split!r}.")
    make_env = partial(
        gym.make,
        env_id_of(options.bench),
        data=tasks,
        split=options.split,
        dialect=options.dialect,
        scorer=options.scorer,
        judge=options.judge,
        wrap=None,
    )
    players = [(make_env(max_turns=options.max_turns), make_agent()) for _ in range(min(options.workers, count))]
    results = _old_results(options.out, options.overwrite)
    # Written beside and moved at the end: an evaluation that fails leaves nothing behind, and takes nothing away.
    scratch = options.out.with_name(f".{options.out.name}.partial")
    try:
        failures = _play_and_write(options, scratch, players, count)
        if len(failures) == count:
            raise EvaluationError(f"none of the {count} episodes could be evaluated; the first: {failures[0].reason}")
        for path in results:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        options.out.mkdir(parents=True, exist_ok=True)
        for path in scratch.iterdir():
            path.rename(options.out / path.name)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    _finish(options, tasks, failures)
    return failures


def _check(options: EvalOptions) -> None:
    options.check(refuse_auto="evaluations, which must say what they measured")
    for name, least in (("workers", 1), ("max_turns", 1), ("max_tokens", 1), ("seed", 0)):
        value = getattr(options, name)
        if value < least:
            raise ConfigError(f"--{name.replace('_', '-')} is {value}; it must be at least {least}.")


def _old_results(out: Path, overwrite: bool) -> list[Path]:
    """Refuse a folder that holds results, or return just these to be replaced."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out} is a file; give a folder.")
    results = [path for name in (TRAJECTORIES, METRICS, REPORT, IMAGE_DIR) if (path := out / name).exists()]
    if results and not overwrite:
        raise ConfigError(f"--out {out} already holds {results[0].name}: give another folder, or add --overwrite.")
    return results


def _play_and_write(options: EvalOptions, folder: Path, players: Sequence[Player], count: int) -> list[Failure]:
    failures, right, faithful = [], 0, 0
    with TrajectoryWriter(folder) as writer, tqdm(total=count, desc=options.bench, unit="ep") as bar:
        for outcome in play(players, range(count), seed=options.seed):
            bar.update()
            if isinstance(outcome, Failure):
                failures.append(outcome)
                continue
            writer.append(outcome)
            right, faithful = right + outcome.is_correct, faithful + outcome.is_faithful
            played = bar.n - len(failures)
            bar.set_postfix(accuracy=f"{right / played:.0%}", faithful=f"{faithful / played:.0%}", refresh=False)
    return failures


def _finish(options: EvalOptions, tasks: TaskSet, failures: list[Failure]) -> None:
    trajectories = read_trajectories(options.out)
    metrics = summarize(trajectories, seed=options.seed) | summarize_groups(trajectories, seed=options.seed)
    score = published_score(options.bench, trajectories)
    if score is not None:
        metrics["score"] = score
    record = {
        "schema": SCHEMA,
        "model": options.model,
        "data": tasks.name,
        "source": tasks.source,
        "split": options.split,
        "scorer": options.scorer,
        "judge": options.judge,
        "wrap": list(options.wrap),
        "tasks": options.described(),
        "seed": options.seed,
        "benches": {options.bench: metrics},
        "failed": [{"index": failure.index, "reason": failure.reason} for failure in failures],
    }
    path = options.out / METRICS
    temporary = path.with_name(f".{METRICS}.{os.getpid()}")
    temporary.write_text(json.dumps(record, indent=2) + "\n", "utf-8")
    os.replace(temporary, path)
    page = write_report(options.out, trajectories, metrics, _title(record, options.bench))
    missing = f"; {len(failures)} more could not be evaluated and are not counted" if failures else ""
    print(f"\n{options.model} on {options.bench} ({tasks.name}, {tasks.source}), {metrics['n']} episodes{missing}\n")
    print(text_table(metrics))
    print("\n".join(_parts(metrics)))
    print(f"\nReport:  {page}\nMetrics: {path}")


def _parts(metrics: dict[str, Any]) -> Iterator[str]:
    """Yield the lines under the table: rates of each part of the data, and the benchmark's own total."""
    for grouping, title in (("by_category", "category"), ("by_variant", "variant")):
        groups = metrics.get(grouping, {})
        if groups:
            yield f"\n{title:<24} {'n':>6} {'accuracy':>9} {'faithful':>9}"
        for name, group in groups.items():
            rates = (shown(rate, group[rate]) for rate in ("accuracy", "faithful"))
            yield f"{name:<24} {group['n']:>6} " + " ".join(f"{rate:>9}" for rate in rates)
    if "score" in metrics:
        how = "mean over the variants" if "by_variant" in metrics else "totalled as the benchmark's authors do"
        yield f"\nScore, {how}: {100 * metrics['score']['overall']:.1f} %"


def _title(record: dict[str, Any], bench: str) -> str:
    return f"{record['model']} on {bench} ({record['data']}, {record['split']})"


def _report_again(folder: Path) -> Path:
    try:
        record = json.loads((folder / METRICS).read_text("utf-8"))
        bench, metrics = next(iter(record["benches"].items()))
        title = _title(record, bench)
    except (ValueError, KeyError, StopIteration, AttributeError, TypeError) as error:
        raise ReportError(f"{folder / METRICS} is not what `codev eval` writes ({error!r}); evaluate again.") from error
    trajectories: list[Trajectory] = read_trajectories(folder)
    return write_report(folder, trajectories, metrics, title)
