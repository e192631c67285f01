"""Rows of Thyme-SFT and CodeVision-SFT as demonstrations, read one at a time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codev_env.dialects import get_dialect
from codev_env.errors import TaskError, unknown
from codev_env.tasks.readers.cells import image_sources
from codev_env.tasks.readers.files import find_files, table_of
from codev_env.tasks.readers.images import ImageRules, decode, image_size
from codev_env.tasks.readers.parquet import ParquetTable
from codev_env.types import Answer, Code, Invalid
from codev_eval.data.demonstrations import codevision, thyme
from codev_eval.data.demonstrations.demonstration import Broken, Demonstration, Draft, RecordedTurn, Unusable

# Recorded coordinates are those of the image as Pillow opens it: it is neither rotated nor scaled.
_RULES = ImageRules(small="raise", orient=False)


@dataclass(frozen=True)
class Format:
    """A published format.

    Attributes:
        dialect: Name of the dialect its turns are written in.
        images: Name of the column with the images, inputs first.
        columns: Columns that must be there.
        suffixes: Files it comes as.
        read: Makes a draft of a row, or raises `Unusable`.
    """

    dialect: str
    images: str
    columns: tuple[str, ...]
    suffixes: tuple[str, ...]
    read: Callable[[Mapping[str, Any]], Draft]


FORMATS = {
    "thyme": Format(
        "thyme", "image", ("image", "question", "response"), (".parquet", ".jsonl", ".json"), thyme.read_row
    ),
    "codevision": Format(
        "codevision", "images", ("conversations", "images"), (".json", ".jsonl", ".parquet"), codevision.read_row
    ),
}
"""The formats by name: `thyme` is that of Kwai-Keye/Thyme-SFT, `codevision` that of kkwok/CodeVision-SFT."""


@dataclass(frozen=True)
class Entry:
    """A row that was fetched; `read()` makes it a demonstration, or a `Broken`, of the same id and digest."""

    demo_id: str
    where: str
    digest: str
    read: Callable[[], Demonstration | Broken]


class DemonstrationSet:
    """The demonstrations of a file or folder: sized, indexable, iterable; a row is read when it is asked for.

    Args:
        format: A name of `FORMATS`.
        path: A Parquet, JSON-lines or JSON file, or a folder with such files (or with `data/`).

    Raises:
        ConfigError: There is no such format.
        TaskError: No such files, or columns are missing.
    """

    def __init__(self, format: str, path: str | Path) -> None:
        if format not in FORMATS:
            raise unknown("format", format, FORMATS)
        self.format = format
        self._format = FORMATS[format]
        files = find_files(path, self._format.suffixes, f"data in the format of {format}")
        self._table = table_of(files)
        self._stem = files[0].stem
        if len(self._table):
            self._table.require(*self._format.columns)
        self.dialect = get_dialect(self._format.dialect)

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[Demonstration | Broken]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> Demonstration | Broken:
        """Read one row; any problem with it becomes a `Broken`. Thread-safe."""
        return self.entry(index).read()

    def entry(self, index: int) -> Entry:
        """Fetch one row without decoding its images."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        table = self._table
        where = table.where(index)
        demo_id = table.stem(index) if isinstance(table, ParquetTable) else f"{self._stem}-{index}"
        digest = hashlib.blake2b(digest_size=16)
        try:
            if index in table.problems:
                raise Unusable("unreadable_row", table.problems[index])
            row = self._row(index)
            _feed(digest, row, self._format.images)
            sources = self._sources(row, where, table.folder(index))
            for source in sources:
                digest.update(source if isinstance(source, bytes) else _file_bytes(source))
        except Unusable as verdict:
            broken = Broken(demo_id, where, digest.hexdigest(), verdict.reason, verdict.detail)
            return Entry(demo_id, where, broken.digest, lambda: broken)
        found = digest.hexdigest()

        def read() -> Demonstration | Broken:
            try:
                return self._demonstration(demo_id, where, found, row, sources)
            except Unusable as verdict:
                return Broken(demo_id, where, found, verdict.reason, verdict.detail)

        return Entry(demo_id, where, found, read)

    def _row(self, index: int) -> dict[str, Any]:
        try:
            return self._table.row(index)
        except TaskError as error:
            raise Unusable("unreadable_row", str(error)) from error

    def _sources(self, row: Mapping[str, Any], where: str, folder: Path) -> tuple[bytes | Path, ...]:
        cell = row.get(self._format.images)
        if cell is None or (isinstance(cell, Sequence) and not cell):
            return ()
        try:
            return image_sources(cell, where, folder)
        except TaskError as error:
            raise Unusable("image_missing", str(error)) from error

    def _demonstration(
        self, demo_id: str, where: str, digest: str, row: Mapping[str, Any], sources: Sequence[bytes | Path]
    ) -> Demonstration:
        draft = self._format.read(row)
        listed = draft.inputs + sum(draft.outputs)
        if listed != len(sources):
            raise Unusable("image_count", f"{listed} placeholders, but {len(sources)} images")
        try:
            images = tuple(decode(source, where, _RULES).image for source in sources[: draft.inputs])
            sizes = [image_size(source, where) for source in sources[draft.inputs :]]
        except TaskError as error:
            raise Unusable("image_broken", str(error)) from error
        turns = []
        for turn, count in zip(draft.turns, draft.outputs, strict=True):
            turns.append(RecordedTurn(turn.text, turn.output, turn.printed, tuple(sizes[:count]), turn.failed))
            del sizes[:count]
        answer, problems = self._check(turns)
        return Demonstration(
            demo_id=demo_id,
            where=where,
            digest=digest,
            images=images,
            question=draft.question,
            answer=answer if draft.gold is None else draft.gold,
            is_gold=draft.gold is not None,
            turns=tuple(turns),
            dialect=self._format.dialect,
            paths=draft.paths,
            problems=problems,
            meta=draft.meta,
        )

    def _check(self, turns: Sequence[RecordedTurn]) -> tuple[str, tuple[str, ...]]:
        """Return the recorded answer and the flaws of all turns; every turn but the last must be code."""
        problems: dict[str, None] = {}
        for number, recorded in enumerate(turns, 1):
            turn = self.dialect.parse(recorded.text)
            problems.update(dict.fromkeys(turn.problems))
            last = number == len(turns)
            if isinstance(turn, Invalid):
                raise Unusable("no_answer" if last else "turn_unreadable", f"turn {number}: {turn.reason}")
            if last and isinstance(turn, Answer):
                return turn.text, tuple(problems)
            if last or not isinstance(turn, Code):
                raise Unusable("no_answer" if last else "turn_order", f"turn {number} is a {type(turn).__name__}")
        raise Unusable("no_answer", "there are no turns")


def _feed(digest: Any, row: Mapping[str, Any], images: str) -> None:
    texts = {key: value for key, value in row.items() if key != images}
    digest.update(json.dumps(texts, sort_keys=True, default=repr).encode())


def _file_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Unusable("image_missing", f"{path}: {error.strerror}") from error
