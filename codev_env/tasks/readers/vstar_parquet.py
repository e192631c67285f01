"""V*Bench as one Parquet file that includes the images, the form that lmms-eval reads (`lmms-lab/vstar-bench`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from codev_env.errors import TaskError
from codev_env.tasks.readers.boxes import Frame
from codev_env.tasks.readers.fields import brief, plain, scorer_meta, split_inline
from codev_env.tasks.readers.rowset import DraftTask, Scan, problems_of
from codev_env.tasks.readers.table import RowTable


@dataclass(frozen=True)
class ParquetReader:
    """Columns `image, text (the question with its lettered options), category, question_id, label (a letter)`.

    There are no boxes. The options keep their order, and a task's id is `category-question_id`.

    Attributes:
        bench: Name of the benchmark.
        categories: The allowed categories.
    """

    bench: str
    categories: tuple[str, ...]
    image_column: str = "image"
    frame: Frame = "stored"

    def scan(self, table: RowTable) -> Scan:
        """Check ids, questions, options, letters and categories of all rows."""
        names = ("text", "label", "category", "question_id")
        table.require("image", *names)
        columns = {name: table.values(name) for name in names}
        categories = [plain(category) for category in columns["category"]]
        numbers = [plain(number) for number in columns["question_id"]]
        ids = [f"{category}-{number}" for category, number in zip(categories, numbers, strict=True)]
        return Scan(ids, categories, problems_of(table, columns, self._check))

    def _check(self, fields: Mapping[str, Any], where: str) -> tuple[str, dict[str, str], str]:
        """Return question, options by letter and the right letter."""
        if not plain(fields["question_id"]):
            raise TaskError(f"{where}: 'question_id' is empty. Give each row its own.")
        category, label = plain(fields["category"]), plain(fields["label"]).strip("().: ").upper()
        if category not in self.categories:
            raise TaskError(f"{where}: 'category' is {brief(category)}; expected one of {', '.join(self.categories)}.")
        question, options = split_inline(plain(fields["text"]))
        if not question or len(options) < 2 or not all(options.values()):
            raise TaskError(f"{where}: 'text' is {brief(fields['text'])}; expected a question and options (A), (B), …")
        if label not in options:
            raise TaskError(f"{where}: 'label' is {brief(fields['label'])}, but the options are {', '.join(options)}.")
        return question, options, label

    def read(self, row: Mapping[str, Any], where: str, index: int) -> DraftTask:
        """Read one row."""
        question, options, label = self._check(row, where)
        return DraftTask(
            images=row["image"],
            question=question,
            answer=options[label],
            choices=tuple(options.values()),
            category=plain(row["category"]),
            meta={
                "question_id": plain(row["question_id"]),
                "text": plain(row["text"]),
                "label": label,
                **scorer_meta(self.bench, question_type="multi_choice"),
            },
        )
