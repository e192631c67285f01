"""`codev study tapo`: every method, setting and seed, trained, evaluated and written up by one command."""

from __future__ import annotations

import dataclasses
import json
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

from codev_env.app.arguments import parse
from codev_env.app.completion import option_values
from codev_env.app.outputs import make_folder
from codev_env.errors import CodevError, ConfigError, UsageError, unknown
from codev_env.files import lock_file, write_json
from codev_eval.study import page
from codev_eval.study.jobs import Job, JobFailed, Run, Runner, StudySize, check_run, jobs_of
from codev_eval.study.methods import ABLATIONS, METHODS, SETTINGS, Method, Setting, find
from codev_eval.study.numbers import joined, read_numbers
from codev_eval.study.options import StudyOptions
from codev_eval.study.results import Results, check_definitions, read_run

STUDIES = ("tapo",)
SCALE = "scale.json"
"""File in the folder of a study: its size."""
SHOWN_FAILURES = 3
Row = TypeVar("Row", Method, Setting)


class StudyError(CodevError, RuntimeError):
    """Some jobs of a study failed."""


def main(argv: Sequence[str]) -> int:
    """Run `codev study NAME`; returns the exit code."""
    if argv and argv[0] not in ("-h", "--help") and argv[0] not in STUDIES:
        raise unknown("study", argv[0], STUDIES, UsageError)
    if not argv:
        raise UsageError(f"the name of the study is missing. Known: {', '.join(STUDIES)}.")
    given = argv[1:] if argv[0] in STUDIES else argv
    run_study(parse(StudyOptions, given, "codev study tapo"))
    return 0


def run_study(options: StudyOptions) -> Path:
    """Run the jobs that are left of a study, write its page, and return its path.

    Raises:
        ConfigError: Options that cannot be used.
        StudyError: Some jobs failed; the page is written from the others.
    """
    if options.preset not in (presets := option_values().get("--preset", [options.preset])):
        raise unknown("preset", options.preset, presets)
    settings = find("setting", SETTINGS, options.settings)
    methods = find("method", (*METHODS, *ABLATIONS), options.methods or [method.name for method in METHODS])
    # Seed by seed, so that a study that is stopped has compared all methods on some seeds.
    runs = [Run(setting, seed, method) for seed in options.seeds for setting in settings for method in (None, *methods)]
    # The page shows all runs in the folder, whatever the options of this call.
    settings, methods = _with_known(settings, SETTINGS), _with_known(methods, (*METHODS, *ABLATIONS))
    for path in options.also:  # a file that cannot be used is refused before hours of work, not after
        read_numbers(path, settings, methods, _facts(options))
    for run in _runs_in(options.out, settings, methods):
        check_run(options.out, run)
    failed = []
    if not options.report:
        make_folder(options.out)
        with _alone(options.out) as lock, _ended_by_a_signal():
            scale = _size(options)
            write_json(options.out / SCALE, dataclasses.asdict(scale))
            starts: dict[str, Job] = {}
            jobs = [job for run in runs for job in jobs_of(options.out, run, scale, starts)]
            if left := sum(not job.done() for job in jobs):
                kinds = "cold starts, runs of training, evaluations"
                print(f"{left} of {len(jobs)} jobs are left ({kinds}), {options.jobs} at a time.", flush=True)
            failed = Runner(options.jobs, lock=lock).run(jobs)
    found = [found for run in _runs_in(options.out, settings, methods) if (found := read_run(options.out, run))]
    check_definitions(found)
    if not found and not failed and not options.also:
        raise ConfigError(f"--report: {options.out} holds no finished run; leave --report out to run them.")
    facts = _facts(options)
    for path in options.also:
        found = joined(found, path, read_numbers(path, settings, methods, facts))
        check_definitions(found)
    settings = _with_known([one.run.setting for one in found], settings)
    methods = _with_known([one.run.method for one in found if one.run.method], methods)
    facts["seeds"] = " ".join(sorted({str(one.run.seed) for one in found}, key=int))
    make_folder(options.out)  # where only studies made elsewhere are shown
    written = page.write(options.out, Results(found), settings, methods, facts)
    print(f"\nPage:    {written}\nIn the browser: {written.with_name(page.HTML)}")
    if failed:
        raise StudyError(_reasons(failed))
    return written


def _reasons(failed: Sequence[JobFailed]) -> str:
    """Return a message on the first jobs that failed by themselves, and the number of all."""
    causes = [failure for failure in failed if failure.begun]
    more = len(failed) - len(causes[:SHOWN_FAILURES])
    others = [f"{more} more failed or could not begin; the same command tries them again."] if more else []
    return "\n\n".join([*map(str, causes[:SHOWN_FAILURES]), *others])


def _size(options: StudyOptions) -> StudySize:
    """Return the size of the study, which is the same for all runs in one folder; raises `ConfigError`."""
    mine = StudySize(**{field.name: getattr(options, field.name) for field in dataclasses.fields(StudySize)})
    path = options.out / SCALE
    theirs = json.loads(path.read_text("utf-8")) if path.exists() else dataclasses.asdict(mine)
    for name, value in dataclasses.asdict(mine).items():
        if theirs.get(name) != value:
            raise ConfigError(
                f"--out {options.out} holds a study with --{name.replace('_', '-')} {theirs.get(name)}, not "
                f"{value}: give that, or another folder."
            )
    return mine


def _facts(options: StudyOptions) -> dict[str, Any]:
    """Return the size of the study in the folder, or of the one that would be there."""
    path = options.out / SCALE
    return dict(json.loads(path.read_text("utf-8"))) if path.exists() else dataclasses.asdict(_size(options))


def _runs_in(out: Path, settings: Sequence[Setting], methods: Sequence[Method]) -> list[Run]:
    """Return the runs that a folder may hold, by setting and seed."""
    found = []
    for setting in settings:
        seeds = sorted(int(path.name.removeprefix("seed")) for path in (out / setting.name).glob("seed[0-9]*"))
        found += [Run(setting, seed, method) for seed in seeds for method in (None, *methods)]
    return found


def _with_known(chosen: Sequence[Row], table: Sequence[Row]) -> list[Row]:
    """Return the rows of a table, and those that were chosen beside them."""
    found = list(table)
    for row in chosen:
        if row.name not in {known.name for known in found}:
            found.append(row)
    return found


@contextmanager
def _alone(out: Path) -> Iterator[IO[str]]:
    """Keep a second study out of the folder, also while processes of a killed one still work there."""
    with (out / "lock").open("w") as file:
        try:
            lock_file(file, wait=False)
        except BlockingIOError as error:
            raise ConfigError(
                f"--out {out}: another study runs there, or processes of one that was killed; wait for them or "
                "give another folder."
            ) from error
        yield file


@contextmanager
def _ended_by_a_signal() -> Iterator[None]:
    """Make SIGTERM end the study as Ctrl-C does: its processes save what they have."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
