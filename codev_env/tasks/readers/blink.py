"""BLINK as its authors publish it: a folder for each of 14 subtasks, with a Parquet file of the validation part.

Columns `idx, question, prompt, sub_task, choices, answer ("(A)"), image_1, …, image_4`, as eval/test_benchmark.py of
zeyofu/BLINK_Benchmark and lmms_eval/tasks/blink/utils.py of EvolvingLMMs-Lab/lmms-eval read them; file names as the
hub lists them (`BLINK-Benchmark/BLINK`, `Art_Style/val-00000-of-00001.parquet`). The answers of test files are hidden.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from codev_env.errors import TaskError
from codev_env.tasks.readers.boxes import Frame
from codev_env.tasks.readers.fields import (
    brief,
    given_options,
    letter_answer,
    other_fields,
    plain,
    scorer_meta,
    split_options,
)
from codev_env.tasks.readers.rowset import DraftTask, Scan, problems_of
from codev_env.tasks.readers.table import RowTable

_IMAGES = ("image_1", "image_2", "image_3", "image_4")
_CHECKED = ("idx", "question", "sub_task", "choices", "answer")
_USED = frozenset({*_CHECKED, *_IMAGES, "prompt", "explanation"})


@dataclass(frozen=True)
class BlinkReader:
    """Rows of one to four images, a question, its options as a list, and the letter of the right one.

    The question is the published prompt without its options where it has the same as the list, as it also says which
    image is which.

    Attributes:
        bench: Name of the benchmark.
    """

    bench: str
    image_column: str = "image_1"
    frame: Frame = "stored"

    def scan(self, table: RowTable) -> Scan:
        """Check ids, questions, options and letters of all rows."""
        table.require(*_CHECKED, "image_1")
        columns = {name: table.values(name) for name in (*_CHECKED, "prompt")}
        ids = [f"{self.bench}-{plain(number)}" for number in columns["idx"]]
        categories = [plain(name) for name in columns["sub_task"]]
        return Scan(ids, categories, problems_of(table, columns, self._check))

    def _check(self, row: Mapping[str, Any], where: str) -> tuple[str, dict[str, str], str]:
        """Return question, options by letter and the right option's text."""
        for name in ("idx", "question", "sub_task"):
            if not plain(row[name]):
                raise TaskError(f"{where}: {name!r} is empty.")
        options = given_options(row["choices"])
        if not options:
            raise TaskError(f"{where}: 'choices' is {brief(row['choices'])}; expected a list of 2 to 26 texts.")
        stem, found = split_options(plain(row.get("prompt")).replace("<image>", ""))
        question = stem if found == options else plain(row["question"]).replace("<image>", "").strip()
        return question, options, letter_answer(where, row["answer"], options)

    def read(self, row: Mapping[str, Any], where: str, index: int) -> DraftTask:
        """Read one row; the options keep the row's order."""
        question, options, answer = self._check(row, where)
        return DraftTask(
            images=[row[name] for name in _IMAGES if row.get(name)],
            question=question,
            answer=answer,
            choices=tuple(options.values()),
            category=plain(row["sub_task"]),
            meta={
                **other_fields(row, _USED),
                **scorer_meta(self.bench, question_type="multi_choice"),
                "label": plain(row["answer"]).strip("().: ").upper(),
            },
        )
