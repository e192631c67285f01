"""The difficulty of tasks for an agent: success rates over several rollouts, and the tasks between two rates."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codev_agents import Agent
from codev_env.envs.image_tool import ImageToolEnv
from codev_env.errors import ConfigError, TaskError
from codev_env.files import append_line, lock_file, write_text
from codev_env.scoring.metrics import wilson
from codev_env.types import TaskSet
from codev_eval.bench.runner import Failure, Player, play
from codev_eval.bench.unchanged import digest_of, first_changed, is_at

MakeAgent = Callable[[int], Callable[[], Agent]]
"""Takes the number of a rollout, which seeds its sampling, and returns a function that makes agents for it."""

_BEGINNING = b'{"settings"'
"""The first bytes of a journal, or some of them where a process died while it wrote them."""


@dataclass(frozen=True)
class Difficulty:
    """The success rate of an agent on a task.

    Attributes:
        task_id: The task.
        index: Its index in the set.
        successes: Rollouts with the right answer.
        rollouts: Rollouts played.
    """

    task_id: str
    index: int
    successes: int
    rollouts: int

    @property
    def rate(self) -> float:
        """The share of rollouts with the right answer."""
        return self.successes / self.rollouts

    def row(self) -> dict[str, Any]:
        """Return it as a row of the file that `FilteredTaskSet` reads; `ci95` is the Wilson interval of the rate."""
        return {
            "task_id": self.task_id,
            "index": self.index,
            "rate": self.rate,
            "ci95": wilson(self.successes, self.rollouts),
            "successes": self.successes,
            "rollouts": self.rollouts,
        }


@dataclass(frozen=True)
class RolloutOptions:
    """Settings of the rollouts.

    Attributes:
        rollouts: Of each task.
        workers: Episodes at the same time.
        seed: Of the environments; `MakeAgent` seeds the agents.
        dialect: Dialect of the agent's turns.
        max_turns: Turns of an episode, the answer included.
        scorer: Scorer of the answers.
        farm: Machines that run the programs, as of an environment; `""` for this one.
    """

    rollouts: int = 8
    workers: int = 2
    seed: int = 0
    dialect: str = "codev"
    max_turns: int = 6
    scorer: str = "rules"
    farm: str = ""

    def __post_init__(self) -> None:
        for name, least in (("rollouts", 1), ("workers", 1), ("seed", 0), ("max_turns", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least {least}.")


class RolloutJournal:
    """The rollouts played so far, one line each behind a first line with the settings; appended to, never rewritten.

    Args:
        path: The file; one of the same settings is continued.
        settings: All settings that the rollouts depend on; JSON-able.

    Raises:
        ConfigError: The file was written with other settings, or another process writes to it.
        TaskError: A line cannot be read.
    """

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path = path
        self._ids: dict[int, str] = {}
        self._won: dict[int, dict[int, bool]] = {}
        self._earlier: dict[int, str] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "ab", buffering=0)  # closed in close()
        try:
            self._open(settings)
        except BaseException:
            self._file.close()
            raise

    def _open(self, settings: dict[str, Any]) -> None:
        """Read the rollouts and remove a torn last line, left by a process that died while writing.

        A file without any rollout is begun again: nothing in it depends on its settings.
        """
        try:
            lock_file(self._file, wait=False)
        except BlockingIOError as error:
            raise ConfigError(f"another process writes to {self.path}: wait for it, or give another --out.") from error
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        lines = data[:whole].splitlines()
        if lines:
            self._read(lines, settings)
        elif not (data.startswith(_BEGINNING) or _BEGINNING.startswith(data)):
            raise ConfigError(f"{self.path} holds no rollouts of `codev data filter`: give another --out.")
        self._file.truncate(whole if self._ids else 0)
        if not self._ids:
            self._write({"settings": settings})

    def check(self, tasks: TaskSet) -> None:
        """Raise `TaskError` unless every task still has the index at which it was played."""
        for index, task_id in self._ids.items():
            if not is_at(tasks, task_id, index):
                raise self._changed(f"task {index} was {task_id!r}, which is not there any more")

    def check_unchanged(self, tasks: TaskSet, workers: int = 1) -> None:
        """Raise `TaskError` unless question, choices, answer and boxes are those of earlier starts; reads the tasks."""
        earlier, self._earlier = self._earlier, {}
        index = first_changed(tasks, earlier, workers)
        if index is not None:
            raise self._changed(f"task {self._ids[index]!r} had a question, choices, answer or boxes other than now")

    def _changed(self, what: str) -> TaskError:
        return TaskError(
            f"{self.path}: {what}: the data has changed. Give another --out, or remove the file to start again."
        )

    def add(self, index: int, task_id: str, rollout: int, is_correct: bool, digest: str = "") -> None:
        """Write one rollout of the task at an index of the set; `digest` is `digest_of` the task."""
        row = {"index": index, "task_id": task_id, "rollout": rollout, "is_correct": is_correct}
        self._write(row | ({"digest": digest} if digest else {}))
        self._note(index, task_id, rollout, is_correct)

    def has(self, index: int, rollout: int) -> bool:
        """Whether a rollout was played."""
        return rollout in self._won.get(index, {})

    def difficulty(self, index: int, rollouts: int) -> Difficulty | None:
        """Return the difficulty of a task, `None` unless its first `rollouts` rollouts were played."""
        won = self._won.get(index, {})
        if any(number not in won for number in range(rollouts)):
            return None
        return Difficulty(self._ids[index], index, sum(won[number] for number in range(rollouts)), rollouts)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read(self, lines: Sequence[bytes], settings: dict[str, Any]) -> None:
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                if number > 1:
                    self._note(row["index"], row["task_id"], row["rollout"], bool(row["is_correct"]))
                    if "digest" in row:  # rows of earlier versions have none
                        self._earlier[row["index"]] = row["digest"]
                    continue
                found = row["settings"]
            except (ValueError, KeyError, TypeError) as error:
                raise TaskError(
                    f"{self.path}, line {number}: is not what `codev data filter` writes ({error!r}). "
                    "Remove the file to start again."
                ) from error
            if found != settings and len(lines) > 1:
                differ = [key for key in settings if found.get(key) != settings[key]]
                other = [f"{key} {found.get(key)!r}, not {settings[key]!r}" for key in differ]
                raise ConfigError(
                    f"{self.path} holds rollouts with other settings ({'; '.join(other)}): "
                    "use the same ones to go on, or give another --out."
                )

    def _note(self, index: int, task_id: str, rollout: int, is_correct: bool) -> None:
        self._ids[index] = task_id
        self._won.setdefault(index, {})[rollout] = is_correct

    def _write(self, row: dict[str, Any]) -> None:
        append_line(self._file, json.dumps(row).encode() + b"\n")


def measure(
    tasks: TaskSet, count: int, make_agent: MakeAgent, journal: RolloutJournal, options: RolloutOptions
) -> Iterator[Failure | None]:
    """Play the rollouts that the journal does not have and write them into it.

    Args:
        tasks: The set.
        count: How many of its tasks, from the first on.
        make_agent: See `MakeAgent`.
        journal: Receives the rollouts; it is not closed.
        options: Settings of the rollouts.

    Yields:
        After each rollout `None`, or a `Failure` if it could not be played; it is then missing in the journal.

    Raises:
        TaskError: Tasks of rollouts from an earlier start have changed.
    """
    for rollout in range(options.rollouts):
        pending = [index for index in range(count) if not journal.has(index, rollout)]
        if not pending:
            continue
        journal.check_unchanged(tasks, options.workers)
        make = make_agent(rollout)
        players: list[Player] = [
            (_environment(tasks, options), make()) for _ in range(min(options.workers, len(pending)))
        ]
        for outcome in play(players, pending, seed=options.seed):
            if isinstance(outcome, Failure):
                yield outcome
            else:
                journal.add(outcome.index, outcome.task_id, rollout, outcome.is_correct, digest_of(outcome))
                yield None


def _environment(tasks: TaskSet, options: RolloutOptions) -> ImageToolEnv:
    return ImageToolEnv(
        tasks,
        dialect=options.dialect,
        reward="outcome",
        judge="none",
        scorer=options.scorer,
        max_turns=options.max_turns,
        farm=options.farm or None,
    )


def select(
    journal: RolloutJournal, count: int, rollouts: int, keep: tuple[float, float]
) -> tuple[list[Difficulty], list[Difficulty], int]:
    """Choose the tasks whose success rate lies between two rates, both included.

    Args:
        journal: The rollouts.
        count: How many tasks, from the first on.
        rollouts: How many rollouts of each.
        keep: Lowest and highest success rate. CodeV drops tasks solved in more than 0.9 of 8 rollouts: `(0.0, 0.9)`.

    Returns:
        The tasks kept, in the order of the set; those left out; and how many tasks lack rollouts.
    """
    low, high = keep
    if not 0 <= low <= high <= 1:
        raise ConfigError(f"keep is {low} {high}; it must be two success rates, 0 <= low <= high <= 1.")
    measured = [journal.difficulty(index, rollouts) for index in range(count)]
    known = [task for task in measured if task is not None]
    kept = [task for task in known if low <= task.rate <= high]
    left_out = [task for task in known if not low <= task.rate <= high]
    return kept, left_out, count - len(known)


def check_rows_file(path: Path) -> None:
    """Raise `ConfigError` for a file that `write_rows` must not replace, such as the data, and for a folder."""
    if path.is_dir():
        raise ConfigError(f"--out {path} is a folder; give a file, such as {path / 'tasks.jsonl'}.")
    if not path.exists():
        return
    with path.open("rb") as file:
        line = file.readline()
    try:
        is_ours = not line or {"task_id", "rate", "rollouts"} <= json.loads(line).keys()
    except (ValueError, AttributeError):
        is_ours = False
    if not is_ours:
        raise ConfigError(f"--out {path} exists and is not what `codev data filter` writes: give another file.")


def write_rows(path: Path, rows: Sequence[Difficulty]) -> None:
    """Write the tasks as JSON lines, whole or not at all."""
    write_text(path, "".join(json.dumps(row.row()) + "\n" for row in rows))
