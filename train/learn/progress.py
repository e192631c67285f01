"""The groups that each update used: a run that is resumed trains on none of them twice, and leaves none out."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

from codev_agents.rollout.stream import TakenGroups
from codev_env.files import write_text

FOLDER = "groups"
"""In the run folder: a file for each process, one line for each update of a run with `staleness`."""


class GroupLog:
    """Notes the numbers of the groups that each update used, in the order in which tasks are drawn.

    A group that was begun and not used when the run was killed is played again; so are those of updates after the
    last checkpoint, whose weights are lost.

    Attributes:
        used: The numbers that updates used and that are not below `start`.
        start: The first number that may not be used yet.
        again: How many groups are played again in this run, as far as they are known to have been begun.
        updates: How many updates are made again.

    Args:
        run: The run folder.
        count: Groups per update of a process.
        done: Updates that are done; notes of later ones are dropped.
        rank: Number of this process.
        processes: How many there are. With another number than before, tasks are drawn anew.
    """

    def __init__(self, run: Path, count: int, done: int = 0, rank: int = 0, processes: int = 1) -> None:
        self._path, self._plan = run / FOLDER / f"{rank}.jsonl", {"count": count, "processes": processes}
        rows = _read(self._path)
        kept = [row for row in rows if row["step"] <= done]
        self.start, self.used, self._first = done * count, frozenset[int](), done * count
        if kept and kept[-1]["step"] == done and self._is_of_plan(kept[-1]):
            self._first = kept[-1]["start"]
            own = [row for row in kept if row["start"] == self._first and self._is_of_plan(row)]
            used = {number for row in own for number in row["used"]}
            self.start = next(number for number in itertools.count(self._first) if number not in used)
            self.used = frozenset(number for number in used if number > self.start)
        begun = max((row["begun"] for row in rows if self._is_of_plan(row)), default=self.start)
        self.again = len(set(range(self.start, begun)) - self.used)
        self.updates = max((row["step"] for row in rows), default=done) - done
        if rows:
            write_text(self._path, "".join(json.dumps(row) + "\n" for row in kept))

    def _is_of_plan(self, row: dict[str, Any]) -> bool:
        return all(row[name] == value for name, value in self._plan.items())

    def note(self, step: int, taken: TakenGroups) -> None:
        """Note the groups of update number `step`, from 1."""
        row = {"step": step, **self._plan, "start": self._first, "used": sorted(taken.numbers), "begun": taken.begun}
        self._path.parent.mkdir(exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def _read(path: Path) -> list[dict[str, Any]]:
    """Return the complete lines; the last one of a killed run may be torn."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]
