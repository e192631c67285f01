"""`codev data`: look at tasks, check them, replay published training data, and filter tasks by difficulty."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from codev_agents import Agent, AgentError
from codev_env.app.arguments import parse, run_subcommand
from codev_env.app.outputs import creating
from codev_env.dialects import get_dialect
from codev_env.errors import CodevError, ConfigError
from codev_env.farm.farm import get_farm
from codev_env.scoring import ScorerError
from codev_env.tasks import check_tasks
from codev_env.tasks.check import summary
from codev_eval.bench.folder import refuse_data_folder
from codev_eval.bench.models import parse_model
from codev_eval.bench.runner import Failure
from codev_eval.bench.servers import check_servers
from codev_eval.data.demonstrations import DemonstrationSet, ReplayOptions, ReplayRun, summary_table
from codev_eval.data.demonstrations.run import SUMMARY
from codev_eval.data.difficulty import (
    RolloutJournal,
    RolloutOptions,
    check_rows_file,
    measure,
    select,
    write_rows,
)
from codev_eval.data.hub import run_pull, run_push
from codev_eval.data.options import CheckCommand, FilterCommand, PullCommand, PushCommand, ReplayCommand, ShowCommand
from codev_eval.data.progress import progress
from codev_eval.data.sheet import check_place, save, sheet
from codev_eval.report.formats import counted

COMMANDS = {
    "show": "write a contact sheet of tasks",
    "check": "read every task and report bad rows, with reasons",
    "replay": "run published SFT trajectories in the sandbox and keep what runs",
    "filter": "keep the tasks that an agent solves neither too seldom nor too often",
    "push": "upload tasks to the hub as a data set",
    "pull": "download a data set of the hub",
}
SHOWN_FAILURES = 20
MOST_FAILURES = 10
"""If so many rollouts fail before the first one succeeds, filtering stops."""


class FilterError(CodevError, RuntimeError):
    """No rollout could be played."""


def main(argv: Sequence[str]) -> int:
    """Run `codev data COMMAND` and return its exit code."""
    return run_subcommand("codev data", COMMANDS, argv, _run)


def _run(name: str, words: list[str]) -> int:
    command, run = _RUN[name]
    return run(parse(command, words, f"codev data {name}"))


def run_show(command: ShowCommand) -> int:
    """Write a contact sheet and return the exit code, 0."""
    check_place(command.out)
    tasks = command.load()
    indices = _indices(len(tasks), command.n or len(tasks), command.start, command.seed)
    page = sheet(tasks, indices, command.per_row, command.width)
    save(page, command.out)
    print(f"{command.out}: {len(indices)} {'task' if len(indices) == 1 else 'tasks'} of {tasks.name}")
    return 0


def _indices(total: int, count: int, start: int, seed: int | None) -> list[int]:
    """Return so many indices in a row, or chosen by a seed and sorted."""
    if seed is not None:
        if start:
            raise ConfigError(f"--seed is {seed} and --start is {start}; give a seed or a start, not both.")
        return sorted(np.random.default_rng(seed).choice(total, min(count, total), replace=False).tolist())
    if not 0 <= start < total:
        raise ConfigError(f"--start is {start}; the set has {total} tasks, so it must be from 0 to {total - 1}.")
    return list(range(start, min(start + count, total)))


def run_check(command: CheckCommand) -> int:
    """Read every task, print the bad ones and return the exit code: 1 if there is one."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*left out")  # reported below, with all reasons
        tasks = command.load()
    with progress("task", "check") as bar:

        def on_progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        try:
            checked = check_tasks(tasks, command.n, on_progress)
        except KeyboardInterrupt:
            done = counted(bar.n, "task")
            raise KeyboardInterrupt(f"interrupted after {done}. Run the same command again to go on.") from None
    print("\n".join(summary(checked, command.show)))
    return 1 if checked.bad else 0


def run_replay(command: ReplayCommand) -> int:
    """Replay, print the counts and return the exit code: 1 if nothing was kept."""
    if command.dialect is not None:
        get_dialect(command.dialect)
    refuse_data_folder(command.out, str(command.data))
    demos = DemonstrationSet(command.format, command.data)
    options = ReplayOptions(command.dialect, command.wall_s, command.recorded_errors)
    total = len(demos) if command.n is None else min(command.n, len(demos))
    counts: Counter[str] = Counter()
    with ReplayRun(demos, command.out, options) as run, progress("row", "replay", total) as bar:

        def on_done(result: str, was_done: bool) -> None:
            counts[result] += 1
            bar.set_postfix(kept=f"{counts['kept'] / counts.total():.0%}", refresh=False)
            bar.update()

        try:
            farm = get_farm(command.farm) if command.farm else None
            summary = run.run(workers=command.workers, n=command.n, on_done=on_done, farm=farm)
        except KeyboardInterrupt:
            done = run.summary()
            raise KeyboardInterrupt(
                f"interrupted; {done['done']} of {done['rows']} rows are done and saved in {command.out}. "
                "Run the same command again to go on."
            ) from None
    print(f"\n{summary_table(summary)}\n\nTrajectories: {command.out}\nSummary: {command.out / SUMMARY}")
    return 0 if summary["kept"] else 1


def run_filter(command: FilterCommand) -> int:
    """Play, write the tasks kept, and return the exit code: 1 if some rollouts could not be played."""
    options = RolloutOptions(
        command.rollouts,
        command.workers,
        command.seed,
        command.dialect,
        command.max_turns,
        command.scorer,
        command.farm,
    )
    low, high = command.keep
    check_rows_file(command.out)

    def make_agent(rollout: int) -> Callable[[], Agent]:
        # The same seed would sample the same rollout again.
        seed = command.seed * 1_000_003 + rollout
        return parse_model(
            command.agent,
            seed=seed,
            temperature=command.temperature,
            max_tokens=command.max_tokens,
            option="--agent",
        )

    make_agent(0)
    tasks = command.load()
    count = len(tasks) if command.n is None else min(command.n, len(tasks))
    names = "agent data bench split scorer seed dialect max_turns temperature max_tokens".split()
    settings = {"tasks": tasks.name, **command.described(), **{name: getattr(command, name) for name in names}}
    with creating(command.out):
        journal = RolloutJournal(command.out.with_name(f"{command.out.name}.rollouts"), settings)
    failures: list[Failure] = []
    played_any = False
    try:
        journal.check(tasks)
        played = sum(journal.has(index, rollout) for index in range(count) for rollout in range(options.rollouts))
        if played < count * options.rollouts:
            try:
                check_servers(make_agent(0)(), "none", command.scorer)
            except (AgentError, ScorerError) as error:
                raise FilterError(f"no rollout could be played: {error}") from error
        with progress("ep", "filter", count * options.rollouts, played) as bar:
            for failure in measure(tasks, count, make_agent, journal, options):
                if failure is None:
                    bar.update()
                    played_any = True
                    continue
                failures.append(failure)
                if not played_any and len(failures) == MOST_FAILURES:
                    raise FilterError(
                        f"none of the first {MOST_FAILURES} rollouts could be played; the last: {failure.reason}"
                    )
        kept, left_out, missing = select(journal, count, options.rollouts, command.keep)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted; the rollouts played are saved in {journal.path}. Run the same command again to go on."
        ) from None
    finally:
        journal.close()
    write_rows(command.out, kept)
    easy = sum(task.rate > high for task in left_out)
    print(
        f"\n{len(kept)} of {count} tasks of {tasks.name} kept: success rate {low:g} to {high:g} over "
        f"{options.rollouts} rollouts of {command.agent}.\n{easy} are too easy, {len(left_out) - easy} too hard, "
        f"{missing} lack rollouts.\n\nTasks: {command.out}\nRollouts: {journal.path}"
    )
    for failure in failures[:SHOWN_FAILURES]:
        print(f"  task {failure.index}: {failure.reason}", file=sys.stderr)
    if failures:
        missed = counted(len(failures), "rollout")
        print(f"codev data filter: {missed} could not be played; run it again.", file=sys.stderr)
    return 1 if failures else 0


_RUN: dict[str, tuple[Any, Callable[[Any], int]]] = {
    "show": (ShowCommand, run_show),
    "check": (CheckCommand, run_check),
    "replay": (ReplayCommand, run_replay),
    "filter": (FilterCommand, run_filter),
    "push": (PushCommand, run_push),
    "pull": (PullCommand, run_pull),
}
