"""Groups of episodes that have ended, saved in the run folder: a run that is killed does not play them again.

Each is a file of its own, written whole or not at all: a zip archive whose checksums find what is torn, with the
records as in `trajectories.jsonl`, the tokens as they were sampled, and each image once.
"""

from __future__ import annotations

import functools
import io
import json
import re
import shutil
import sys
import threading
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tqdm import tqdm

from codev_agents.rollout.groups import EndedGroup
from codev_agents.rollout.player import Rollout
from codev_agents.rollout.selection import PlayedGroup
from codev_agents.rollout.tokens import ChatProcessor, PixelBlock, TokenSequence
from codev_env.errors import ConfigError, TrajectoryError, unstopped
from codev_env.files import write_bytes
from codev_env.trajectory import SCHEMA, Trajectory
from codev_env.trajectory.images import ImageFiles, image_name, write_png
from codev_env.trajectory.rows import row_of, trajectory_of
from codev_env.types import Execution, Step

_HEAD, _ROLLOUTS = "head.json", "rollouts.json"
_FORMAT = f"1.{SCHEMA}"


class SavedGroups:
    """The saved groups of a process.

    Attributes:
        broken: How many files were torn, and removed.

    Args:
        folder: Holds them and nothing else; made when the first one is saved.
        processor: Makes pixels of images again: they are not saved.
        key: Names what makes an episode; groups with another key are removed.
    """

    def __init__(self, folder: Path, processor: ChatProcessor, key: str = "") -> None:
        self.broken = 0
        self._folder, self._processor, self._key = folder, processor, key
        self._plan: dict[str, Any] = {}
        self._lock, self._failed = threading.Lock(), False

    def open(self, plan: Mapping[str, Any], is_free: Callable[[int], bool]) -> list[EndedGroup]:
        """Return the groups of a run that was killed, by number; others are removed.

        Args:
            plan: How the tasks of this run are drawn; JSON-able. Groups of another plan are others.
            is_free: Whether the group of a number may still be used.
        """
        self._plan = dict(plan) | {"key": self._key, "format": _FORMAT}
        found = []
        for path in sorted(self._folder.iterdir()) if self._folder.is_dir() else ():
            group = self._read(path) if re.fullmatch(r"\d+\.zip", path.name) else None
            if group and is_free(group.number):
                found.append(group)
            else:
                path.unlink()
        return sorted(found, key=lambda group: group.number)

    def save(self, group: EndedGroup) -> None:
        """Save a group. That it cannot be saved, as on a full disk, is reported once and does not end the run."""
        try:
            content = _packed(group, self._plan)
            self._folder.mkdir(parents=True, exist_ok=True)
            write_bytes(self._path(group.number), content)
        except (OSError, TrajectoryError, TypeError, ValueError) as error:
            with self._lock:
                first, self._failed = not self._failed, True
            if first:
                tqdm.write(
                    f"cannot save a group of episodes in {self._folder}: {unstopped(error)}. Training goes on; if it "
                    "is killed, groups that could not be saved are played again.",
                    file=sys.stderr,
                )

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove groups that are not needed any more."""
        for number in numbers:
            self._path(number).unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove all of them."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08d}.zip"

    def _read(self, path: Path) -> EndedGroup | None:
        """Read the head of a file; `None` if it is torn, or of another plan."""
        try:
            with zipfile.ZipFile(path) as archive:
                if wrong := archive.testzip():
                    raise ValueError(f"{wrong} is torn")
                head = json.loads(archive.read(_HEAD))
            if head["plan"] != self._plan:
                return None
            versions = tuple(head["versions"]) if head["versions"] else None
            load = functools.partial(_rollouts, path, self._processor) if head["wanted"] else list
            return EndedGroup(head["number"], PlayedGroup(*head["outcome"]), versions, head["wanted"], load)
        except Exception:  # whatever zipfile finds wrong
            self.broken += 1
            return None


def _packed(group: EndedGroup, plan: Mapping[str, Any]) -> bytes:
    outcome = group.outcome
    head = {"plan": plan, "number": group.number, "versions": group.versions, "wanted": group.wanted}
    head["outcome"] = [outcome.index, outcome.right, outcome.episodes]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(_HEAD, json.dumps(head))
        if group.wanted:
            known: set[str] = set()
            rows = [_row(rollout, functools.partial(_save_image, archive, known)) for rollout in group.load()]
            archive.writestr(_ROLLOUTS, json.dumps(rows), zipfile.ZIP_DEFLATED, 1)
    return buffer.getvalue()


def _save_image(archive: zipfile.ZipFile, known: set[str], image: Image.Image) -> str:
    name = image_name(image)
    if name not in known:
        known.add(name)
        with archive.open(name, "w") as file:
            write_png(image, file)
    return name


def _row(rollout: Rollout, save: Callable[[Image.Image], str]) -> dict[str, Any]:
    tokens = rollout.tokens
    return {
        "trajectory": row_of(rollout.trajectory, save),
        "cut": rollout.cut,
        "truncated_turns": rollout.truncated_turns,
        "ids": list(tokens.ids),
        "turns": list(tokens.turns),
        "logprobs": list(tokens.logprobs),
        "versions": list(tokens.versions),
        "blocks": [[block.grid, block.tokens] for block in tokens.images],
    }


def _rollouts(path: Path, processor: ChatProcessor) -> list[Rollout]:
    """Read the rollouts of a file; raises `ConfigError` if their images are processed otherwise now."""
    with zipfile.ZipFile(path) as archive:
        images = {
            name: Image.open(io.BytesIO(archive.read(name))).copy()
            for name in archive.namelist()
            if name not in (_HEAD, _ROLLOUTS)
        }
        rows = json.loads(archive.read(_ROLLOUTS))
    block = functools.cache(lambda name: processor.image(np.asarray(images[name])))
    rollouts = []
    for row in rows:
        trajectory = trajectory_of(row["trajectory"], Path())
        shown = [trajectory.images, *(turn.images for turn in trajectory.turns)]
        names = [name for files in shown for name in _names(files)][: len(row["blocks"])]
        blocks: list[PixelBlock] = [block(name) for name in names]
        if [[list(b.grid) if b.grid else None, b.tokens] for b in blocks] != row["blocks"]:
            raise ConfigError(
                f"{path}: its images take other numbers of tokens than when they were sampled. Continue with the image "
                f"processor that the run was started with, or remove {path.parent} to play its episodes again."
            )
        tokens = TokenSequence(row["ids"], row["turns"], row["logprobs"], blocks, row["versions"])
        rollouts.append(Rollout(_in_memory(trajectory, images), tokens, 0, row["cut"], row.get("truncated_turns", 0)))
    return rollouts


def _names(files: Sequence[Image.Image]) -> list[str]:
    return [path.as_posix() for path in files.files] if isinstance(files, ImageFiles) else []


def _in_memory(trajectory: Trajectory, images: Mapping[str, Image.Image]) -> Trajectory:
    """Return a trajectory with its images, which are in no folder, in place of the names of their files."""

    def these(files: Sequence[Image.Image]) -> tuple[Image.Image, ...]:
        return tuple(images[name] for name in _names(files))

    def ran(execution: Execution | None) -> Execution | None:
        return execution and replace(execution, images=these(execution.images))

    def turn(step: Step) -> Step:
        return replace(step, images=these(step.images), execution=ran(step.execution))

    return replace(trajectory, images=these(trajectory.images), turns=tuple(map(turn, trajectory.turns)))
