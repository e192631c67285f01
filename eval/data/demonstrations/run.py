"""Replays a whole set of demonstrations on all cores; a stopped replay continues where it was.

The folder holds `trajectories.jsonl` with `images/` (what is kept), `dropped.jsonl` (what is not, and why),
`replay.json` (the options) and `summary.json`. Every row ends up as exactly one line in one of the two files; that line
is the only record that the row is done, so that nothing has to be written twice.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from codev_env.app.outputs import make_folder
from codev_env.errors import ConfigError, TaskError
from codev_env.farm.farm import Farm
from codev_env.files import append_line, lock_file, write_json
from codev_env.sandbox import Limits, Sandbox
from codev_env.threads import until_given_up
from codev_env.trajectory import FILE_NAME, TrajectoryWriter
from codev_eval.data.demonstrations.convert import check_target
from codev_eval.data.demonstrations.demonstration import REASONS, Broken, Demonstration
from codev_eval.data.demonstrations.reading import DemonstrationSet
from codev_eval.data.demonstrations.replay import Outcome, ReplayOptions, replay

DROPPED = "dropped.jsonl"
SETTINGS = "replay.json"
SUMMARY = "summary.json"
SCHEMA = 1
KEPT = "kept"


class ReplayRun:
    """The replay of a set of demonstrations into a folder. A context manager.

    Args:
        demos: The demonstrations.
        out: Folder for the results; one with results of the same options is continued.
        options: Settings of the replay.

    Raises:
        ConfigError: The folder holds results of other options, or another process writes to it.
        TaskError: A file in the folder cannot be read.
    """

    def __init__(self, demos: DemonstrationSet, out: str | os.PathLike[str], options: ReplayOptions) -> None:
        check_target(demos.dialect.name, options.dialect or demos.dialect.name)
        self.demos, self.out, self.options = demos, Path(out), options
        if self.out.exists() and not self.out.is_dir():
            raise ConfigError(f"--out {self.out} is a file; give a folder.")
        make_folder(self.out)
        self._lock = threading.Lock()
        self._unlock = _only_writer(self.out)
        try:
            self._check_settings()
            self._writer = TrajectoryWriter(self.out)
            _cut_tail(self.out / DROPPED)
            self._dropped = open(self.out / DROPPED, "ab", buffering=0)  # closed in close()
            self._digests: dict[str, str] = {}
            self._results: dict[str, str] = {}
            self._facts: Counter[str] = Counter()
            self._load()
        except BaseException:
            self._unlock()
            raise

    def __enter__(self) -> ReplayRun:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        self._writer.close()
        self._dropped.close()
        self._unlock()

    def run(
        self,
        *,
        workers: int = 0,
        n: int | None = None,
        on_done: Callable[[str, bool], None] | None = None,
        farm: Farm | None = None,
    ) -> dict[str, Any]:
        """Replay the rows that are not done yet and write `summary.json`, also where an error or Ctrl-C ends it early.

        Args:
            workers: Rows replayed at the same time; 0 for one per core, of the farm twice that. Memory holds that many
                rows.
            n: Only the first `n` rows; `None` for all.
            on_done: Called after each row with its reason (`"kept"` if it is kept) and whether it was done before.
            farm: Runs the programs on its nodes; a row whose node is lost is replayed on another one.

        Returns:
            The summary.
        """
        count = len(self.demos) if n is None else min(n, len(self.demos))
        limits = Limits(wall_s=self.options.wall_s)
        workers = workers or (cores() if farm is None else 2 * farm.slots)
        try:
            with (
                Sandbox(limits=limits) as box,
                closing(_each(lambda index: self._row(index, limits, farm or box), count, workers)) as results,
            ):
                for result, was_done in results:
                    if on_done is not None:
                        on_done(result, was_done)
        finally:
            summary = self.summary()
            write_json(self.out / SUMMARY, summary)
        return summary

    def summary(self) -> dict[str, Any]:
        """Return the content of the folder: counts by reason, of changed programs and of outputs that differ.

        `done` counts all rows in the folder, which may come from several files given one after the other.
        """
        counts = Counter(self._results.values())
        return {
            "schema": SCHEMA,
            **self._settings(),
            "rows": len(self.demos),
            "done": sum(counts.values()),
            "kept": counts[KEPT],
            "dropped": {reason: counts[reason] for reason in REASONS if counts[reason]},
            "of_kept": {name: count for name, count in sorted(self._facts.items()) if count},
        }

    def _row(self, index: int, limits: Limits, place: Sandbox | Farm) -> tuple[str, bool]:
        """Read, replay and write one row, unless it is done; runs in a worker thread."""
        entry = self.demos.entry(index)
        before = self._results.get(entry.demo_id)
        if before is not None and self._digests[entry.demo_id] == entry.digest:
            return before, True
        if before == KEPT:
            raise TaskError(
                f"{entry.where}: has changed since it was replayed into {self.out}. Replay into another folder."
            )
        demo = entry.read()
        if isinstance(demo, Broken):
            outcome = Outcome(demo.demo_id, demo.digest, demo.reason, demo.detail)
        elif isinstance(place, Farm):
            outcome = _replay_there(place, limits, demo, self.options)
        else:
            outcome = replay(demo, place, self.options)
        if outcome.trajectory is not None:
            self._writer.append(outcome.trajectory)
            meta: Any = outcome.trajectory.meta
        else:
            line = {"id": demo.demo_id, "digest": demo.digest, "reason": outcome.reason, "detail": outcome.detail[:500]}
            with self._lock:
                append_line(self._dropped, json.dumps({**line, "where": demo.where}).encode() + b"\n")
            meta = {}
        with self._lock:
            self._note(demo.demo_id, demo.digest, outcome.reason or KEPT, meta.get("replay", {}))
        return outcome.reason or KEPT, False

    def _note(self, demo_id: str, digest: str, result: str, facts: dict[str, Any]) -> None:
        self._digests[demo_id], self._results[demo_id] = digest, result
        if result != KEPT:
            return
        for name, label in (("same_text", "text"), ("same_sizes", "image sizes")):
            if facts.get(name) is not None:
                self._facts[f"{label} as recorded" if facts[name] else f"other {label} than recorded"] += 1
        self._facts["with a failed turn"] += bool(facts.get("failed_turns"))
        self._facts["repaired by the sandbox"] += any(facts.get("repairs", ()))
        for note in facts.get("adaptations", ()):
            self._facts[note] += 1

    def _load(self) -> None:
        for number, row in _lines(self.out / DROPPED):
            with _readable(self.out / DROPPED, number):
                self._note(row["id"], row["digest"], row["reason"], {})
        for number, row in _lines(self.out / FILE_NAME):
            with _readable(self.out / FILE_NAME, number):
                facts = row["meta"]["replay"]
                self._note(row["task_id"], facts["digest"], KEPT, facts)

    def _settings(self) -> dict[str, Any]:
        options = {**asdict(self.options), "dialect": self.options.dialect or self.demos.dialect.name}
        return {"format": self.demos.format, **options}

    def _check_settings(self) -> None:
        path, settings = self.out / SETTINGS, self._settings()
        if not path.exists():
            if (self.out / FILE_NAME).exists():
                raise ConfigError(f"{self.out} already holds {FILE_NAME} of something else: give another folder.")
            write_json(path, settings)
            return
        try:
            found = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path} cannot be read ({error}); give another folder.") from error
        if found != settings:
            other = [f"{key}={found.get(key)!r}" for key in settings if found.get(key) != settings[key]]
            raise ConfigError(
                f"{self.out} holds a replay with {', '.join(other) or 'other options'}: "
                "use the same options to go on with it, or give another folder."
            )


def replay_without_images(box: Sandbox, demo: Demonstration, options: ReplayOptions) -> Outcome:
    """Replay a row on a node of a farm; its input images do not travel back."""
    outcome = replay(demo, box, options)
    if outcome.trajectory is None:
        return outcome
    return replace(outcome, trajectory=replace(outcome.trajectory, images=()))


def _replay_there(farm: Farm, limits: Limits, demo: Demonstration, options: ReplayOptions) -> Outcome:
    outcome: Outcome = farm.call(limits, replay_without_images, demo, options)
    if outcome.trajectory is None:
        return outcome
    return replace(outcome, trajectory=replace(outcome.trajectory, images=demo.images))


def cores() -> int:
    """Return how many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1


def summary_table(summary: dict[str, Any]) -> str:
    """Return a summary as lines for a terminal."""
    lines = [
        f"{summary['done']} rows done in this folder; the data has {summary['rows']}",
        f"{summary['kept']:>9}  kept",
    ]
    lines += [f"{count:>9}    {name}" for name, count in summary["of_kept"].items()]
    for reason, count in sorted(summary["dropped"].items(), key=lambda item: -item[1]):
        lines.append(f"{count:>9}  {reason}: {REASONS[reason]}")
    return "\n".join(lines)


def _each(work: Callable[[int], tuple[str, bool]], count: int, workers: int) -> Generator[tuple[str, bool], None, None]:
    """Run a function for 0 to `count` over threads, with few waiting; yields results as they come."""
    with ThreadPoolExecutor(workers, thread_name_prefix="codev-replay") as pool:
        running: set[Future[tuple[str, bool]]] = set()
        given_up = threading.Event()
        indices = iter(range(count))
        try:
            while True:
                for index in indices:
                    running.add(pool.submit(until_given_up, given_up, work, index))
                    if len(running) >= 2 * workers:
                        break
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            given_up.set()
            for future in running:
                future.cancel()


def _lines(path: Path) -> Iterator[tuple[int, Any]]:
    if not path.exists():
        return
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                with _readable(path, number):
                    row = json.loads(line)
                yield number, row


@contextmanager
def _readable(path: Path, number: int) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError) as error:
        raise TaskError(
            f"{path}, line {number}: is not what `codev data replay` writes ({error!r}). "
            "Remove the line, or give another folder."
        ) from error


def _cut_tail(path: Path) -> None:
    """Remove a torn last line, left by a process that died while writing."""
    if path.exists() and not (data := path.read_bytes()).endswith(b"\n"):
        os.truncate(path, data.rfind(b"\n") + 1)


def _only_writer(folder: Path) -> Callable[[], None]:
    """Lock a folder among processes, where the system can; returns a function that unlocks it."""
    file = open(folder / ".lock", "w")  # closed by what is returned
    try:
        lock_file(file, wait=False)
    except BlockingIOError as error:
        file.close()
        raise ConfigError(f"another process writes to {folder}: wait for it, or give another folder.") from error
    return file.close
