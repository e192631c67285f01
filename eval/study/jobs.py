"""The work of a study: cold starts, training runs and evaluations, each a `codev` command in a process of its own."""

from __future__ import annotations

import contextlib
import functools
import json
import operator
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import yaml

from codev_eval.study.methods import REMOVED, Method, Setting, Start, check_options

STARTS, BEFORE, EVALUATED, NO_CUE = "starts", "before", "evaluated", "no-cue"
"""Folders: of a study, its cold starts; of a seed, the evaluation of its start; of a run, its evaluations, with and
without the cue."""
SUMMARY, OPTIONS, METRICS = "summary.json", "options.yaml", "metrics.json"
_LAST_WORDS = 12
# Started in the background, a process may have inherited that Ctrl-C is ignored, and would never save and stop.
_CODEV = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from codev_env.app.cli import main; sys.exit(main())"
)


@dataclass(frozen=True)
class StudySize:
    """The size of a study.

    Attributes:
        preset: Preset of `codev sft` and `codev train`.
        steps: Updates of each run; 0 takes the preset's.
        minibatches: Optimizer steps of each update.
        episodes: Held-out episodes of each condition.
        max_turns: Turns of an episode.
        max_tokens: Tokens of a turn.
    """

    preset: str
    steps: int
    minibatches: int
    episodes: int
    max_turns: int
    max_tokens: int


@dataclass(frozen=True)
class Run:
    """One method, trained with one seed in one setting; runs of the same seed have the same start."""

    setting: Setting
    seed: int
    method: Method | None
    """`None` for the start itself."""

    def folder(self, out: Path) -> Path:
        """Return its folder."""
        return seed_folder(out, self.setting, self.seed) / (self.method.name if self.method else BEFORE)


def seed_folder(out: Path, setting: Setting, seed: int) -> Path:
    """Return the folder of a seed."""
    return out / setting.name / f"seed{seed}"


def start_of(out: Path, start: Start, seed: int) -> Path | None:
    """Return the cold start of a seed, if it exists."""
    found = (out / STARTS).glob(f"{start.name}-seed{seed}-*/config.json")
    return next((path.parent for path in found), None)


def check_run(out: Path, run: Run) -> None:
    """Raise `ConfigError` if a run that was begun has other options than its method, which has changed since."""
    folder = run.folder(out)
    if run.method is None or not (folder / OPTIONS).exists():
        return
    try:
        there = yaml.safe_load((folder / OPTIONS).read_text("utf-8"))["train"]
    except (ValueError, KeyError, TypeError, yaml.YAMLError):
        return  # torn: the run says so when it goes on
    # Lists and tables are left out: an option may write them otherwise.
    plain = {name: value for name, value in run.method.options.items() if isinstance(value, str | int | float)}
    found = {}
    for name in {**REMOVED, **plain}:
        with contextlib.suppress(KeyError, TypeError):  # an option that this version does not have
            found[name] = functools.reduce(operator.getitem, name.split("."), there)
    check_options(replace(run.method, options=plain), found, str(folder))


class Job:
    """A command that continues where it was stopped.

    Args:
        name: Its name in messages.
        command: Returns the words after `codev`; called when the job begins.
        done: Returns whether nothing is left to do.
        log: File for its output.
        after: Jobs that must be done before.
    """

    def __init__(
        self,
        name: str,
        command: Callable[[], Sequence[str]],
        done: Callable[[], bool],
        log: Path,
        after: Sequence[Job] = (),
    ) -> None:
        self.name, self.command, self.done, self.log, self.after = name, command, done, log, after


def jobs_of(out: Path, run: Run, size: StudySize, starts: dict[str, Job]) -> Iterator[Job]:
    """Yield the jobs of a run: its seed's cold start if it is not in `starts` yet, training, evaluations."""
    setting, seed, start = run.setting, run.seed, run.setting.start
    folder, place = run.folder(out), seed_folder(out, setting, seed)
    label, first = f"{setting.name} seed {seed}", f"{start.name} seed {seed}"
    if first not in starts:
        words = ["sft", "--preset", size.preset, "--name", start.name, "--out", str(out / STARTS)]
        starts[first] = Job(
            f"start {first}",
            lambda: [*words, "--seed", str(seed), *_words(start.options)],
            lambda: start_of(out, start, seed) is not None,
            out / STARTS / f"{start.name}-seed{seed}.log",
        )
        yield starts[first]
    before: Job = starts[first]
    if run.method:
        before = Job(
            f"{label}: {run.method.name}",
            lambda: _train_words(out, run, size),
            lambda: (folder / SUMMARY).exists(),
            place / f"{run.method.name}.log",
            [before],
        )
        yield before
    for name, scenes in ((EVALUATED, setting.scenes), (NO_CUE, {**setting.scenes, setting.cue[0]: setting.cue[1]})):
        yield Job(
            f"{label}: {folder.name}, {name}",
            lambda name=name, scenes=scenes: _eval_words(out, run, size, name, scenes),  # type: ignore[misc]
            lambda name=name: _evaluated(folder / name),  # type: ignore[misc]
            folder.with_name(f"{folder.name}-{name}.log"),
            [before],
        )


def _train_words(out: Path, run: Run, size: StudySize) -> list[str]:
    assert run.method is not None
    folder = run.folder(out)
    if (folder / OPTIONS).exists():
        return ["train", "--resume", str(folder)]
    words = ["train", "--preset", size.preset, "--name", folder.name, "--out", str(folder.parent)]
    words += ["--seed", str(run.seed), "--model", str(start_of(out, run.setting.start, run.seed)), "--threads", "1"]
    words += ["--eval.episodes", "16", "--eval.contrast"]  # The evaluations that the page shows are jobs of their own.
    words += ["--minibatches", str(size.minibatches)]
    words += ["--env.max-turns", str(size.max_turns), "--max-tokens", str(size.max_tokens)]
    words += ["--steps", str(size.steps)] if size.steps else []
    return [*words, *_words({**run.setting.train, **run.method.options})]


def _eval_words(out: Path, run: Run, size: StudySize, name: str, scenes: Mapping[str, Any]) -> list[str]:
    folder = run.folder(out)
    model = folder / "model" if run.method else start_of(out, run.setting.start, run.seed)
    words = ["eval", "--model", str(model), "--out", str(folder / name), "--data", "synthetic", "--workers", "1"]
    words += ["--scenes", json.dumps(dict(scenes)), "--n", str(size.episodes), "--batch", "128"]
    words += ["--max-turns", str(size.max_turns), "--max-tokens", str(size.max_tokens), "--perturb", "other"]
    return [*words, "--dual", *(["--suites", "orientation"] if name == EVALUATED else [])]


def _say(text: str) -> None:
    print(text, flush=True)  # Hours may lie between two lines; a file shows each at once.


def _evaluated(folder: Path) -> bool:
    try:
        return not json.loads((folder / METRICS).read_text("utf-8"))["failed"]
    except (OSError, ValueError, KeyError):
        return False


def _words(options: Mapping[str, Any]) -> list[str]:
    """Write options as a command line."""
    words = []
    for name, value in options.items():
        if isinstance(value, Mapping):
            words += [f"--{name}", *(str(part) for pair in value.items() for part in pair)]
        else:
            words += [f"--{name}", *map(str, value if isinstance(value, list | tuple) else [value])]
    return words


class JobFailed(Exception):
    """A job ended with an error.

    Attributes:
        job: The job.
        said: The end of its output.
        begun: It did not only wait for a job that failed.
    """

    def __init__(self, job: Job, said: str, begun: bool = True) -> None:
        super().__init__(f"{job.name} failed; {job.log} ends with:\n{said}")
        self.job, self.said, self.begun = job, said, begun


class Runner:
    """Runs jobs in parallel, each when the jobs before it are done.

    Args:
        count: Most jobs at the same time.
        say: Called with a line for each job that ends; prints it by default.
        lock: An open file that the processes hold, too: a lock on it lasts as long as any of them.
    """

    def __init__(self, count: int, say: Callable[[str], None] = _say, lock: IO[str] | None = None) -> None:
        self.count, self.say = count, say
        self._held = [lock.fileno()] if lock else []
        self._running: dict[Job, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, jobs: Sequence[Job]) -> list[JobFailed]:
        """Run all jobs that are not done; returns those that failed. Jobs that need one of them are left out.

        Raises:
            KeyboardInterrupt: After all processes have ended; each was asked to save what it has.
        """
        left = [job for job in jobs if not job.done()]
        failed: list[JobFailed] = []
        total, ended = len(left), 0
        waiting: dict[Future[None], Job] = {}
        with ThreadPoolExecutor(self.count) as pool:
            try:
                while left or waiting:
                    broken = {failure.job for failure in failed}
                    for job in [job for job in left if broken & set(job.after)]:
                        left.remove(job)
                        failed.append(JobFailed(job, "not begun: what it needs failed", begun=False))
                    undone = {*left, *waiting.values()}
                    for job in [job for job in left if not undone & set(job.after)][: self.count - len(waiting)]:
                        left.remove(job)
                        waiting[pool.submit(self._do, job)] = job
                    for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                        job, ended = waiting.pop(future), ended + 1
                        error = future.exception()
                        if isinstance(error, JobFailed):
                            failed.append(error)
                        elif error:
                            raise error
                        self.say(f"[{ended}/{total}] {job.name}{': FAILED' if error else ''}")
            except BaseException:
                self._stop()
                raise
        return failed

    def _do(self, job: Job) -> None:
        job.log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-c", _CODEV, *job.command()]
        quiet = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        with job.log.open("ab") as log:
            with self._lock:
                if self._stopped:
                    return
                # A session of its own: a Ctrl-C of the terminal reaches it through us, once.
                process = subprocess.Popen(
                    command,
                    stdout=log,
                    stderr=log,
                    env=os.environ | quiet,
                    start_new_session=True,
                    pass_fds=self._held,
                )
                self._running[job] = process
            code = process.wait()
            with self._lock:
                del self._running[job]
        if code and not self._stopped:
            said = job.log.read_text("utf-8", "replace").splitlines()[-_LAST_WORDS:]
            raise JobFailed(job, "\n".join(said))

    def _stop(self) -> None:
        with self._lock:
            self._stopped = True
            for process in self._running.values():
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGINT)
