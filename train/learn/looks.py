"""Looks of earlier updates that may be imitated again, in memory and in the run folder, from which a run resumes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from codev_agents.rollout.tokens import PixelBlock
from codev_train.learn.checkpoint import CheckpointError, checkpoints, replace_folder
from codev_train.learn.sample import Sample

_FOLDER, _FILE = "looks", "looks.pt"


@dataclass(frozen=True, eq=False)
class AnsweredLook:
    """A rollout that looked faithfully before it answered.

    Attributes:
        gold: The trajectory with the gold answer in its answering turn; the loss covers nothing of it yet.
        calls: Numbers of its faithful tool calls.
        answer: Number of the answering turn.
        answers: Chance, not normalised, that its answer is imitated.
        looks: The same for its calls.
    """

    gold: Sample
    calls: tuple[int, ...]
    answer: int
    answers: float
    looks: float


class PastLooks:
    """The looks of the last updates, each a function of its update's rollouts: nothing is scored again.

    Pixels are kept in half precision, which is finer than the 8 bits that they come from. The looks of an update are
    written to `looks/` of the run folder, and stay there as long as a checkpoint may need them.

    Args:
        run: The run folder.
        memory: Updates whose looks are kept; 0 keeps and writes nothing.
        done: Updates done; looks of later ones, which a killed run left, are removed.
        rank: Number of this process, which keeps the looks of its own rollouts.
        processes: How many there are. If a resumed run has fewer, they share the looks of all out.

    Raises:
        CheckpointError: Looks of the run are broken.
    """

    def __init__(self, run: Path, memory: int, done: int = 0, rank: int = 0, processes: int = 1) -> None:
        self._run, self._memory, self._rank, self._processes = run, memory, rank, processes
        self._kept: dict[int, list[AnsweredLook]] = {}
        for step, folder in sorted(self._own()) if memory else ():
            if step > done:
                shutil.rmtree(folder)
            elif step > done - memory:
                self._kept.setdefault(step, []).extend(_read(folder))

    def __iter__(self) -> Iterator[AnsweredLook]:
        """Iterate over the looks, the oldest first."""
        return (look for looks in self._kept.values() for look in looks)

    def add(self, step: int, looks: Sequence[AnsweredLook]) -> None:
        """Add the looks of update `step`, from 1, and forget the oldest; raises `CheckpointError` on a full disk."""
        if not self._memory:
            return
        blocks = {block for look in looks for block in look.gold.images}  # looks of a task share some
        halves = {block: replace(block, values=block.values.half()) for block in blocks}
        self._kept[step] = [
            replace(look, gold=replace(look.gold, images=[halves[block] for block in look.gold.images]))
            for look in looks
        ]
        self._kept.pop(step - self._memory, None)
        with replace_folder(self._run / _FOLDER / f"step-{step:06d}-{self._rank}") as partial:
            torch.save(_to_plain(self._kept[step]), partial / _FILE)
        oldest = min((int(p.name.removeprefix("step-")) for p in checkpoints(self._run)), default=0)
        for old, folder in list(self._own()):
            if old <= oldest - self._memory:
                shutil.rmtree(folder)

    def _own(self) -> Iterator[tuple[int, Path]]:
        """Yield update and folder of the looks that this process keeps, whichever process wrote them."""
        for folder in (self._run / _FOLDER).glob("step-*-*"):
            _, step, writer = folder.name.split("-")
            if int(writer) % self._processes == self._rank:
                yield int(step), folder


def _to_plain(looks: Sequence[AnsweredLook]) -> dict[str, Any]:
    """Write looks as plain data; an image that several of them show is written once."""
    blocks = {id(image.values): image for look in looks for image in look.gold.images}
    numbers = {key: number for number, key in enumerate(blocks)}
    return {
        "images": [(block.values, block.grid, block.tokens) for block in blocks.values()],
        "looks": [
            {
                "ids": list(look.gold.ids),
                "turns": list(look.gold.turns),
                "images": [numbers[id(image.values)] for image in look.gold.images],
                "calls": look.calls,
                "answer": look.answer,
                "chances": (look.answers, look.looks),
            }
            for look in looks
        ],
    }


def _read(folder: Path) -> list[AnsweredLook]:
    """Read the looks that a process wrote after an update; raises `CheckpointError`."""
    try:
        found = torch.load(folder / _FILE, weights_only=True)
        images = [PixelBlock(*block) for block in found["images"]]
        return [
            AnsweredLook(
                Sample.unlearned(row["ids"], [images[number] for number in row["images"]], row["turns"]),
                tuple(row["calls"]),
                row["answer"],
                *row["chances"],
            )
            for row in found["looks"]
        ]
    except Exception as error:  # whatever torch and its pickle find wrong
        raise CheckpointError(
            f"{folder / _FILE} is broken ({type(error).__name__}: {str(error)[:120]}). Remove {folder} to continue "
            "without the looks of this update."
        ) from error
