"""TIR-Bench: `TIR-Bench.json`, a list of questions of 13 tasks, and `data.zip` with the images.

Format: `calculate_score.py` and `extract_answer.py` of agents-x-project/TIR-Bench (arXiv 2511.01833), which read the
fields `id, task, prompt, answer, image_1, image_2, meta_data`; paths of images start in the folder of the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codev_env.benches import Bench
from codev_env.errors import TaskError
from codev_env.tasks.readers.archives import unpacked
from codev_env.tasks.readers.boxes import Frame
from codev_env.tasks.readers.cells import image_path
from codev_env.tasks.readers.fields import brief, other_fields, plain, scorer_meta, split_options
from codev_env.tasks.readers.files import find_files, only_split, table_of
from codev_env.tasks.readers.images import Rules
from codev_env.tasks.readers.rowset import DraftTask, OnError, RowTaskSet, Scan, problems_of
from codev_env.tasks.readers.table import RowTable

TASKS = (
    "color",
    "contrast",
    "instrument",
    "jigsaw",
    "math",
    "maze",
    "ocr",
    "refcoco",
    "rotation_game",
    "spot_difference",
    "symbolic",
    "visual_search",
    "word_search",
)
_LETTER = re.compile("[A-J]")
_IMAGES = ("image_1", "image_2")
_USED = frozenset({"id", "task", "category", "answer"})


def open_tirbench(
    path: str | Path,
    split: str = "test",
    *,
    bench: Bench,
    subset: str | None = None,
    seed: int = 0,
    on_error: OnError = "raise",
    images: Rules = None,
) -> RowTaskSet:
    """Open TIR-Bench.

    Args:
        path: `TIR-Bench.json`, or a folder that holds it; its images beside it in `data/`, or packed in `data.zip`.
        split: A split of the benchmark.
        bench: The benchmark.
        subset: Only this task, for example `"jigsaw"`.
        seed: Not used: the order of the options is part of the data.
        on_error: How to treat bad rows, see `RowTaskSet`.
        images: Which images are accepted; `None` for the defaults.

    Raises:
        TaskError: Missing or invalid data; the message names file and row.
        ConfigError: An option that cannot be used.
    """
    only_split(bench.title, split, bench.splits)
    files = [f for f in find_files(path, (".json",), "TIR-Bench.json and data.zip") if f.parent.name != "data"]
    table = table_of(files or find_files(path, (".json",), "TIR-Bench.json"))
    reader = TIRBenchReader(bench.name)
    return RowTaskSet(table, reader, subset=subset, on_error=on_error, images=images, image_folder=_image_folder(table))


def _image_folder(table: RowTable) -> Path | None:
    """Return the folder of the unpacked `data.zip`, where the images are not beside the rows already."""
    folder = table.folder(0)
    archive = folder / "data.zip"
    here = not table.has("image_1") or image_path(table.peek(0, "image_1"), folder) is not None
    return None if here or not archive.is_file() else unpacked(archive)


@dataclass(frozen=True)
class TIRBenchReader:
    """Rows of one or two images, a prompt with or without options, and an answer of letters, a number, or numbers.

    Attributes:
        bench: Name of the benchmark.
    """

    bench: str
    image_column: str = "image_1"
    frame: Frame = "stored"

    def scan(self, table: RowTable) -> Scan:
        """Check ids, tasks, prompts and answers of all rows."""
        table.require("id", "prompt", "answer", "image_1")
        names = ("id", "task", "category", "prompt", "answer", "meta_data", "metadata")
        columns = {name: table.values(name) for name in names if table.has(name)}
        tasks = columns.get("task", columns.get("category", [None] * len(table)))
        ids = [f"{self.bench}-{plain(number)}" for number in columns["id"]]
        return Scan(ids, [plain(task) for task in tasks], problems_of(table, columns, self._check))

    def _check(self, row: Mapping[str, Any], where: str) -> tuple[str, dict[str, str], str]:
        """Return question, options by letter, and the answer: an option's text if a letter names one."""
        task, prompt = _task(row), plain(row["prompt"]).replace("<image>", "").strip()
        if task not in TASKS:
            raise TaskError(f"{where}: 'task' is {brief(task)}; expected one of {', '.join(TASKS)}.")
        if not plain(row["id"]):
            raise TaskError(f"{where}: 'id' is empty. Give each row its own.")
        if not prompt:
            raise TaskError(f"{where}: 'prompt' is empty.")
        # As the authors' script reads it: 3.0 stays "3.0", a list is its text.
        answer = row["answer"] if isinstance(row["answer"], str) else str(row["answer"])
        if row["answer"] is None or not answer.strip():
            raise TaskError(f"{where}: 'answer' is empty.")
        side = _details(row).get("difficulty")
        if task == "jigsaw" and (isinstance(side, bool) or not isinstance(side, int) or not 2 <= side <= 100):
            raise TaskError(f"{where}: 'meta_data' has 'difficulty' {brief(side)}; expected pieces a side, 2 to 100.")
        question, options = split_options(prompt, running=True) if _LETTER.fullmatch(answer) else (prompt, {})
        return (question, options, options[answer]) if answer in options else (prompt, {}, answer)

    def read(self, row: Mapping[str, Any], where: str, index: int) -> DraftTask:
        """Read one row; the options keep the row's order, and `meta["prompt"]` the published text."""
        question, options, answer = self._check(row, where)
        rest = other_fields(row, {*_USED, *(name for name in row if row[name] is None)})
        own = scorer_meta(self.bench, question_type="multi_choice" if options else "free_form")
        label = {"label": row["answer"]} if options else {}
        return DraftTask(
            images=[row[name] for name in _IMAGES if row.get(name)],
            question=question,
            answer=answer,
            choices=tuple(options.values()),
            category=_task(row),
            meta={**rest, "meta_data": other_fields(_details(row), ()), **own, **label},
        )


def _task(row: Mapping[str, Any]) -> str:
    return plain(row.get("task") or row.get("category"))


def _details(row: Mapping[str, Any]) -> Mapping[str, Any]:
    found = row.get("meta_data") or row.get("metadata")
    return found if isinstance(found, Mapping) else {}
