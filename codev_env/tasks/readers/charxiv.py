"""CharXiv from a checkout of its repository: reasoning and descriptive questions about figures of arXiv papers.

Read in `princeton-nlp/CharXiv`: data/reasoning_val.json, descriptive_val.json and image_metadata_val.json,
src/descriptive_utils.py (how a descriptive question is put together) and src/score_utils.py (names of the parts).
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from codev_env.benches import Bench
from codev_env.errors import ConfigError, FormatError, TaskError
from codev_env.python_text import parse
from codev_env.tasks.readers.annotated import open_rows
from codev_env.tasks.readers.fields import brief, is_number, number_form, plain, read_text
from codev_env.tasks.readers.files import find_files, json_table, only_split
from codev_env.tasks.readers.images import Rules
from codev_env.tasks.readers.rowset import OnError, RowTaskSet
from codev_env.tasks.readers.table import ListTable, file_state

Mode = Literal["reasoning", "descriptive"]
TEMPLATES = "DESCRIPTIVE_RESP_INST"
"""The name in `src/constants.py` of the questions by template number, with `{}` for the subplot."""
_TYPES = {
    "Information Extraction": (1, 2, 3, 4, 5, 6, 7),
    "Enumeration": (8, 9, 13, 14, 15),
    "Pattern Recognition": (11, 16, 18),
    "Counting": (10, 12, 19),
    "Compositionality": (17,),
}
TYPES = {number: name for name, numbers in _TYPES.items() for number in numbers}
"""The type of each template's question."""
_LAYOUT = (18, 19)  # templates about all subplots, which name none


def open_charxiv(
    path: str | Path,
    split: str = "val",
    *,
    bench: Bench,
    mode: Mode = "reasoning",
    subset: str | None = None,
    seed: int = 0,
    on_error: OnError = "raise",
    images: Rules = None,
) -> RowTaskSet:
    """Open CharXiv's questions.

    Reasoning questions about numbers name the form of the answer, as the published ones do, in words of our own.
    `meta` has `subject`, `year` and `num_subplots` where `image_metadata_val.json` and `descriptive_val.json` are
    beside the questions; descriptive questions also `qid`, the number of their template.

    Args:
        path: The checkout, its `data/`, or the file of the questions. The figures are in `images/` of the checkout.
        split: `"val"`, also as `"test"`: the answers of the test split are not public.
        bench: The benchmark.
        mode: Which questions. For descriptive ones `src/constants.py` is read, not run: it has their texts.
        subset: Only this category: the number of the answer's type, or the type of a descriptive question.
        seed: Not used.
        on_error: How to treat bad rows, see `RowTaskSet`.
        images: Which images are accepted; `None` for the defaults.

    Raises:
        TaskError: Missing or invalid data; the message names file and row.
        ConfigError: An option that cannot be used.
    """
    if mode not in get_args(Mode):
        raise ConfigError(f"option mode of CharXiv is {mode!r}; it must be one of {', '.join(get_args(Mode))}.")
    only_split(bench.title, split, bench.splits)
    expected = f"{mode}_val.json of CharXiv's repository"
    files = find_files(path, (".json",), expected)
    found = files if Path(path).is_file() else [file for file in files if file.match(f"{mode}_val*")]
    if len(found) != 1:
        named = ", ".join(file.name for file in found or files)
        raise FormatError(f"{path}: needs one file {expected}; it has {named}.")
    file = found[0]
    table, used = json_table(file), [file]
    problems: dict[int, str] = {}
    rows, places = [dict(table.row(n)) for n in range(len(table))], [table.where(n) for n in range(len(table))]
    if mode == "descriptive":
        constants = _beside(file, "src/constants.py", "constants.py")
        if constants is None:
            raise FormatError(
                f"{file}: src/constants.py of CharXiv's repository, which has the texts of the descriptive questions, "
                "is not beside it. Give the folder of a whole checkout."
            )
        used.append(constants)
        rows, places, problems = _questions(rows, places, question_templates(constants))
    else:
        rows = [{**row, "question": _reasoning(row)} for row in rows]
    for name in ("image_metadata", "descriptive"):
        other = file.with_name(file.name.replace(mode, name, 1))
        if other.is_file():
            used.append(other)
            _add(rows, other)
    whole = ListTable(str(file), rows, places, file.parent)
    whole.problems = problems
    whole.signature = tuple((str(one.resolve()), *file_state(one)) for one in used)
    return open_rows(
        whole,
        bench,
        needs=("category",),
        image="figure_id",
        suffix=".jpg",
        subset=subset,
        on_error=on_error,
        images=images,
    )


def question_templates(path: Path) -> dict[int, str]:
    """Return the texts of the descriptive questions by template number, without running the file.

    Raises:
        FormatError: It does not set `TEMPLATES` to such a mapping.
    """
    try:
        for node in parse(read_text(path)).body:
            if isinstance(node, ast.Assign) and any(getattr(name, "id", "") == TEMPLATES for name in node.targets):
                found = ast.literal_eval(node.value)
                if isinstance(found, dict) and all(isinstance(text, str) for text in found.values()):
                    return found
    except (ValueError, TypeError, RecursionError) as error:
        raise FormatError(f"{path}: cannot be read ({error}). Take it from CharXiv's repository again.") from error
    raise FormatError(f"{path}: has no {TEMPLATES} with the questions' texts. Take it from CharXiv's repository again.")


def _reasoning(row: Mapping[str, Any]) -> Any:
    """Return the question of a row; where it is about a number, with the form that the published instructions ask for.

    Numbers are written in the chart (answers of type 3), or have the decimals of the right answer (4).
    """
    question, kind = row.get("question", row.get("query")), plain(row.get("inst_category"))
    if not isinstance(question, str) or not question.strip():
        return question
    if kind == "3":
        return f"{question}\nAnswer with a number that is written in the chart."
    return f"{question}{number_form(len(plain(row.get('answer')).partition('.')[2]))}" if kind == "4" else question


def _beside(file: Path, *names: str) -> Path | None:
    places = (folder / name for folder in (file.parent, file.parent.parent) for name in names)
    return next((place for place in places if place.is_file()), None)


def _questions(
    figures: list[dict[str, Any]], places: list[str], templates: Mapping[int, str]
) -> tuple[list[dict[str, Any]], list[str], dict[int, str]]:
    """Return one row for each question of each figure, their places, and the problems of rows for bad figures."""
    rows: list[dict[str, Any]] = []
    named: list[str] = []
    problems = {}
    for figure, where in zip(figures, places, strict=True):
        try:
            found = list(_of(figure, where, templates))
        except TaskError as error:
            problems[len(rows)] = str(error)
            found = [({"figure_id": figure.get("figure_id")}, where)]
        rows += [row for row, _ in found]
        named += [place for _, place in found]
    return rows, named, problems


def _of(figure: Mapping[str, Any], where: str, templates: Mapping[int, str]) -> Iterator[tuple[dict[str, Any], str]]:
    numbers, answers = figure.get("qids"), figure.get("answers")
    if not isinstance(numbers, list) or not isinstance(answers, list) or len(numbers) != len(answers):
        raise TaskError(
            f"{where}: 'qids' and 'answers' are {brief(numbers)}, {brief(answers)}; expected two equal lists."
        )
    for place, (number, answer) in enumerate(zip(numbers, answers, strict=True)):
        if not is_number(number) or number not in TYPES or number not in templates:
            raise TaskError(
                f"{where}: 'qids' has {brief(number)}; expected the number of a template, 1 to {len(TYPES)}."
            )
        subplot = "" if number in _LAYOUT else _subplot(figure.get("subplot_loc"), where)
        yield (
            {
                "question_id": f"{figure.get('figure_id')}_{place}",
                "figure_id": figure.get("figure_id"),
                "cluster": figure.get("figure_id"),
                "question": templates[number].replace("{}", subplot).strip(),
                "answer": answer,
                "category": TYPES[number],
                "qid": number,
            },
            f"{where}, question {place}",
        )


def _subplot(place: Any, where: str) -> str:
    if isinstance(place, str) and place.strip():
        return f"For {place}, "
    if isinstance(place, list) and len(place) == 2 and all(map(is_number, place)):
        return f"For the subplot at row {place[0]} and column {place[1]}, " if place[0] else "For the current plot, "
    raise TaskError(f"{where}: 'subplot_loc' is {brief(place)}; expected a row and a column, or a text.")


def _add(rows: list[dict[str, Any]], file: Path) -> None:
    """Add subject, year and number of subplots from a file that has them by figure."""
    try:
        data = json.loads(read_text(file))
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{file}: is not JSON ({error}). Restore it or download it again.") from error
    for row in rows:
        figure = data.get(str(row.get("figure_id"))) if isinstance(data, dict) else None
        if isinstance(figure, dict):
            names = (("subject", "category"), ("year", "year"), ("num_subplots", "num_subplots"))
            row |= {name: figure[key] for name, key in names if key in figure and name not in row}
