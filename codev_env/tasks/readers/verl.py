"""Data sets in verl's Parquet form: CodeV-RL-Data, CodeVision-RL, MVToolBench and DeepEyes-Datasets-47k.

Sources: arXiv 2511.19661 (CodeV-RL-Data), 2512.03746 (CodeVision-RL, MVToolBench), 2505.14362 (DeepEyes).

Columns `data_source, prompt [{role, content}], images [{bytes, path}], ability, env_name, reward_model {ground_truth,
style}, extra_info {question, answer, index, transform, bbox or bbox_2d, …}`. Their boxes are `(x1, y1, x2, y2)` in
pixels of the image as it is stored, transformed or not. EXIF orientation is not applied: it would undo, or add to,
the transform that the question is about.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codev_env.benches import Bench
from codev_env.errors import TaskError
from codev_env.tasks.readers.boxes import Frame, boxes_from
from codev_env.tasks.readers.cells import nested_value, parsed
from codev_env.tasks.readers.fields import brief, other_fields, plain, scorer_meta, split_options
from codev_env.tasks.readers.files import find_files, of_split, only_split, table_of
from codev_env.tasks.readers.images import Rules, image_rules
from codev_env.tasks.readers.parquet import ParquetTable
from codev_env.tasks.readers.rowset import DraftTask, OnError, RowTaskSet, Scan
from codev_env.tasks.readers.table import RowTable

_USED = frozenset({"images", "prompt"})
_BOXES = ("bbox", "bbox_2d")
_NOT_DONE = frozenset({"crop", "none", "original", "identity", "source", ""})
# DeepEyes adds this to the user's message, for its own tool.
_TOOL_ORDER = re.compile(r"\s*Think first, call \*\*image_zoom_in_tool\*\*.*$", re.DOTALL)


def open_verl(
    path: str | Path,
    split: str = "train",
    *,
    bench: Bench,
    split_by_file: bool = True,
    subset: str | None = None,
    seed: int = 0,
    on_error: OnError = "raise",
    images: Rules = None,
) -> RowTaskSet:
    """Open a data set in verl's form.

    A task's category is its `data_source`, for example `vstar`, `chart` or `thinklite_eureka`. `Task.transform` names
    what was done to the image; the row's own list, which also says whether a crop is needed, is `meta["transform"]`. Of
    several right answers to an open question the first is the task's; the others are `meta["accepted_answers"]`, which
    `rules` and `answer` take as well.
    Some ThinkLite images of CodeV-RL-Data have less than 28 pixels a side: see `ImageRules.small`.

    Args:
        path: A Parquet file, or the folder with all of them.
        split: With `split_by_file` any split that a file's name contains (`test.parquet`, `val-….parquet`); files
            without one belong to `"train"`. Otherwise a split of the benchmark, whose files all belong to it.
        bench: The benchmark or training set.
        split_by_file: The names of the files say which split they belong to.
        subset: Only this `data_source`.
        seed: Not used: nothing is drawn at random.
        on_error: How to treat bad rows, see `RowTaskSet`.
        images: Which images are accepted; `None` for the defaults. EXIF orientation is never applied.

    Raises:
        TaskError: Missing or invalid data; the message names file and row.
        ConfigError: An option that cannot be used.
    """
    if not split_by_file:
        only_split(bench.title, split, bench.splits)
    files = find_files(path, (".parquet",), "Parquet files with the columns prompt, images and extra_info")
    if split_by_file and Path(path).is_dir():
        chosen = of_split(files, split)
        if not chosen:
            raise TaskError(
                f"{path}: has no split {split!r}; its files are {', '.join(file.name for file in files)}. "
                "A file whose name contains no split belongs to 'train'. Give the path of a file to use it as it is."
            )
        files = chosen
    rules = dataclasses.replace(image_rules(images), orient=False)
    return RowTaskSet(table_of(files), VerlReader(bench.name), subset=subset, on_error=on_error, images=rules)


@dataclass(frozen=True)
class VerlReader:
    """Reads rows in verl's form.

    Task ids are `bench-file-row`: a row's own `index`, which is in the metadata, need not be unique.
    """

    bench: str
    image_column: str = "images"
    frame: Frame = "stored"

    def scan(self, table: RowTable) -> Scan:
        """Check answers, questions and boxes of all rows."""
        table.require("images")
        answers = _first(table, "reward_model.ground_truth", "extra_info.answer")
        questions = None if table.has("prompt") else _first(table, "extra_info.question")
        boxes = [table.values(f"extra_info.{name}") for name in _BOXES]
        problems = {}
        for row, answer in enumerate(answers):
            if not _answers(answer):
                problems[row] = f"{table.where(row)}: 'reward_model.ground_truth' is {brief(answer)}; expected a text."
            elif questions is not None and not plain(questions[row]):
                problems[row] = f"{table.where(row)}: 'extra_info.question' is empty."
            else:
                try:
                    _boxes([column[row] for column in boxes], "")
                except TaskError as error:
                    problems[row] = f"{table.where(row)}{error}"
        stem = table.stem if isinstance(table, ParquetTable) else str
        ids = [f"{self.bench}-{stem(row)}" for row in range(len(table))]
        sources = table.values("data_source") if table.has("data_source") else [""] * len(table)
        return Scan(ids, [plain(source) for source in sources], problems)

    def read(self, row: Mapping[str, Any], where: str, index: int) -> DraftTask:
        """Read one row. Options inside the question become choices where the answer is one of them."""
        extra = _extra(row, where)
        accepted = _answers(nested_value(row, "reward_model.ground_truth")) or _answers(extra.get("answer"))
        question, choices, answer = _question(row, extra, accepted[0], where)
        done = _names(extra.get("transform"), where)
        own = scorer_meta(self.bench, question_type="multi_choice" if choices else "free_form")
        rest = other_fields(row, _USED)
        return DraftTask(
            images=row["images"],
            question=question,
            answer=answer,
            choices=choices,
            boxes=_boxes([extra.get(name) for name in _BOXES], where),
            transform=tuple(name for name in done if name.lower() not in _NOT_DONE),
            category=plain(row.get("data_source")),
            meta={
                **rest,
                "extra_info": other_fields(extra, ()),
                "answers": list(accepted),
                **({"accepted_answers": list(accepted[1:])} if len(accepted) > 1 and not choices else {}),
                **own,
                "transform": list(done),
            },
        )


def _first(table: RowTable, *names: str) -> list[Any]:
    """Return the first column that exists; raises `TaskError` if none does."""
    for name in names:
        if table.has(name):
            return table.values(name)
    table.require(names[0])
    raise AssertionError("require raises for a column that is not there")


def _boxes(values: Sequence[Any], where: str) -> tuple[tuple[float, ...], ...]:
    """Read the first box field that is not empty."""
    return next((boxes for value in values if (boxes := boxes_from(parsed(value, where), where))), ())


def _answers(value: Any) -> tuple[str, ...]:
    """Return the accepted answers, one or several."""
    values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    return tuple(text for text in map(plain, values) if text)


def _extra(row: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    extra = parsed(row.get("extra_info"), where) or {}
    if not isinstance(extra, Mapping):
        raise TaskError(f"{where}: 'extra_info' is {brief(extra)}; expected named fields.")
    return extra


def _question(
    row: Mapping[str, Any], extra: Mapping[str, Any], answer: str, where: str
) -> tuple[str, tuple[str, ...], str]:
    """Return question, choices and answer.

    `extra_info.question` is the question alone; the user's message may address another model's tool. For some sources
    only the message has the options: it is used where its options include the answer and the question has none.
    """
    asked = [text for text in (_bare(extra.get("question")), _bare(_user_message(row))) if text]
    if not asked:
        raise TaskError(f"{where}: has neither 'extra_info.question' nor a user message in 'prompt'.")
    letter = answer.strip("().: ").upper()
    for text in asked:
        question, options = split_options(text)
        if answer in options.values():
            return question, tuple(options.values()), answer
        if letter in options:
            return question, tuple(options.values()), options[letter]
    return asked[0], (), answer


def _bare(value: Any) -> str:
    """Return a question without image placeholders and instructions to call a tool."""
    return _TOOL_ORDER.sub("", plain(value).replace("<image>", "")).strip()


def _user_message(row: Mapping[str, Any]) -> Any:
    prompt = row.get("prompt")
    messages = prompt if isinstance(prompt, Sequence) and not isinstance(prompt, str) else []
    return next((m.get("content") for m in messages if isinstance(m, Mapping) and m.get("role") == "user"), None)


def _names(value: Any, where: str) -> tuple[str, ...]:
    """Return the names of transforms from a list, one name, or nothing."""
    if isinstance(value, str):
        value = parsed(value, where) if value.lstrip().startswith("[") else [value]
    if value is None:
        return ()
    if not isinstance(value, Sequence) or not all(isinstance(name, str) for name in value):
        raise TaskError(f"{where}: 'transform' is {brief(value)}; expected a list of names.")
    return tuple(name for name in value if name)
