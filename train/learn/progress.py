"""The groups that each update used: a run that is resumed trains on none of them twice, and leaves none out."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from codev_agents.rollout.groups import EndedGroup, TakenGroups
from codev_env.files import read_rows, write_text
from codev_train.learn.saved import SavedGroups

FOLDER = "groups"
"""In the run folder: a file for each process, one line for each update of a run with `staleness`; and a folder for each
process, with its groups that have ended and that no checkpoint includes yet."""


class GroupLog:
    """Notes the numbers of the groups that each update used, in the order in which tasks are drawn.

    A run that was killed takes the groups that had ended as they were. Updates after the last checkpoint, whose weights
    are lost, are made again with the same groups in the same order: the weights that sampled later tokens come back.
    Where such a group is not saved, these updates begin anew, and tokens of lost weights are given up.

    Attributes:
        used: The numbers that updates used and that are not below `start`.
        start: The first number that may not be used yet.
        saved: The groups that had ended and that no update has used.
        planned: For each update that is made again with the groups that it had, their numbers.
        again: How many groups are played again in this run, as far as they are known to have been begun.
        updates: How many updates are made again.

    Args:
        run: The run folder.
        count: Groups per update of a process.
        done: Updates that are done.
        rank: Number of this process.
        processes: How many there are. With another number than before, tasks are drawn anew.
        store: Where groups are saved; without it none are.
        key: Names what makes an update of its groups; with another one than before none is made again as it was.
        agree: Called with the number of updates that this process can make again with the groups that they had; returns
            the least of all processes. All processes call it.
    """

    def __init__(
        self,
        run: Path,
        count: int,
        done: int = 0,
        rank: int = 0,
        processes: int = 1,
        store: SavedGroups | None = None,
        key: str = "",
        agree: Callable[[int], int] = int,
    ) -> None:
        self._path, self._plan = run / FOLDER / f"{rank}.jsonl", {"count": count, "processes": processes}
        self._store, self._key = store, key
        rows = read_rows(self._path)
        kept = [row for row in rows if row["step"] <= done]
        self.start, self.used, self._first = done * count, frozenset[int](), done * count
        if kept and kept[-1]["step"] == done and self._is_of_plan(kept[-1]):
            self._first = kept[-1]["start"]
            own = [row for row in kept if row["start"] == self._first and self._is_of_plan(row)]
            used = {number for row in own for number in row["used"]}
            self.start = next(number for number in itertools.count(self._first) if number not in used)
            self.used = frozenset(number for number in used if number > self.start)
        found = store.open(self._plan | {"start": self._first}, self._is_free) if store else []
        planned = self._planned([row for row in rows if row["step"] > done], done, {group.number for group in found})
        self.planned = planned[: agree(len(planned))]
        self.saved = self._known(found, done + len(self.planned))
        begun = max((row["begun"] for row in rows if self._is_of_plan(row)), default=self.start)
        begun = max([begun, *(group.number + 1 for group in found)])
        self.again = len(set(range(self.start, begun)) - self.used - {group.number for group in self.saved})
        self.updates = max((row["step"] for row in rows), default=done) - done
        self._rows = {row["step"]: row for row in rows if row["step"] <= done + len(self.planned)}
        self._settled = done
        if self._path.exists():
            self._write()  # also without a whole line: the next one would be joined to what is torn
        if rank == 0:
            _remove_others(run / FOLDER, processes)

    def _is_of_plan(self, row: Mapping[str, Any]) -> bool:
        return all(row[name] == value for name, value in self._plan.items())

    def _is_free(self, number: int) -> bool:
        return number >= self.start and number not in self.used

    def _planned(self, rows: list[dict[str, Any]], done: int, saved: set[int]) -> list[list[int]]:
        """Return the groups of the updates after `done` as long as all of them are there."""
        planned = []
        for step, row in enumerate(rows, done + 1):
            known = row["step"] == step and self._is_of_plan(row) and row["start"] == self._first
            trained = row.get("trained")
            if not (known and trained and row["key"] == self._key and saved.issuperset(trained)):
                break
            planned.append(trained)
        return planned

    def _known(self, groups: list[EndedGroup], newest: int) -> list[EndedGroup]:
        """Return the groups of weights that are there or come back; remove the others."""
        known = [group for group in groups if not group.versions or group.versions[1] <= newest]
        if self._store:
            self._store.remove({group.number for group in groups} - {group.number for group in known})
        return known

    def note(self, step: int, taken: TakenGroups) -> None:
        """Note the groups of update number `step`, from 1."""
        row = {"step": step, **self._plan, "start": self._first, "used": sorted(taken.numbers), "begun": taken.begun}
        row |= {"trained": list(taken.trained), "key": self._key}
        self._path.parent.mkdir(exist_ok=True)
        again = step in self._rows
        self._rows[step] = row
        if again:
            self._write()
        else:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def settle(self, done: int) -> None:
        """Remove the saved groups of the updates that a checkpoint includes."""
        for step in range(self._settled + 1, done + 1):
            if self._store and step in self._rows:
                self._store.remove(self._rows[step]["used"])
        self._settled = max(self._settled, done)

    def finish(self) -> None:
        """Remove all saved groups, when the last update is in a checkpoint."""
        if self._store:
            self._store.clear()

    def _write(self) -> None:
        write_text(self._path, "".join(json.dumps(row) + "\n" for row in self._rows.values()))


def drop_saved(run: Path) -> None:
    """Remove the saved groups of all processes: a run that goes on in turn uses none."""
    _remove_others(run / FOLDER, 0)


def _remove_others(folder: Path, processes: int) -> None:
    """Remove the saved groups of processes that there are no more."""
    for other in folder.glob("*/"):
        if other.name.isdigit() and int(other.name) >= processes:
            shutil.rmtree(other)
