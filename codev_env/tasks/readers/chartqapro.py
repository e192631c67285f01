"""ChartQAPro: questions about charts from the web, single or at the end of a conversation.

Read in public code: the columns of the hub's Parquet file in the README and evaluate_predictions.py of
`vis-nlp/ChartQAPro` (`Question`, `Answer`, `Question Type`, `Year`; `image` and `Paragraph` in loaders of others),
those of VLMEvalKit's TSV in its vlmeval/dataset/utils (`question`, `answer`, `question_type`, `year`, as texts of
lists).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codev_env.benches import Bench
from codev_env.errors import FormatError, TaskError
from codev_env.python_text import literal
from codev_env.tasks.readers.boxes import Frame
from codev_env.tasks.readers.fields import brief, plain, scorer_meta
from codev_env.tasks.readers.files import find_files, only_split, table_of
from codev_env.tasks.readers.images import Rules
from codev_env.tasks.readers.rowset import DraftTask, OnError, RowTaskSet, Scan, problems_of
from codev_env.tasks.readers.table import RowTable

CONVERSATION = "Conversational"
_WORDS = "Answer with a word, a number or a phrase, without a unit."
_FORMS = {
    "Factoid": _WORDS,
    "Multi Choice": "Answer with the letter of the right option alone.",
    CONVERSATION: _WORDS,
    "Fact Checking": "Answer true or false.",
    "Hypothetical": _WORDS,
}
_EVERY = "If the chart does not show it, the answer is: unanswerable. Write several answers as ['first', 'second']."
_NAMES = {
    "questions": ("Question", "question"),
    "answers": ("Answer", "answer"),
    "type": ("Question Type", "question_type"),
    "year": ("Year", "year"),
    "image": ("image",),
    "paragraph": ("Paragraph", "paragraph"),
    "id": ("index",),
}
_OPTIONAL = ("paragraph", "id")


def open_chartqapro(
    path: str | Path,
    split: str = "test",
    *,
    bench: Bench,
    subset: str | None = None,
    seed: int = 0,
    on_error: OnError = "raise",
    images: Rules = None,
) -> RowTaskSet:
    """Open ChartQAPro, one task for each row: the only question, or the last one of a conversation, with the others.

    Args:
        path: The Parquet file of the hub or VLMEvalKit's TSV file, or a folder that holds one.
        split: `"test"`.
        bench: The benchmark.
        subset: Only this type of question.
        seed: Not used.
        on_error: How to treat bad rows, see `RowTaskSet`.
        images: Which images are accepted; `None` for the defaults.

    Raises:
        TaskError: Missing or invalid data; the message names file and row.
        ConfigError: An option that cannot be used.
    """
    only_split(bench.title, split, bench.splits)
    table = table_of(find_files(path, (".parquet", ".tsv"), "ChartQAPro as Parquet or TSV"))
    found = {field: next((name for name in names if table.has(name)), "") for field, names in _NAMES.items()}
    for field, name in found.items():
        if not name and field not in _OPTIONAL:
            raise FormatError(f"{table.source}: has no column {' or '.join(map(repr, _NAMES[field]))}.")
    reader = ChartQAProReader(bench.name, tuple((field, name) for field, name in found.items() if name))
    return RowTaskSet(table, reader, subset=subset, on_error=on_error, images=images)


@dataclass(frozen=True)
class ChartQAProReader:
    """Rows of a chart and one or more questions.

    Attributes:
        bench: Name of the benchmark.
        columns: Pairs of a field and its column.
    """

    bench: str
    columns: tuple[tuple[str, str], ...]
    image_column: str = "image"
    frame: Frame = "stored"

    def scan(self, table: RowTable) -> Scan:
        """Check questions, answers, types and flags of all rows."""
        columns = {name: table.values(name) for field, name in self.columns if field != "image"}
        names = dict(self.columns)
        numbers = columns[names["id"]] if "id" in names else range(len(table))
        kinds = [plain(value) for value in columns[names["type"]]]
        return Scan([f"{self.bench}-{plain(n)}" for n in numbers], kinds, problems_of(table, columns, self._check))

    def _check(self, row: Mapping[str, Any], where: str) -> tuple[str, list[str], list[str], list[str]]:
        """Return type, questions, answers and flags."""
        cells = {field: row.get(name) for field, name in self.columns if field != "image"}
        kind = plain(cells["type"])
        if kind not in _FORMS:
            raise TaskError(f"{where}: the type is {brief(cells['type'])}; expected {', '.join(_FORMS)}.")
        questions, answers, years = (_texts(cells[name], name, where) for name in ("questions", "answers", "year"))
        if not questions or len(questions) != len(answers) or not all(text.strip() for text in questions):
            raise TaskError(f"{where}: has {len(questions)} questions and {len(answers)} answers; expected as many.")
        if not set(map(str.upper, years)) <= {"YES", "NO"}:
            raise TaskError(f"{where}: 'Year' is {brief(years)}; expected YES or NO for each answer.")
        return kind, questions, answers, years

    def read(self, row: Mapping[str, Any], where: str, index: int) -> DraftTask:
        """Read one row. The form of the answer is asked for in words of our own; two right answers are empty."""
        kind, questions, answers, years = self._check(row, where)
        said = zip(questions[:-1], answers[:-1], strict=True) if kind == CONVERSATION else ()
        paragraph = plain(row.get(dict(self.columns).get("paragraph", "")))
        asked = questions[-1] if kind == CONVERSATION else questions[0]
        parts = [
            *([f"Text beside the chart: {paragraph}"] if paragraph else []),
            *(f"Asked: {question.strip()}\nAnswered: {answer.strip()}" for question, answer in said),
            asked.strip(),
            f"{_FORMS[kind]} {_EVERY}",
        ]
        return DraftTask(
            images=row["image"],
            question="\n\n".join(parts),
            answer=answers[-1],
            category=kind,
            meta={
                **scorer_meta(self.bench, question_type="free_form"),
                **{"questions": questions, "answers": answers, "year": years, "paragraph": paragraph},
            },
        )


def _texts(value: Any, name: str, where: str) -> list[str]:
    """Return a list of texts, which TSV holds as a text."""
    if isinstance(value, str):
        try:
            value = literal(value)
        except ValueError:
            value = None
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(text, str) for text in value):
        raise TaskError(f"{where}: the {name} are {brief(value)}; expected a list of texts.")
    return list(value)
